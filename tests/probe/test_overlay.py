"""Patched sources reach the run, the main script included; the tree on disk stays as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deinplace.verify.drivers import Driver, Laboratory, Settings
from deinplace.verify.records import recordings

MAIN = 'import helper, sys, torch\nprint("old", helper.NAME, __name__, __file__, __spec__, sys.argv, sys.path[0])\n'
PATCHED = MAIN.replace("old", "new")


def _tree(folder: Path) -> dict[str, bytes]:
    (folder / "main.py").write_text(MAIN)
    (folder / "helper.py").write_text("NAME = 'old helper'\n")
    return {
        str(folder / "main.py"): PATCHED.encode(),
        str(folder / "helper.py"): b"NAME = 'new helper'\n",
    }


@pytest.mark.parametrize("command", [("main.py", "a"), ("-u", "main.py", "a"), ("-W", "ignore", "main.py", "a")])
def test_the_main_script_is_replaced(tmp_path: Path, command: tuple[str, ...]) -> None:
    overlay = _tree(tmp_path)
    driver = Driver((sys.executable, *command), str(tmp_path))
    with Laboratory() as lab:
        plain, patched = (lab.run(driver, Settings(overlay=o)) for o in ({}, overlay))
    assert patched.exit_code == 0, patched.stderr
    assert patched.stdout == plain.stdout.replace("old", "new")
    assert (tmp_path / "main.py").read_text() == MAIN


def test_a_module_run_with_m_is_replaced(tmp_path: Path) -> None:
    overlay = _tree(tmp_path)
    with Laboratory() as lab:
        run = lab.run(Driver((sys.executable, "-m", "main"), str(tmp_path)), Settings(overlay=overlay))
    assert run.stdout.startswith("new new helper __main__"), run.stderr


SPAWNING = """\
import multiprocessing, torch
def work(n):
    {work}
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    for process in [context.Process(target=work, args=(n,)) for n in (1, 2)]:
        process.start()
        process.join()
"""


def test_the_main_script_of_spawned_processes_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "main.py"
    path.write_text(SPAWNING.format(work="pass"))
    with Laboratory() as lab:
        overlay = {str(path): SPAWNING.format(work="print('new', n, flush=True)").encode()}
        run = lab.run(Driver((sys.executable, "main.py"), str(tmp_path)), Settings(overlay=overlay))
    assert run.stdout == "new 1\nnew 2\n", run.stderr
    assert [p.account["child"][-1:] for p in run.processes if p.account["torch"]] == [[], [1], [2]]


def test_tests_under_pytest_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text("def test_it():\n    assert False\n")
    with Laboratory() as lab:
        run = lab.run(
            Driver((sys.executable, "-m", "pytest", "-q", "-p", "no:deinplace"), str(tmp_path)),
            Settings(overlay={str(path): b"def test_it():\n    assert True\n"}),
        )
    assert run.exit_code == 0, run.stdout


def test_recorded_functions_keep_their_face(tmp_path: Path) -> None:
    path = tmp_path / "main.py"
    path.write_text(
        "import inspect, torch\n"
        "class A:\n"
        "    @staticmethod\n"
        "    def f(x, scale=2):\n"
        "        x += 1\n"
        "        return x * scale\n"
        "t = torch.ones(2)\n"
        "assert A.f(t).tolist() == [4, 4]\n"
        "assert str(inspect.signature(A.f)) == '(x, scale=2)'\n"
    )
    with Laboratory() as lab:
        run = lab.run(
            Driver((sys.executable, "main.py"), str(tmp_path)),
            Settings(record=True, functions={str(path): ("A.f",)}),
        )
        assert run.exit_code == 0, run.stderr
        (records,) = recordings(run)
    kinds = {r.kind: r for r in records if r.name.endswith("A.f")}
    assert set(kinds) == {"returned", "after call"}
    assert list(kinds["after call"].values) == ["argument 0"]
