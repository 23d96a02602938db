"""Every command that the READMEs and the documentation tell people to type is typed here, beside a program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.markdown import ROOT, commands, pages
from programs import FAILING

FROM = {command: page for page in reversed(pages()) for command in commands(page)}
ELSEWHERE = {
    "make demo": "Makefile",
    "make test": "Makefile",
    "deinplace run train.py": "examples/demo.sh",
    'deinplace fix . --run "python train.py"': "examples/demo.sh",
    'deinplace verify --base HEAD~1 --run "python train.py"': "tests/cli/test_verify.py",
    'deinplace verify --base main --head my-branch --run "pytest tests/"': "tests/cli/test_verify.py",
    'deinplace verify --base old/ --head new/ --run "python train.py"': "tests/cli/test_verify.py",
    "deinplace run train.ipynb": "tests/notebooks/test_driver.py",
    "deinplace fix train.ipynb": "tests/notebooks/test_driver.py",
    "deinplace fix train.ipynb --diff": "tests/notebooks/test_driver.py",
    "pytest --deinplace": "tests/pytest_plugin/test_plugin.py",
    "pytest --deinplace-fix": "tests/pytest_plugin/test_plugin.py",
}
"""Commands that another test runs: a file that has them, or all of their flags."""
NEEDS = {
    "pip install deinplace": "network",
    "deinplace sweep list.txt --out results": "network: it clones repositories; tests/sweep runs it on local ones",
    "deinplace sweep list.txt -- --all --unsafe": "network",
    "deinplace sweep list.txt --out results --shard 1/4": "network",
    "deinplace sweep list.txt --out results --ray auto": "network, and a Ray cluster",
}
RUN = [command for command in FROM if command not in {*ELSEWHERE, *NEEDS}]


def test_what_is_not_run_is_still_there_and_counted() -> None:
    assert set(NEEDS) <= set(FROM)
    assert len(RUN) > 20
    for command, place in ELSEWHERE.items():
        text = (ROOT / place).read_text("utf-8")
        parts = re.findall(r"--[\w-]+|(?<=deinplace )\w+|(?<=make )\w+", command) or [command]
        assert command in text or all(part in text for part in parts), command


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
    cell = {"cell_type": "code", "metadata": {}, "source": FAILING, "outputs": [], "execution_count": None, "id": "a"}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    (tmp_path / "train.ipynb").write_text(json.dumps(book))
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
