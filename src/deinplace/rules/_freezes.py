"""Statements that freeze or thaw parameters: `requires_grad` is all that they write, and no module runs."""

from __future__ import annotations

import ast

from deinplace.analysis.source import Function, Source
from deinplace.rules._actions import helper_of
from deinplace.rules.base import Project

_LOOKS = frozenset({"parameters", "named_parameters", "modules", "children", "requires_grad_", "isinstance"})
"""Calls that only list what a module holds, or set the flag."""

_OTHERS = ast.AugAssign | ast.Global | ast.Nonlocal | ast.Return | ast.Raise | ast.Await


def only_freezes(source: Source, project: Project, statement: ast.stmt) -> bool:
    """True for `net.requires_grad_(False)`, a loop that sets `p.requires_grad`, or a call of a helper that does.

    A step may pass it: optimizers use the gradients that are there, whatever the flag says.
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    helper = helper_of(source, call) or _named(project, call) if isinstance(call, ast.Call) else None
    if helper is not None and isinstance(call, ast.Call):
        plain = not any(isinstance(n, ast.Call) for a in (*call.args, *call.keywords) for n in ast.walk(a))
        return plain and not helper.decorator_list and _sets_the_flag(helper.body)
    return _sets_the_flag([statement])


def _named(project: Project, call: ast.Call) -> Function | None:
    """The one function of the project that a plain name can mean."""
    if not isinstance(call.func, ast.Name):
        return None
    name = call.func.id
    found = [n for s in project.sources.values() for n in s.nodes if isinstance(n, Function) and n.name == name]
    return found[0] if len(found) == 1 else None


def _sets_the_flag(body: list[ast.stmt]) -> bool:
    found = False
    for node in (n for statement in body for n in ast.walk(statement)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if node.attr != "requires_grad":
                return False
            found = True
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in _LOOKS:
                return False
            found = found or name == "requires_grad_"
        elif isinstance(node, _OTHERS) or (isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)):
            return False
    return found
