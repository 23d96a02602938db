"""Edits on whole statements and on call arguments, as plain text splices."""

from __future__ import annotations

import ast

from deinplace.analysis.source import Source
from deinplace.model import Edit

_BLOCKS = ("body", "orelse", "finalbody")
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Delete, ast.Pass, ast.Raise, ast.Assert)


def block_of(source: Source, statement: ast.stmt) -> tuple[list[ast.stmt], int] | None:
    """The list of statements that holds `statement`, and its index there."""
    parent = source.parents.get(statement)
    for name in _BLOCKS if parent is not None else ():
        block = getattr(parent, name, None)
        if isinstance(block, list):
            for index, item in enumerate(block):
                if item is statement:
                    return block, index
    return None


def newline(source: Source) -> str:
    """The file's line end."""
    return "\r\n" if "\r\n" in source.text else "\n"


def indent_of(source: Source, statement: ast.stmt) -> str:
    """White space in front of a statement that starts its line."""
    line = source.line(statement.lineno)
    return line[: len(line) - len(line.lstrip(" \t\f"))]


def lines_of(source: Source, first: ast.stmt, last: ast.stmt | None = None) -> tuple[int, int] | None:
    """Offsets of the whole lines that hold `first` to `last`, or None where they share a line with other code."""
    last = last or first
    begin = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
    end_line = last.end_lineno or last.lineno
    start = source.line_starts[begin - 1]
    stop = source.line_starts[end_line] if end_line < len(source.line_starts) else len(source.text)
    head, tail = source.bounds(first)[0], source.bounds(last)[1]
    rest = source.text[tail:stop].strip()
    if begin == first.lineno and source.text[start:head].strip():
        return None
    return (start, stop) if not rest or rest.startswith("#") else None


def row(source: Source, statement: ast.stmt) -> tuple[list[ast.stmt], int] | None:
    """The statements of its block that `;` puts into a row with `statement`, and its index there."""
    found = block_of(source, statement)
    if found is None:
        return None
    block, at = found
    first = last = at
    while first and block[first - 1].end_lineno == block[first].lineno:
        first -= 1
    while last + 1 < len(block) and block[last].end_lineno == block[last + 1].lineno:
        last += 1
    return block[first : last + 1], at - first


def delete(source: Source, statement: ast.stmt) -> Edit | None:
    """Take a statement out; the last one of its block leaves a `pass`."""
    lines, block, beside = lines_of(source, statement), block_of(source, statement), row(source, statement)
    if block is None or beside is None:
        return None
    start, end = source.bounds(statement)
    if len(block[0]) == 1:
        return Edit(source.path, start, end, "pass")
    if lines is not None:
        return Edit(source.path, *lines, "")
    others, at = beside
    if at:
        return Edit(source.path, source.bounds(others[at - 1])[1], end, "")
    return Edit(source.path, start, source.bounds(others[1])[0], "") if len(others) > 1 else None


def insert_after(source: Source, statement: ast.stmt, code: list[str]) -> Edit | None:
    """Put lines of code, without their indentation, behind a statement."""
    lines, beside = lines_of(source, statement), row(source, statement)
    if lines is None:
        if beside is None:
            return None
        at = source.bounds(statement)[1]
        if (joined := _in_a_row(code)) is not None:
            return Edit(source.path, at, at, f"; {joined}")
        head = source.bounds(beside[0][0])[0]
        if beside[1] + 1 == len(beside[0]) or source.text[source.text.rfind("\n", 0, head) + 1 : head].strip():
            return None
        text = "".join(f"{newline(source)}{indent_of(source, beside[0][0])}{line}" for line in [*code, ""])
        return Edit(source.path, at, source.bounds(beside[0][beside[1] + 1])[0], text)
    end = newline(source)
    text = "".join(f"{indent_of(source, statement)}{line}{end}" if line else end for line in code)
    if lines[1] == len(source.text) and not source.text.endswith(("\n", "\r")):
        text = end + text[: -len(end)]
    return Edit(source.path, lines[1], lines[1], text)


def insert_before(source: Source, statement: ast.stmt, code: list[str]) -> Edit | None:
    """Put lines of code, without their indentation, in front of a statement."""
    head = source.bounds(statement)[0]
    start = source.line_starts[
        min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]) - 1
    ]
    if not getattr(statement, "decorator_list", []) and source.text[start:head].strip():
        joined = _in_a_row(code) if isinstance(statement, _SIMPLE) else None
        return Edit(source.path, head, head, f"{joined}; ") if joined is not None else None
    text = "".join(f"{indent_of(source, statement)}{line}{newline(source)}" for line in code)
    return Edit(source.path, start, start, text)


def _in_a_row(code: list[str]) -> str | None:
    """Lines of code as one line; None where one of them is more than a simple statement."""
    joined = "; ".join(code)
    try:
        tree, wanted = ast.parse(joined), ast.parse("\n".join(code))
    except SyntaxError:
        return None
    same = ast.dump(tree) == ast.dump(wanted) and all(isinstance(s, _SIMPLE) for s in tree.body)
    return joined if same and "\n" not in joined else None


def code_lines(source: Source, statement: ast.stmt) -> list[str] | None:
    """A statement's lines without its indentation, comments behind it included, ready for `insert_after`."""
    lines = lines_of(source, statement)
    if has_multiline_string(statement):
        return None
    if lines is None:
        return [source.segment(statement)] if statement.lineno == statement.end_lineno else None
    indent = indent_of(source, statement)
    return [line.removeprefix(indent) for line in source.text[slice(*lines)].splitlines()]


def has_multiline_string(node: ast.AST) -> bool:
    """True where a string runs over a line end, so that its lines cannot be indented."""
    strings = (n for n in ast.walk(node) if isinstance(n, ast.JoinedStr | ast.Constant))
    return any(n.end_lineno != n.lineno for n in strings if not isinstance(getattr(n, "value", ""), int | float))


def add_keyword(source: Source, call: ast.Call, keyword: str) -> Edit:
    """Add `name=value` as the last argument of a call."""
    close = source.bounds(call)[1] - 1
    arguments: list[ast.AST] = [*call.args, *call.keywords]
    if not arguments:
        return Edit(source.path, close, close, keyword)
    if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.GeneratorExp):
        start, end = source.bounds(call.args[0])
        inner = source.text[start:end]
        wrapped = inner if end <= close else f"({inner[1:-1]})"
        return Edit(source.path, start, min(end, close + 1), f"{wrapped}, {keyword}" + (")" if end > close else ""))
    last = max(source.bounds(a)[1] for a in arguments)
    comma = source.text.find(",", last, close)
    if comma >= 0 and "#" not in source.text[last:comma]:
        return Edit(source.path, comma + 1, comma + 1, f" {keyword},")
    return Edit(source.path, last, last, f", {keyword}")


def remove_keyword(source: Source, call: ast.Call, name: str) -> Edit | None:
    """Take the keyword argument `name` out of a call."""
    found = next((k for k in call.keywords if k.arg == name), None)
    if found is None:
        return None
    start, end = source.bounds(found)
    spans = sorted(source.bounds(a) for a in [*call.args, *call.keywords])
    at = spans.index((start, end))
    if at:
        return Edit(source.path, spans[at - 1][1], end, "")
    if len(spans) > 1:
        return Edit(source.path, start, spans[1][0], "")
    return Edit(source.path, start, source.bounds(call)[1] - 1, "")
