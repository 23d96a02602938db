"""A new statement before or after another: its line, its indentation, its newline style."""

from __future__ import annotations

import ast
import re

from deinplace.analysis.source import Source
from deinplace.model import Edit
from deinplace.rewrite.statement import Refused

_BLANK = re.compile(r"[ \t\f]*")


def newline(source: Source, line: int = 1) -> str:
    """How lines end around `line`."""
    for number in (line, line - 1, 1):
        if 1 <= number <= len(source.line_starts):
            text = source.line(number)
            ending = text[len(text.rstrip("\r\n")) :]
            if ending:
                return ending
    return "\n"


def first_line(node: ast.stmt) -> int:
    """Line where a statement begins, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def start_of(source: Source, node: ast.stmt) -> int:
    """Offset where a statement begins, the `@` of its first decorator included."""
    line = first_line(node)
    if line == node.lineno and not getattr(node, "decorator_list", []):
        return source.bounds(node)[0]
    start = source.line_starts[line - 1]
    found = _BLANK.match(source.text, start)
    return found.end() if found else start


def indent_of(source: Source, node: ast.stmt) -> str | None:
    """The white space before a statement, or None where something else stands before it on its logical line."""
    line = first_line(node)
    start = source.line_starts[line - 1]
    indent = source.text[start : start_of(source, node)]
    if not _BLANK.fullmatch(indent):
        return None
    if line > 1 and source.line(line - 1).rstrip("\r\n").endswith("\\"):
        return None
    return indent


def insert_before(source: Source, node: ast.stmt, code: str) -> Edit:
    """An edit that puts the simple statement `code` before `node`.

    Raises:
        Refused: `node` is an `elif`, a docstring or a `from __future__` import.
    """
    at = start_of(source, node)
    if isinstance(node, ast.If) and source.text.startswith("elif", at):
        raise Refused("nothing can stand before an elif")
    if _must_be_first(source, node):
        raise Refused("nothing may stand before a docstring or a __future__ import")
    indent = indent_of(source, node)
    if indent is None:
        return Edit(source.path, at, at, f"{code}; ")
    return Edit(source.path, at, at, f"{code}{newline(source, first_line(node))}{indent}")


def insert_after(source: Source, node: ast.stmt, code: str) -> Edit:
    """An edit that puts the simple statement `code` after the simple statement `node`.

    Raises:
        Refused: `node` is a compound statement or leaves its block.
    """
    if hasattr(node, "body") or isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue | ast.Match):
        raise Refused("nothing can stand after this statement")
    _, end = source.bounds(node)
    line = node.end_lineno or node.lineno
    stop = source.line_starts[line - 1] + len(source.line(line).rstrip("\r\n"))
    rest = source.text[end:stop].strip()
    indent = indent_of(source, node)
    if indent is None or (rest and not rest.startswith("#")):
        return Edit(source.path, end, end, f"; {code}")
    return Edit(source.path, stop, stop, f"{newline(source, line)}{indent}{code}")


def _must_be_first(source: Source, node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return True
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        return False
    body = getattr(source.parents.get(node), "body", [])
    return bool(isinstance(body, list) and body and body[0] is node)
