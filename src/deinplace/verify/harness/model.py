"""What a harness is: code that exercises the user's functions, found in the project or made up for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rung = Literal["program", "tests", "example", "construction", "synthesis"]
"""Where a harness comes from; the ladder asks in this order."""
Target = tuple[str, str]
"""A function: absolute path of its file, and its qualified name; an empty name means the whole file."""


@dataclass(frozen=True)
class Harness:
    """A driver for some of the user's functions.

    It is either `command` (words, `python` first: a program or a test run of the project) or `text`: a module of plain
    source which a user can keep as a test. Such a text defines functions `test_*` without arguments, and calls them
    where it is run as a script (`if __name__ == "__main__":`). `root` stands first on `sys.path` and is the working
    folder.
    """

    rung: Rung
    title: str
    """How reports call it, such as `train.py` or `UNet(3, 2)`."""
    root: str
    """Absolute path of the folder that its imports start from."""
    exercises: tuple[Target, ...] = ()
    text: str = ""
    command: tuple[str, ...] = ()
    parts: tuple[Harness, ...] = ()
    """What to run where the whole is of no use: one part that fails need not cost the others."""


@dataclass(frozen=True)
class Miss:
    """A harness that is of no use, and the one reason why."""

    harness: Harness
    reason: str
