"""One simple statement as a LibCST tree, and the smallest edit that turns it into another."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from deinplace.analysis.source import Source
from deinplace.model import Edit

if TYPE_CHECKING:
    import libcst as cst

    Transform = Callable[[cst.BaseSmallStatement], cst.BaseSmallStatement]


class Refused(Exception):  # noqa: N818 - it reads as a state: the edit is refused
    """A statement that cannot be rewritten: the message says why."""


def small_statement(source: Source, node: ast.stmt) -> cst.BaseSmallStatement:
    """Parse one simple statement, and nothing else of the file, with LibCST.

    Raises:
        Refused: LibCST cannot parse it, or does not print it as it stands.
    """
    return _parse(source.segment(node))[1]


@cache
def _parse(text: str) -> tuple[cst.Module, cst.BaseSmallStatement]:
    import libcst as cst  # takes longer than a look at a small project

    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise Refused(f"LibCST cannot parse the statement: {error.message}") from None
    if module.code != text:
        raise Refused("LibCST does not print the statement as it stands")
    line = module.body[0] if len(module.body) == 1 else None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise Refused("not a simple statement")
    return module, line.body[0]


def transform(source: Source, node: ast.stmt, change: Transform, expected: ast.stmt | None = None) -> Edit:
    """The edit that replaces a simple statement by `change` of its tree.

    Raises:
        Refused: LibCST refuses the statement, or the result does not parse as `expected`.
    """
    module, small = _parse(source.segment(node))
    text = module.code_for_node(change(small))
    if expected is not None and not means(text, expected):
        raise Refused("the new statement does not mean what it should")
    start, end = source.bounds(node)
    return trimmed(source, start, end, text)


def trimmed(source: Source, start: int, end: int, new: str) -> Edit:
    """An edit of `start:end` to `new`, without the characters that both ends share."""
    old = source.text[start:end]
    limit = min(len(old), len(new))
    head = next((i for i in range(limit) if old[i] != new[i]), limit)
    tail = next((i for i in range(limit - head) if old[-1 - i] != new[-1 - i]), limit - head)
    return Edit(source.path, start + head, end - tail, new[head : len(new) - tail])


def dump(node: ast.AST) -> str:
    """A node's meaning: its tree without positions and without load and store marks."""
    text = ast.dump(node)
    return text.replace(", ctx=Store()", "").replace(", ctx=Load()", "").replace(", ctx=Del()", "")


def means(text: str, expected: ast.stmt) -> bool:
    """True where `text` parses as the one statement `expected`."""
    try:
        body = ast.parse(f"async def _():\n {text}").body[0].body  # type: ignore[attr-defined]
    except SyntaxError:
        return False
    return len(body) == 1 and dump(body[0]) == dump(expected)
