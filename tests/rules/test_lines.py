"""Statements that `;` puts in a row are deleted, moved and added to as those on lines of their own are."""

from __future__ import annotations

import ast

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Edit
from deinplace.rewrite.apply import apply
from deinplace.rules import _lines

ROW = "for x in xs:\n    a(); b(); c()  # why\nd()\n"


def source_of(text: str) -> Source:
    return Source.parse("/tree/program.py", text.encode())


def named(source: Source, name: str) -> ast.stmt:
    """The statement `name()`."""
    return next(
        n for n in ast.walk(source.tree) if isinstance(n, ast.Expr) and ast.unparse(n.value).startswith(f"{name}(")
    )


def done(source: Source, edit: Edit | None) -> str:
    assert edit is not None
    after = apply(source, [edit])
    ast.parse(after)
    return after


@pytest.mark.parametrize(
    ("name", "wanted"), [("a", "b(); c()  # why"), ("b", "a(); c()  # why"), ("c", "a(); b()  # why")]
)
def test_deleted_from_a_row(name: str, wanted: str) -> None:
    source = source_of(ROW)
    assert done(source, _lines.delete(source, named(source, name))) == f"for x in xs:\n    {wanted}\nd()\n"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("a", "a(); h = h.detach(); b(); c()  # why"), ("c", "a(); b(); c(); h = h.detach()  # why")],
)
def test_put_behind_one_of_a_row(name: str, wanted: str) -> None:
    source = source_of(ROW)
    edit = _lines.insert_after(source, named(source, name), ["h = h.detach()"])
    assert done(source, edit) == f"for x in xs:\n    {wanted}\nd()\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_block_splits_a_row(end: str) -> None:
    source = source_of(ROW.replace("\n", end))
    edit = _lines.insert_after(source, named(source, "a"), ["if h is not None:", "    h = h.detach()"])
    wanted = "for x in xs:\n    a()\n    if h is not None:\n        h = h.detach()\n    b(); c()  # why\nd()\n"
    assert done(source, edit) == wanted.replace("\n", end)


def test_put_before_one_of_a_row() -> None:
    source = source_of(ROW)
    first, last = (_lines.insert_before(source, named(source, n), ["h = 0"]) for n in "ac")
    assert done(source, first) == ROW.replace("    a()", "    h = 0\n    a()")
    assert done(source, last) == ROW.replace("c()", "h = 0; c()")


def test_a_row_behind_its_header() -> None:
    source = source_of("if x: a(); b()\n")
    assert done(source, _lines.delete(source, named(source, "a"))) == "if x: b()\n"
    assert done(source, _lines.insert_after(source, named(source, "b"), ["c()"])) == "if x: a(); b(); c()\n"
    assert _lines.insert_after(source, named(source, "b"), ["if y:", "    c()"]) is None
    assert _lines.insert_before(source, named(source, "a"), ["if y:", "    c()"]) is None


def test_moved_out_of_a_row() -> None:
    source = source_of(ROW)
    assert _lines.code_lines(source, named(source, "b")) == ["b()"]
    edit = _lines.insert_after(source, named(source, "d"), ["b()"])
    assert done(source, edit) == ROW + "b()\n"


def test_a_comment_is_no_part_of_a_row() -> None:
    source = source_of(ROW)
    assert _lines.insert_before(source, named(source, "c"), ["b()  # told", "e()"]) is None
