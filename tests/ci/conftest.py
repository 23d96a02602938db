"""Git repositories of the test's own, and a git that heeds nobody's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import NET

ROOT = Path(__file__).parents[2]
Git = Callable[..., str]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A runner's environment: its own home, and the `deinplace` of the interpreter that runs the tests."""
    dropped = ("GIT_", "GITHUB_", "INPUT_", "DEINPLACE_", "FORCE_COLOR", "NO_COLOR", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    home = tmp_path / "home"
    home.mkdir()
    return {
        **kept,
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.invalid",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.invalid",
        "OMP_NUM_THREADS": "1",
        "PATH": str(Path(sys.executable).parent) + os.pathsep + kept["PATH"],
    }


@pytest.fixture
def git(environment: dict[str, str]) -> Git:
    """Runs git in a folder, and gives what it prints."""

    def run(folder: Path, *arguments: str) -> str:
        command = ["git", "-c", "init.defaultBranch=main", "-C", str(folder), *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout  # fmt: skip

    return run


@pytest.fixture
def project(tmp_path: Path, git: Git) -> Path:
    """A repository with one commit: a program that fails in backward, and a text file."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "net.py").write_text(NET)
    (folder / "notes.txt").write_text("x += 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder
