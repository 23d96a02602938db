"""A statement before or after another lands on its own line, with the file's indentation and line ends."""

from __future__ import annotations

import ast

import pytest

from deinplace.analysis.source import Source
from deinplace.rewrite.apply import apply, check
from deinplace.rewrite.insert import insert_after, insert_before
from deinplace.rewrite.statement import Refused

BEFORE = [
    ("top", "x += 1\n", "N\nx += 1\n"),
    ("no-final-newline", "x += 1", "N\nx += 1"),
    ("crlf", "a = 1\r\nx += 1\r\n", "a = 1\r\nN\r\nx += 1\r\n"),
    ("tabs", "if a:\n\tx += 1\n", "if a:\n\tN\n\tx += 1\n"),
    ("comment-above-stays", "# why\nx += 1  # here\n", "# why\nN\nx += 1  # here\n"),
    ("after-semicolon", "a = 1; x += 1\n", "a = 1; N; x += 1\n"),
    ("one-line-suite", "if a: x += 1\n", "if a: N; x += 1\n"),
    ("one-line-suite-continued", "if a: \\\n    x += 1\n", "if a: \\\n    N; x += 1\n"),
    ("else", "if a:\n    b\nelse:\n    x += 1\n", "if a:\n    b\nelse:\n    N\n    x += 1\n"),
    ("match", "match a:\n    case 1:\n        x += 1\n", "match a:\n    case 1:\n        N\n        x += 1\n"),
    ("async", "async def f(x):\n    x += 1\n", "async def f(x):\n    N\n    x += 1\n"),
    ("after-docstring", 'def f(x):\n    """Doc."""\n    x += 1\n', 'def f(x):\n    """Doc."""\n    N\n    x += 1\n'),
    ("form-feed", "a = 1\n\x0cx += 1\n", "a = 1\n\x0cN\n\x0cx += 1\n"),
    ("non-ascii", "s = 'ü'; x += 1\n", "s = 'ü'; N; x += 1\n"),
]


def parse(text: str) -> Source:
    return Source.parse("/tree/a.py", text.encode())


def first(source: Source, kind: type[ast.stmt]) -> ast.stmt:
    return next(n for n in ast.walk(source.tree) if isinstance(n, kind))


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in BEFORE], ids=[c[0] for c in BEFORE])
def test_before(text: str, expected: str) -> None:
    source = parse(text)
    edit = insert_before(source, first(source, ast.AugAssign), "N")
    assert apply(source, [edit]) == expected
    check(source, expected, [edit])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@a\n@b\ndef f():\n    pass\n", "N\n@a\n@b\ndef f():\n    pass\n"),
        ("class C:\n    @a\n    def f():\n        pass\n", "class C:\n    N\n    @a\n    def f():\n        pass\n"),
    ],
)
def test_before_decorators(text: str, expected: str) -> None:
    source = parse(text)
    assert apply(source, [insert_before(source, first(source, ast.FunctionDef), "N")]) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('"""Doc."""\nx = 1\n', ast.Expr),
        ("from __future__ import annotations\n", ast.ImportFrom),
        ('def f():\n    """Doc."""\n', ast.Expr),
    ],
    ids=["docstring", "future", "function-docstring"],
)
def test_nothing_before_what_must_be_first(text: str, kind: type[ast.stmt]) -> None:
    source = parse(text)
    with pytest.raises(Refused):
        insert_before(source, first(source, kind), "N")


def test_nothing_before_an_elif() -> None:
    source = parse("if a:\n    b\nelif c:\n    d\n")
    outer = source.tree.body[0]
    assert isinstance(outer, ast.If)
    with pytest.raises(Refused):
        insert_before(source, outer.orelse[0], "N")


AFTER = [
    ("top", "x = 1\n", "x = 1\nN\n"),
    ("no-final-newline", "x = 1", "x = 1\nN"),
    ("comment-stays", "x = 1  # why\ny\n", "x = 1  # why\nN\ny\n"),
    ("crlf", "x = 1\r\n", "x = 1\r\nN\r\n"),
    ("before-semicolon", "x = 1; y\n", "x = 1; N; y\n"),
    ("one-line-suite", "if a: x = 1\n", "if a: x = 1; N\n"),
    ("several-lines", "if a:\n\tx = f(\n\t\t1,\n\t)\n", "if a:\n\tx = f(\n\t\t1,\n\t)\n\tN\n"),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in AFTER], ids=[c[0] for c in AFTER])
def test_after(text: str, expected: str) -> None:
    source = parse(text)
    edit = insert_after(source, first(source, ast.Assign), "N")
    assert apply(source, [edit]) == expected
    check(source, expected, [edit])
