"""Writes through a parameter: the caller hands over a clone, or clones its tensor before it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from deinplace.analysis.source import Function, Source
from deinplace.model import Rewrite
from deinplace.rewrite.expression import clone, path_of
from deinplace.rules import _clone, _locate, _names
from deinplace.rules.base import Incident, Project


def caller_clones(
    rule: str, source: Source, node: ast.AST, target: ast.expr, project: Project, incident: Incident | None
) -> Iterator[Rewrite]:
    """`helper(h)` becomes `h = h.clone()` and `helper(h)`, or `helper(h.clone())`, frame by frame outwards."""
    stack = _locate.write_stack(incident) if incident is not None else ()
    while len(stack) > 1:
        function = _names.function_of(source, node)
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        names = [b.id for b in _clone.bases(source, target) if isinstance(b, ast.Name)]
        caller = project.sources.get(stack[1].path)
        call = _locate.covering(caller, stack[1].span, ast.Call) if caller is not None else None
        if caller is None or not isinstance(call, ast.Call) or not names:
            return
        given = argument_for(source, function, call, names[0])
        if given is None:
            return
        if path_of(given):
            yield from _clone.clones_before(rule, caller, caller.statement(call), given)
            yield from _clone.alias_clones(rule, caller, caller.statement(call), given)
        title = f"hand a clone of `{caller.segment(given)}` to `{function.name}`"
        yield _clone.rewrite(rule, caller, title, clone(caller, given), call)
        source, node, target, stack = caller, call, given, stack[1:]


def argument_for(source: Source, function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """The argument of `call` that the parameter `name` of `function` receives, as far as syntax tells."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if name not in positional:
        return None
    at = positional.index(name)
    in_class = isinstance(source.parents.get(function), ast.ClassDef)
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    if in_class and not static:
        at -= 1
    if at < 0 or at >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
        return None
    return call.args[at]
