"""An in-place method that keeps its own result: the functional twin keeps one of its own, which is copied back."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from deinplace.analysis.source import Source
from deinplace.model import Edit, Rewrite
from deinplace.rewrite.expression import pure
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone
from deinplace.rules._twins import is_write, renames


def statement_write(source: Source, node: ast.expr) -> ast.Call | None:
    """The in-place method call that is a statement and that `node` is, or is the receiver of."""
    attribute = source.parents.get(node)
    outer = source.parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
    for call in (node, outer):
        if isinstance(call, ast.Call) and is_write(source, call) and isinstance(source.parents.get(call), ast.Expr):
            return call
    return None


def written_back(rule: str, source: Source, call: ast.Call) -> Iterator[Rewrite]:
    """`x[:, 1:].sigmoid_()` as `x[:, 1:] = x[:, 1:].sigmoid()`, `x.exp_()` as `x.copy_(x.exp())`: a copy saves nothing.

    All names of the tensor see the same values as before, which a clone of the receiver would take from them.
    """
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if receiver is None or not pure(receiver):
        return
    try:
        edits = renames(source, call, False)
    except Refused:
        return
    text = source.segment(receiver)
    if "\n" in text or "\r" in text:
        return
    start, end = source.bounds(call)
    if isinstance(receiver, ast.Subscript) and _basic(receiver.slice):
        wrapped = [Edit(source.path, start, start, f"{text} = "), *edits]
    else:
        wrapped = [Edit(source.path, start, start, f"{text}.copy_("), *edits, Edit(source.path, end, end, ")")]
    yield _clone.rewrite(rule, source, f"compute anew what is written to `{text}`", wrapped, call)


def _basic(index: ast.expr) -> bool:
    """True for an index that takes a view, whatever its names hold: `...`, numbers and slices."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        value = part.operand if isinstance(part, ast.UnaryOp) else part
        number = isinstance(value, ast.Constant) and not isinstance(value.value, bool | str | bytes)
        if not (number or isinstance(part, ast.Slice)):
            return False
    return True
