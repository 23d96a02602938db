"""`x += r` as `x = x + r`: precedence, comments and line breaks kept, the target evaluated once."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deinplace.analysis.source import Source
from deinplace.model import Edit
from deinplace.rewrite.expression import fresh_name, pure
from deinplace.rewrite.insert import insert_before
from deinplace.rewrite.statement import Refused, small_statement, transform

if TYPE_CHECKING:
    import libcst as cst

PAUSES = (ast.Await, ast.Yield, ast.YieldFrom)
"""Expressions during which other code may run between reading a target and writing it."""


def assignment(source: Source, node: ast.AugAssign, others: Sequence[str] = (), cloned: bool = False) -> list[Edit]:
    """Edits that make `node` an out-of-place assignment, chained to the names `others`.

    `cloned` computes with a clone of the target: `x[0] = x[0].clone() ** y`, for what is written back where it was.

    Raises:
        Refused: the right side is a bare tuple, or the statement awaits or yields with a target others can see.
    """
    if isinstance(node.value, ast.Tuple | ast.List | ast.Starred | ast.Dict | ast.JoinedStr):
        raise Refused("the right side is not a tensor")
    if any(isinstance(n, PAUSES) for n in ast.walk(node.value)) and not isinstance(node.target, ast.Name):
        raise Refused("other code may run between reading the target and writing it")
    bindings, target = _once(source, node.target)
    edit = _assign(source, node, target, others, f"{target}.clone()" if cloned else target)
    return [*(insert_before(source, node, line) for line in bindings), edit]


def _assign(source: Source, node: ast.AugAssign, target: str, others: Sequence[str], read: str) -> Edit:
    import libcst as cst

    operator = type(small_statement(source, node).operator)  # type: ignore[attr-defined]
    binary = getattr(cst, operator.__name__.removesuffix("Assign"))
    names = [ast.Name(other, ast.Store()) for other in others]
    parsed = ast.parse(target, mode="eval").body
    left = ast.parse(read, mode="eval").body
    expected = ast.Assign([parsed, *names], ast.BinOp(left, node.op, node.value))
    reason: Refused | None = None
    for wrapped in (False, True):

        def change(small: cst.BaseSmallStatement, wrapped: bool = wrapped) -> cst.BaseSmallStatement:
            if not isinstance(small, cst.AugAssign):
                raise Refused("not an augmented assignment")
            right = small.value
            if wrapped:
                right = right.with_changes(lpar=[cst.LeftParen(), *right.lpar], rpar=[*right.rpar, cst.RightParen()])
            before, after = _spaces(small.operator)
            lead = before if isinstance(before, cst.SimpleWhitespace) else cst.SimpleWhitespace(" ")
            gap = cst.SimpleWhitespace(" " if lead.value else "")
            first = small.target if target == source.segment(node.target) else cst.parse_expression(target)
            value = cst.BinaryOperation(cst.parse_expression(read), binary(gap, after), right)
            if not isinstance(first, cst.BaseAssignTargetExpression):
                raise Refused("the target cannot be assigned")
            targets = [cst.AssignTarget(first, lead, gap)]
            targets += [cst.AssignTarget(cst.Name(other), gap, gap) for other in others]
            return cst.Assign(targets, value, small.semicolon)

        try:
            return transform(source, node, change, expected)
        except Refused as error:
            reason = error
    raise reason or Refused("cannot be written as an assignment")


def _spaces(operator: cst.BaseAugOp) -> tuple[cst.BaseParenthesizableWhitespace, cst.BaseParenthesizableWhitespace]:
    return operator.whitespace_before, operator.whitespace_after  # type: ignore[attr-defined]


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
