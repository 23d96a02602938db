"""The rungs of the ladder in their order, and how a harness becomes a driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deinplace.analysis.source import Source
from deinplace.verify.drivers import Driver
from deinplace.verify.harness.contain import Chamber
from deinplace.verify.harness.model import Harness, Target
from deinplace.verify.harness.programs import programs

if TYPE_CHECKING:
    from deinplace.verify.harness.ladder import Asked

_PROBE = "import importlib.util as u, sys; sys.exit(0 if all(u.find_spec(n) for n in sys.argv[1:]) else 1)"


@dataclass(frozen=True)
class Rung:
    """One source of harnesses; `needs_targets` where it is asked only for functions that lower rungs do not reach."""

    name: str
    harnesses: Callable[[Sequence[Target]], Sequence[Harness]]
    needs_targets: bool = True


def all_rungs(sources: Mapping[str, Source], cwd: str) -> tuple[Rung, ...]:
    """The ladder."""
    return (Rung("program", lambda _: programs(sources, cwd), needs_targets=False),)


def interpreter(asked: str | None) -> str | None:
    """The Python that runs harnesses: the one that was asked for, else the first that has torch."""
    found = [asked] if asked is not None else [shutil.which("python"), shutil.which("python3"), sys.executable]
    return next((path for path in dict.fromkeys(found) if path and has(path, "torch")), None)


def has(python: str, *modules: str) -> bool:
    """Whether an interpreter could import some top-level modules."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *modules], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def attempts(harness: Harness) -> Iterator[Harness]:
    """A program from the folder that a user would start it in, then from its own."""
    yield harness
    if harness.rung == "program" and "-m" not in harness.command:
        path = harness.exercises[0][0]
        own = str(Path(path).parent)
        if own != harness.root:
            yield replace(harness, root=own, command=("python", os.path.basename(path)))  # noqa: PTH119


def driver(harness: Harness, lab: Chamber, asked: Asked, max_steps: int | None) -> Driver:
    """A harness as a driver; a text is put into the laboratory's folder first."""
    command = harness.command
    if harness.text:
        path = lab.folder / "test_harness.py"
        path.write_text(harness.text, "utf-8")
        command = ("python", str(path))
    return Driver(command, harness.root, asked.python, asked.timeout, max_steps, harness.title, asked.paranoid)
