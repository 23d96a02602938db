"""Tells IPython's own syntax from Python's in a cell, and puts stand-ins where it is no Python.

The syntax is that of IPython's input transformer: magics (`%`, `%%`), shell lines (`!`), help (`?`), and both as values
that are assigned. What is Python inside of them stays: the body of `%%time`, the statement behind `%time`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from deinplace.probe import cells

PYTHON_BODIES = frozenset({"time", "capture", "prun", "memit", "snakeviz", "pyinstrument", "heat", "scalene"})
"""Cell magics whose body runs once, as Python, in the notebook's namespace."""
_CELL_MAGIC = re.compile(r"\s*%%(\w*)[^\n]*")
_ESCAPED = re.compile(r"[ \t]*(?:%{1,2}[A-Za-z_?]|!|\?{1,2}\S|[,;/][A-Za-z_])")
_TIME = re.compile(r"([ \t]*)%time( +)(?=\S)")
_ASSIGNED = re.compile(r"=[ \t]*(?P<magic>(?:%(?=[A-Za-z_])|!(?!=)).*)$", re.DOTALL)


@dataclass(frozen=True)
class Masked:
    """A cell's text as Python. `python` is False where all of it belongs to a magic such as `%%bash`."""

    text: str
    python: bool = True


def mask(source: str) -> Masked:
    """A cell with stand-ins for what is no Python; as many lines, and the same columns where it is Python."""
    head = _CELL_MAGIC.match(source)
    if head is None:
        return Masked(_masked_lines(source))
    if head[1] not in PYTHON_BODIES:
        return Masked(cells.hold(source), python=False)
    return Masked(cells.hold(head[0]) + _masked_lines(source[head.end() :]))


def _masked_lines(source: str) -> str:
    return "".join(_masked(line) for line in logical_lines(source))


def _masked(line: str) -> str:
    """One logical line."""
    body = line.rstrip("\r\n")
    end = line[len(body) :]
    if (timed := _TIME.match(body)) and _simple(body[timed.end() :]):
        return f"{timed[1]}{cells.timed(len(timed[2]))}{body[timed.end() :]}{end}"
    indent = body[: len(body) - len(body.lstrip())]
    if _ESCAPED.match(body) or _asks(body):
        return f"{indent}{cells.hold(body[len(indent) :])}{end}"
    at = next((start for start in _assignments(body) if _ASSIGNED.match(body, start)), None)
    if at is None:
        return line
    found = _ASSIGNED.match(body, at)
    assert found is not None
    start = found.start("magic")
    return f"{body[:start]}{cells.hold_value(body[start:])}{end}"


def _simple(text: str) -> bool:
    """True for one simple statement, such as may follow a semicolon."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    blocks = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.While | ast.If | ast.With | ast.Try
    return bool(tree.body) and not any(isinstance(n, blocks | ast.AsyncFor | ast.AsyncWith) for n in tree.body)


def _asks(body: str) -> bool:
    """True for `name?`: a question mark outside strings and comments ends the line, and Python has none."""
    return body.rstrip().endswith("?") and any(char == "?" for _, char in _code(body))


def _assignments(body: str) -> Iterator[int]:
    """Offsets of the `=` signs outside brackets and strings."""
    depth = 0
    for offset, char in _code(body):
        depth += (char in "([{") - (char in ")]}")
        if char == "=" and depth == 0 and body[offset - 1 : offset] not in "=!<>" and body[offset + 1 :][:1] != "=":
            yield offset


def logical_lines(source: str) -> Iterator[str]:
    """The source cut where a logical line ends; lines of IPython's, which no bracket or string continues, by `\\`."""
    start = offset = 0
    while start < len(source):
        escaped = _ESCAPED.match(source, start) is not None
        offset = _line_end(source, start) if escaped else _logical_end(source, start)
        yield source[start:offset]
        start = offset


def _line_end(source: str, start: int) -> int:
    """Where a line ends that goes on behind a backslash."""
    while True:
        found = re.compile(r"\r\n|\r|\n").search(source, start)
        if found is None:
            return len(source)
        if not source[start : found.start()].endswith("\\"):
            return found.end()
        start = found.end()


def _logical_end(source: str, start: int) -> int:
    depth = 0
    for offset, char in _code(source, start):
        depth += (char in "([{") - (char in ")]}")
        if char in "\r\n" and depth <= 0 and not _continued(source, offset):
            return offset + (2 if source[offset : offset + 2] == "\r\n" else 1)
    return len(source)


def _continued(source: str, offset: int) -> bool:
    line = source[source.rfind("\n", 0, offset) + 1 : offset]
    return line.endswith("\\") and "#" not in line


def _code(source: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Offsets and characters of code: strings are stepped over, of comments only the line end is left."""
    offset = start
    while offset < len(source):
        char = source[offset]
        if char in "\"'":
            offset = _string_end(source, offset)
        elif char == "#":
            found = re.compile(r"[\r\n]").search(source, offset)
            offset = found.start() if found else len(source)
        else:
            yield offset, char
            offset += 1


def _string_end(source: str, start: int) -> int:
    """Offset behind the string that opens at `start`; one that nothing closes ends with its line."""
    quote = source[start : start + 3] if source[start : start + 3] in ('"""', "'''") else source[start]
    offset = start + len(quote)
    while offset < len(source):
        if source[offset] == "\\":
            offset += 2
        elif source.startswith(quote, offset):
            return offset + len(quote)
        elif len(quote) == 1 and source[offset] in "\r\n":
            return offset
        else:
            offset += 1
    return len(source)
