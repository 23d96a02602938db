"""Rewrites that only take a write away: they bind a name that nobody reads, while others may see the tensor."""

from __future__ import annotations

import ast
from collections import Counter

from deinplace.analysis.source import Function, Source
from deinplace.model import Rewrite, Site
from deinplace.rewrite.apply import CheckError, OverlapError, patched
from deinplace.rules import _locate, _names
from deinplace.rules.base import Project


def loses_the_write(site: Site, rewrite: Rewrite, project: Project) -> bool:
    """True where a rewrite gives the written name a new tensor, and the function never reads that name again.

    Whoever else holds the tensor (a list that a loop runs over, a module, the caller) then sees no write at all. A run
    need not show that: a clamp that had nothing to clamp, or an average of two equal tensors, loses nothing yet.
    """
    source = project.sources.get(site.path)
    node = _locate.node_of(site, source, (ast.AugAssign, ast.Assign, ast.Call)) if source is not None else None
    name = _written(node) if node is not None else None
    if source is None or node is None or name is None:
        return False
    statement = source.statement(node)
    scope = _names.function_of(source, node)
    if not _is_borrowed(source, scope, statement, name):
        return False
    if _names.read_after(source, statement, name) or _declared_elsewhere(scope, name.id):
        return False
    try:
        after = patched(project.sources, [rewrite])[site.path]
    except (CheckError, OverlapError):
        return False
    return bool(_bindings(after, name.id) - _bindings(source, name.id))


def _written(node: ast.AST) -> ast.Name | None:
    """The name that a write's target starts with; in a chain of calls, that of the first receiver."""
    target: ast.AST | None = node
    if isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Assign):
        target = next((t for t in node.targets if isinstance(t, ast.Subscript)), None)
    while isinstance(target, ast.Call | ast.Attribute | ast.Subscript):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target if isinstance(target, ast.Name) else None


def _is_borrowed(source: Source, scope: ast.AST, statement: ast.stmt, name: ast.Name) -> bool:
    """An argument, the variable of a loop, or a name for what another name, an attribute or a container holds."""
    loops = _names.loops_around(source, statement)
    if any(isinstance(loop, ast.For) and _names.binds(loop.target, name) for loop in loops):
        return True
    if not isinstance(scope, Function):
        return False  # what a module holds, others may read
    if _names.takes(scope, name.id):
        return True
    bound = [n.value for n in _names.own_nodes(scope) if isinstance(n, ast.Assign) and _names.binds(n, name)]
    return bool(bound) and all(isinstance(value, ast.Name | ast.Attribute | ast.Subscript) for value in bound)


def _declared_elsewhere(scope: ast.AST, name: str) -> bool:
    """A name of the module's, or of an outer function's."""
    return any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in _names.own_nodes(scope))


def _bindings(source: Source, name: str) -> Counter[str]:
    """The statements of a file that bind a name and nothing else, each with how often it stands there."""
    found = (n for n in source.nodes if isinstance(n, ast.Assign) and len(n.targets) == 1)
    return Counter(ast.unparse(n) for n in found if isinstance(n.targets[0], ast.Name) and n.targets[0].id == name)
