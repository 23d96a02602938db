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
    "deinplace fix train.ipynb --diff": "tests/notebooks/test_reports.py",
    "deinplace fix --diff": "tests/cli/test_conventions.py",
    'deinplace audit . --run "python train.py"': "tests/cli/test_audit.py",
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


def fill(folder: Path, command: str) -> None:
    """Put what a command names into a folder, and nothing else: `fix` by itself runs whatever it finds."""
    (folder / "train.py").write_text(FAILING)
    if "pkg" in command:
        (folder / "pkg").mkdir()
        (folder / "pkg" / "train.py").write_text(FAILING)
        (folder / "pkg" / "__init__.py").write_text("")
    if "tests/" in command:
        (folder / "tests").mkdir()
        test = "import runpy\n\n\ndef test_it():\n    runpy.run_path('train.py')\n"
        (folder / "tests" / "test_train.py").write_text(test)
    if "ipynb" in command:
        cell = {
            "cell_type": "code",
            "metadata": {},
            "source": FAILING,
            "outputs": [],
            "execution_count": None,
            "id": "a",
        }
        book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
        (folder / "train.ipynb").write_text(json.dumps(book))
    if "--baseline" in command:
        (folder / "deinplace-baseline.json").write_text('{"baseline_version": 1, "findings": []}')


@pytest.mark.parametrize("command", RUN)
def test_a_command_does_something_sensible(command: str, tmp_path: Path) -> None:
    fill(tmp_path, command)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    text = FAILING if command.endswith(" -") or " - " in command else None
    result = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, input=text, timeout=300,
        check=False,
    )  # fmt: skip
    assert result.returncode in (0, 1), result.stderr
    assert "deinplace: " not in result.stderr
    if command.startswith("deinplace"):
        assert result.stdout or result.stderr or ">" in command or "--add-ignore" in command
