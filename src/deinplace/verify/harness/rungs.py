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
from deinplace.verify.harness.examples import examples
from deinplace.verify.harness.model import Harness, Miss, Target
from deinplace.verify.harness.programs import as_module, programs
from deinplace.verify.harness.synthesise import harnesses
from deinplace.verify.harness.tests import tests

if TYPE_CHECKING:
    from deinplace.verify.harness.ladder import Asked

_PROBE = "import importlib.util as u, sys; sys.exit(0 if all(u.find_spec(n) for n in sys.argv[1:]) else 1)"


@dataclass(frozen=True)
class Rung:
    """One source of harnesses. `needs_targets` where it is asked only for functions that lower rungs do not reach."""

    name: str
    harnesses: Callable[[Sequence[Target], str], tuple[Sequence[Harness], Sequence[Miss]]]
    """Harnesses for some functions under an interpreter, and what would be one but for a reason."""
    needs_targets: bool = True


def all_rungs(sources: Mapping[str, Source], cwd: str, seconds: float) -> tuple[Rung, ...]:
    """The ladder; `seconds` is what one call may take that the last rung tries."""
    return (
        Rung("program", lambda _, __: (programs(sources, cwd), ()), needs_targets=False),
        Rung("tests", lambda wanted, python: _tests(sources, wanted, cwd, python)),
        Rung("example", lambda wanted, _: (examples(sources, wanted, cwd), ())),
        Rung("synthesis", lambda wanted, python: harnesses(sources, wanted, cwd, python, seconds)),
    )


def _tests(
    sources: Mapping[str, Source], wanted: Sequence[Target], cwd: str, python: str
) -> tuple[Sequence[Harness], Sequence[Miss]]:
    found = tests(sources, wanted, cwd)
    if found and not has(python, "pytest"):
        return (), [Miss(harness, f"{python} has no pytest") for harness in found]
    return found, ()


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
    """A program from the folder that a user would start it in, then from its own, then as a module of its package."""
    yield harness
    if harness.rung == "program" and "-m" not in harness.command:
        path = harness.exercises[0][0]
        own = str(Path(path).parent)
        if own != harness.root:
            yield replace(harness, root=own, command=("python", os.path.basename(path)))  # noqa: PTH119
        if Path(own, "__init__.py").exists():
            top, name = as_module(path)
            yield replace(harness, root=top, command=("python", "-m", name))


def driver(harness: Harness, lab: Chamber, asked: Asked, max_steps: int | None) -> Driver:
    """A harness as a driver; a text is put into the laboratory's folder first."""
    command = harness.command
    if harness.text:
        path = lab.folder / "test_harness.py"
        path.write_text(harness.text, "utf-8")
        command = ("python", str(path))
    return Driver(command, harness.root, asked.python, asked.timeout, max_steps, harness.title, asked.paranoid)
