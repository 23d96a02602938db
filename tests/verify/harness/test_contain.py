"""Programs that misbehave: each is contained, says one reason, and leaves the user's files alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deinplace.verify.drivers import Driver, Run, Settings
from deinplace.verify.harness.contain import FLOOD, Chamber

TIMEOUT = 20.0


def contained(folder: Path, text: str, timeout: float = TIMEOUT, memory: int | None = None) -> tuple[Run, Chamber]:
    (folder / "prog.py").write_text(text)
    with Chamber(str(folder), memory=memory) as lab:
        run = lab.run(Driver(("python", "prog.py"), str(folder), timeout=timeout), Settings())
    return run, lab


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("kept")
    return folder


REFUSED = {
    "writes outside": ("open(r'{out}/x', 'w')", "writes "),
    "removes outside": ("import os; os.remove(r'{out}/victim')", "writes "),
    "renames outside": ("import os; os.rename(r'{out}/victim', 'here')", "writes "),
    "removes a tree": ("import shutil; shutil.rmtree(r'{out}')", "writes "),
    "links outside": ("import os; os.symlink('/etc', r'{out}/link')", "writes "),
    "looks up a host": ("import socket; socket.getaddrinfo('example.org', 80)", "uses the network"),
    "connects": ("import socket; socket.socket().connect(('127.0.0.1', 9))", "uses the network"),
    "listens": ("import socket; socket.socket().bind(('127.0.0.1', 0))", "uses the network"),
    "runs a shell": ("import os; os.system('true')", "runs the shell command"),
    "starts a program": ("import subprocess; subprocess.run(['true'])", "starts true"),
    "escapes the probe": ("import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', '0'])", "isolation"),
    "forks without end": ("import os\nwhile True:\n    os.fork() or os._exit(0)", "starts more than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_harness_may_not_do_is_refused_and_told(name: str, project: Path, tmp_path: Path) -> None:
    text, reason = REFUSED[name]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("kept")
    run, lab = contained(project, text.replace("{out}", str(outside)))
    assert run.exit_code != 0
    assert reason in lab.why("")
    assert sorted(p.name for p in outside.iterdir()) == ["victim"]
    assert sorted(p.name for p in project.iterdir()) == ["data.txt", "prog.py"]


def test_a_program_writes_into_a_copy_of_its_own_folder(project: Path) -> None:
    text = "import os, tempfile, pathlib\nopen('data.txt', 'w').write('new')\nos.makedirs('runs/a')\n"
    text += "open('runs/a/log', 'w').write('x')\nos.remove('data.txt')\ntempfile.mkdtemp()\n"
    text += "pathlib.Path.home().joinpath('mine').write_text('x')\nopen('/dev/null', 'w').write('x')\n"
    run, lab = contained(project, text)
    assert (run.exit_code, lab.refused) == (0, ()), run.stderr
    assert (project / "data.txt").read_text() == "kept"
    assert not (project / "runs").exists()


def test_c_code_may_not_write_outside_either(project: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.pt"
    run, _ = contained(project, f"import torch\ntorch.save(torch.ones(3), r'{target}')\n", 60.0)
    if run.exit_code == 0:
        pytest.skip("this kernel has no Landlock")
    assert not target.exists()


def test_a_program_that_hangs_is_ended(project: Path) -> None:
    run, lab = contained(project, "import time\ntime.sleep(1000)\n", 2.0)
    assert run.exit_code is None
    assert lab.why("") == "does not end within 2 s"
    assert run.seconds < 15


def test_memory_has_a_limit(project: Path) -> None:
    run, _ = contained(project, "x = []\nwhile True:\n    x.append(bytearray(2**26))\n", memory=2**29)
    assert run.exit_code not in (0, None)
    assert "MemoryError" in run.stderr


def test_output_is_capped(project: Path) -> None:
    run, lab = contained(project, "print('first')\nwhile True:\n    print('x' * 2**20)\n")
    assert run.exit_code is None
    assert lab.why("") == f"prints more than {FLOOD // 2**20} MB"
    assert run.stdout.startswith("first")
    assert len(run.stdout) < 2**20


def test_nothing_outlives_a_run(project: Path, tmp_path: Path) -> None:
    text = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1000)\n"
    run, _ = contained(project, f"{text}    os._exit(0)\nprint(os.getpid())\n")
    assert run.exit_code == 0
    end = time.monotonic() + 10
    while (left := _running(project)) and time.monotonic() < end:
        time.sleep(0.2)  # other tests run programs of this name, too
    assert not left


def _running(project: Path) -> list[str]:
    """Processes that work in the project or run its program."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += [process.name] if str(project) in str((process / "cwd").readlink()) else []
            found += [process.name] if b"prog.py" in (process / "cmdline").read_bytes() else []
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("text", "code"), [("import os; os._exit(3)", 3), ("raise SystemExit(2)", 2)])
def test_the_way_out_is_noticed(text: str, code: int, project: Path) -> None:
    run, _ = contained(project, text)
    assert run.exit_code == code
    assert run.attached


def test_standard_input_is_closed(project: Path) -> None:
    run, _ = contained(project, "input()\n")
    assert run.exit_code == 1
    assert "EOFError" in run.stderr
