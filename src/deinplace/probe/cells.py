"""A notebook as one module: lines that mark where cells begin, and stand-ins for what is IPython and no Python.

The module's text carries all that is needed to find the way back, so that it may be edited, compiled and reported on
like any other: every line of a cell is one line of the module, and columns stay where they were.
"""

from __future__ import annotations

import ast
import bisect
import re
from typing import NamedTuple

HOLD = "<ipython> "
"""What the text of a stand-in begins with; the rest is the original."""
CALL = "__deinplace_magic__"
"""Name of the function that stands where the value of a magic is used."""
MARKER = re.compile(r"^(?:if True:  )?# %% deinplace cell (\d+)( broken)?((?: \[[\w-]+\])*)$", re.MULTILINE)
_LINE_END = re.compile(r"\r\n|\r|\n")
_STRING = r"'((?:[^'\\\n\r]|\\.)*)'"
_STATEMENT = re.compile(rf"\({_STRING}((?:\n)*)\)")
_VALUE = re.compile(rf"{CALL}\({_STRING}(?:\n)*\)")
_TIMED = re.compile(r"^([ \t]*)0( *);", re.MULTILINE)


class Cell(NamedTuple):
    """A code cell: its 1-based number among all cells, its tags, and the module's lines that hold it."""

    number: int
    tags: tuple[str, ...]
    broken: bool
    first: int
    """1-based line of the module at which the cell's first line stands; its marker is the line before."""
    last: int
    """Its last line."""


def marker(number: int, tags: tuple[str, ...] = (), broken: bool = False, indented: bool = False) -> str:
    """The line above a cell. Cells that are indented as a whole, as IPython allows, become a block."""
    words = "".join(f" [{tag}]" for tag in tags if re.fullmatch(r"[\w-]+", tag))
    return f"{'if True:  ' if indented else ''}# %% deinplace cell {number}{' broken' if broken else ''}{words}"


def is_module(text: str) -> bool:
    """True for the text of a notebook's module."""
    return MARKER.match(text) is not None


def cells(text: str) -> list[Cell]:
    """The code cells of a module, in order."""
    ends = [m.end() for m in _LINE_END.finditer(text)]
    found = list(MARKER.finditer(text))
    lines = [bisect.bisect_right(ends, m.start()) + 1 for m in found]
    total = len(ends)
    out = []
    for index, match in enumerate(found):
        last = lines[index + 1] - 1 if index + 1 < len(found) else total
        tags = tuple(re.findall(r"\[([\w-]+)\]", match[3]))
        out.append(Cell(int(match[1]), tags, bool(match[2]), lines[index] + 1, last))
    return out


def cell_at(found: list[Cell], line: int) -> Cell | None:
    """The cell that holds a line of the module; the marker counts as the line after it."""
    index = bisect.bisect_right([c.first - 1 for c in found], line) - 1
    return found[index] if index >= 0 else None


def texts(text: str) -> dict[int, str]:
    """What each cell's source says, by its number: the original, where nothing was edited."""
    found = list(MARKER.finditer(text))
    out = {}
    for index, match in enumerate(found):
        start = match.end() + 1
        end = found[index + 1].start() if index + 1 < len(found) else len(text)
        out[int(match[1])] = restored(text[start:end].removesuffix("\n"))
    return out


def hold(original: str) -> str:
    """A statement of as many lines that does nothing and says what stood there."""
    return f"({_quoted(original)})"


def hold_value(original: str) -> str:
    """An expression of as many lines in the place of a magic whose value is used."""
    return f"{CALL}({_quoted(original)})"


def timed(spaces: int) -> str:
    """What stands, as wide, in the place of `%time` and so many spaces before a statement."""
    return "0" + " " * (3 + spaces) + ";"


def restored(text: str) -> str:
    """Text of a module with the originals in the place of their stand-ins."""
    text = _VALUE.sub(_original, text)
    text = _STATEMENT.sub(_original, text)
    return _TIMED.sub(lambda m: f"{m[1]}%time{' ' * (len(m[2]) - 3)}" if len(m[2]) > 3 else m[0], text)


def held(value: object) -> str | None:
    """The original that a string constant stands for, or None where it is a string of the program."""
    return value[len(HOLD) :] if isinstance(value, str) and value.startswith(HOLD) else None


def _quoted(original: str) -> str:
    """A string that says what stood there, and behind it as many line ends."""
    body = original.replace("\\", "\\\\").replace("'", "\\'")
    for char, escape in (("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0")):
        body = body.replace(char, escape)
    return f"'{HOLD}{body}'" + "\n" * len(_LINE_END.findall(original))


def _original(match: re.Match[str]) -> str:
    text = held(ast.literal_eval(f"'{match[1]}'"))
    return match[0] if text is None else text
