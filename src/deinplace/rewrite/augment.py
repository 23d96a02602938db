"""`x += r` as `x = x + r`: precedence, comments and line breaks kept, the target evaluated once."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from deinplace.analysis.source import Source
from deinplace.model import Edit
from deinplace.rewrite.expression import fresh_name, pure
from deinplace.rewrite.insert import insert_before
from deinplace.rewrite.statement import Refused, small_statement, transform

PAUSES = (ast.Await, ast.Yield, ast.YieldFrom)
"""Expressions during which other code may run between reading a target and writing it."""


def assignment(source: Source, node: ast.AugAssign, others: Sequence[str] = ()) -> list[Edit]:
    """Edits that make `node` an out-of-place assignment, chained to the names `others`.

    Raises:
        Refused: the right side is a bare tuple, or the statement awaits or yields with a target others can see.
    """
    if isinstance(node.value, ast.Tuple | ast.List | ast.Starred | ast.Dict | ast.JoinedStr):
        raise Refused("the right side is not a tensor")
    if any(isinstance(n, PAUSES) for n in ast.walk(node.value)) and not isinstance(node.target, ast.Name):
        raise Refused("other code may run between reading the target and writing it")
    bindings, target = _once(source, node.target)
    edit = _assign(source, node, target, others)
    return [*(insert_before(source, node, line) for line in bindings), edit]


def _assign(source: Source, node: ast.AugAssign, target: str, others: Sequence[str]) -> Edit:
    operator = type(small_statement(source, node).operator)  # type: ignore[attr-defined]
    binary = getattr(cst, operator.__name__.removesuffix("Assign"))
    left = cst.parse_expression(target)
    names = [ast.Name(other, ast.Store()) for other in others]
    parsed = ast.parse(target, mode="eval").body
    expected = ast.Assign([parsed, *names], ast.BinOp(parsed, node.op, node.value))
    reason: Refused | None = None
    for wrapped in (False, True):

        def change(small: cst.BaseSmallStatement, wrapped: bool = wrapped) -> cst.BaseSmallStatement:
            assert isinstance(small, cst.AugAssign)
            right = small.value
            if wrapped:
                right = right.with_changes(lpar=[cst.LeftParen(), *right.lpar], rpar=[*right.rpar, cst.RightParen()])
            before, after = small.operator.whitespace_before, small.operator.whitespace_after
            around = {"whitespace_before": cst.SimpleWhitespace(" "), "whitespace_after": cst.SimpleWhitespace(" ")}
            if isinstance(before, cst.SimpleWhitespace) and not before.value:
                around["whitespace_before"] = cst.SimpleWhitespace("")
            around["whitespace_after"] = after if isinstance(after, cst.SimpleWhitespace) else around["whitespace_after"]
            first = small.target.deep_clone() if target == source.segment(node.target) else left
            value = cst.BinaryOperation(left.deep_clone(), binary(**around), right)
            targets = [cst.AssignTarget(first, before, cst.SimpleWhitespace(around["whitespace_before"].value))]
            targets += [cst.AssignTarget(cst.Name(other)) for other in others]
            return cst.Assign(targets, value, small.semicolon)

        try:
            return transform(source, node, change, expected)
        except Refused as error:
            reason = error
    raise reason or Refused("cannot be written as an assignment")


def _once(source: Source, target: ast.expr) -> tuple[list[str], str]:
    """Statements that evaluate what a target may evaluate only once, and the target in their terms."""
    text = source.segment(target)
    if pure(target):
        return [], text
    if not isinstance(target, ast.Attribute | ast.Subscript):
        raise Refused("the target cannot be evaluated twice")
    bindings: list[str] = []
    owner = source.segment(target.value)
    taken: set[str] = set()
    if not pure(target.value):
        name = fresh_name(source, "owner", taken)
        bindings.append(f"{name} = {_flat(owner)}")
        owner = name
    if isinstance(target, ast.Attribute):
        return bindings, f"{owner}.{target.attr}"
    index = source.segment(target.slice)
    if not pure(target.slice):
        if any(isinstance(n, ast.Slice | ast.Starred) for n in ast.walk(target.slice)):
            raise Refused("the index has slices with side effects")
        name = fresh_name(source, "index", taken)
        bindings.append(f"{name} = {_flat(index)}")
        index = name
    return bindings, f"{owner}[{index}]"


def _flat(text: str) -> str:
    return f"({text})" if "\n" in text or "\r" in text or ":=" in text else text
