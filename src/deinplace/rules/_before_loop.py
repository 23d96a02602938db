"""What is computed in front of a loop and used in each of its rounds, with its graph."""

from __future__ import annotations

import ast

from deinplace.analysis.source import Source
from deinplace.rules import _bindings as names
from deinplace.rules._carry import Round, leaves_of, live, live_loads, loads, simple, stores

_HANDS_OUT = ("parameters", "named_parameters", "state_dict", "modules", "children")


def built_before(view: Round) -> list[ast.Assign]:
    """Assignments in front of the loop whose graph every round would run backward through again."""
    scope = view.source.scope(view.loop)
    inside = {n for s in simple(view.loop.body) for n in loads(s)}
    stored = {n for s in simple(view.loop.body) for n in stores(s)}
    leaves = leaves_of(view.source)
    found: list[ast.Assign] = []
    for statement in getattr(scope, "body", []):
        if not isinstance(statement, ast.Assign) or statement.lineno >= view.loop.lineno:
            continue
        if stores(statement) & inside - stored and (
            _is_forward(view.source, statement.value) or _of_parameters(statement.value, leaves)
        ):
            found.append(statement)
    return found


def _of_parameters(value: ast.expr, leaves: set[str]) -> bool:
    """A value that is computed from leaves, or from a module's parameters, and does not just hold them."""
    if isinstance(value, ast.Call):
        last = ast.unparse(value.func).rsplit(".", 1)[-1]
        if isinstance(value.func, ast.Name) or last[:1].isupper() or last in _HANDS_OUT:
            return False
    elif not isinstance(value, ast.BinOp | ast.UnaryOp):
        return False
    read = any(isinstance(n, ast.Attribute) and n.attr in ("weight", "bias", "parameters") for n in live(value))
    return read or not live_loads(value).isdisjoint(leaves)


def _is_forward(source: Source, call: ast.expr) -> bool:
    """A call of something that the file shows to be a module."""
    if not isinstance(call, ast.Call):
        return False
    values = (a.value for a in names.assignments(source.tree, ast.unparse(call.func)) if a.value is not None)
    return any(isinstance(v, ast.Call) and ast.unparse(v.func).rsplit(".", 1)[-1][:1].isupper() for v in values)
