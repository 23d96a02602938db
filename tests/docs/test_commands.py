"""Every command that the READMEs and the documentation tell people to type is typed here, beside a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.markdown import commands, pages
from programs import FAILING

FROM = {command: page for page in reversed(pages()) for command in commands(page)}
ELSEWHERE = {
    "make demo": "tests/cli/test_demo.py",
    "make test": "it runs this test",
    "make docs": "tests/docs/test_pages.py",
    "deinplace check train.ipynb": "tests/notebooks",
    "deinplace run train.ipynb": "tests/notebooks",
    "deinplace fix train.ipynb": "tests/notebooks",
    "deinplace fix train.ipynb --diff": "tests/notebooks",
}
NEEDS = {
    "pip install deinplace": "network",
    "deinplace sweep list.txt --out results": "network: it clones repositories; tests/sweep runs it on local ones",
    "deinplace sweep list.txt --out results --shard 1/4": "network",
    "deinplace sweep list.txt --out results --ray auto": "a Ray cluster",
}
RUN = [command for command in FROM if command not in {*ELSEWHERE, *NEEDS}]
TORCH_RUN = "deinplace run -- torchrun train.py"


def test_what_is_not_run_is_still_there_and_counted() -> None:
    assert {command for command in (*ELSEWHERE, *NEEDS) if command not in FROM} <= {
        "make demo",
        "make test",
        "make docs",
    }
    assert len(RUN) > 25
    assert len(NEEDS) == 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "tests").mkdir()
    for name in ("train.py", "pkg/train.py"):
        (tmp_path / name).write_text(FAILING)
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "tests" / "test_train.py").write_text(
        "import runpy\n\n\ndef test_it():\n    runpy.run_path('train.py')\n"
    )
    (tmp_path / "deinplace-baseline.json").write_text('{"baseline_version": 1, "findings": []}')
    return tmp_path


@pytest.mark.parametrize("command", RUN)
def test_a_command_does_something_sensible(command: str, folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    text = FAILING if command.endswith(" -") or " - " in command else None
    result = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, input=text, timeout=100,
        check=False,
    )  # fmt: skip
    assert result.returncode in (0, 1), result.stderr
    assert "deinplace: " not in result.stderr
    if command.startswith("deinplace"):
        assert result.stdout or result.stderr or ">" in command or "--add-ignore" in command
