"""Small repositories to sweep over, and the real command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Result = subprocess.CompletedProcess[str]
FAULTY = """import torch


def f(x: torch.Tensor) -> torch.Tensor:
    y = torch.sigmoid(x)
    y += 1
    return y


if __name__ == "__main__":
    f(torch.ones(2, requires_grad=True)).sum().backward()
"""
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


@pytest.fixture
def repositories(tmp_path: Path) -> Callable[[int], list[Path]]:
    """Makes so many folders, each with a file that one rewrite mends."""

    def make(count: int) -> list[Path]:
        folders = [tmp_path / f"repo{number}" for number in range(count)]
        for folder in folders:
            folder.mkdir()
            (folder / "model.py").write_text(FAULTY)
        return folders

    return make


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[str]]:
    """The command line of a sweep over some lines."""

    def make(lines: list[Any], *flags: str) -> list[str]:
        listing = tmp_path / "list.txt"
        listing.write_text("".join(f"{line}\n" for line in lines))
        return [sys.executable, "-m", "deinplace", "sweep", str(listing), "--out", str(tmp_path / "out"), *flags]

    return make


@pytest.fixture
def sweep(tmp_path: Path, command: Callable[..., list[str]]) -> Callable[..., Result]:
    """Runs a sweep over some lines."""

    def run(lines: list[Any], *flags: str) -> Result:
        return subprocess.run(
            command(lines, *flags), cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=120, check=False
        )

    return run
