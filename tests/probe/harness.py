"""Runs a snippet in a child process under the probe, as a driver does."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deinplace.verify.drivers import Driver, Laboratory, Run, Settings

WATCH = Settings(watch=True)


@contextmanager
def watched(
    folder: Path,
    text: str,
    settings: Settings = WATCH,
    command: tuple[str, ...] | None = None,
    max_steps: int | None = None,
) -> Iterator[Run]:
    """A finished run of `text` as program.py; it must have ended without an error."""
    (folder / "program.py").write_text(textwrap.dedent(text), encoding="utf-8")
    driver = Driver(command or (sys.executable, "program.py"), str(folder), timeout=120, max_steps=max_steps)
    with Laboratory() as lab:
        yield lab.run(driver, settings)


def line_of(folder: Path, mark: str) -> int:
    """The line that carries a comment `# mark`."""
    lines = (folder / "program.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
