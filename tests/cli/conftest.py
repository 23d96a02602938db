"""The real command in a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Result = subprocess.CompletedProcess[str]
Cli = Callable[..., Result]


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR", "VIRTUAL_ENV")}
    return {
        **keep,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
        "DEINPLACE_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "PATH": str(Path(sys.executable).parent) + os.pathsep + keep["PATH"],
    }


@pytest.fixture
def cli(tmp_path: Path, environment: dict[str, str]) -> Cli:
    """Runs `deinplace` with some arguments in the test's own folder."""

    def run(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> Result:
        return subprocess.run(
            [sys.executable, "-m", "deinplace", *arguments], cwd=tmp_path, env={**environment, **(env or {})},
            capture_output=True, text=True, timeout=120, check=False, **options,
        )  # fmt: skip

    return run


@pytest.fixture
def written() -> dict[Path, str]:
    """What the test has put into which file."""
    return {}


@pytest.fixture
def write(tmp_path: Path, written: dict[Path, str]) -> Callable[[str, str], Path]:
    """Writes a file of the test's own folder."""

    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        written[path] = text
        return path

    return put


@pytest.fixture
def untouched(written: dict[Path, str]) -> Iterator[None]:
    """Checks in the end that every file holds what the test put into it."""
    yield
    assert {path: path.read_text() for path in written} == written
