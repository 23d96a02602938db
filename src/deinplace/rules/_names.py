"""Names in a file: what imports call them, where they are bound and read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from weakref import WeakKeyDictionary

from deinplace.analysis.imports import dotted_path
from deinplace.analysis.source import Scope, Source
from deinplace.rewrite.expression import same

LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@lru_cache(maxsize=16)
def imports(source: Source) -> dict[str, str]:
    """Local name -> dotted name, of every import in the file."""
    found: dict[str, str] = {}
    held: list[ast.Import | ast.ImportFrom] = [*source.of(ast.Import), *source.of(ast.ImportFrom)]
    for node in sorted(held, key=lambda n: (n.lineno, n.col_offset)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                found[alias.asname or root] = alias.name if alias.asname else root
        elif node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """Dotted name of a name or attribute path, its root as the imports spell it, or None."""
    path = dotted_path(node)
    return ".".join([known.get(path[0], path[0]), *path[1:]]) if path else None


def function_of(source: Source, node: ast.AST) -> Scope:
    """The innermost function, class or module around a node; a lambda does not count."""
    scope = source.scope(node)
    while isinstance(scope, ast.Lambda):
        scope = source.scope(scope)
    return scope


_OWN: WeakKeyDictionary[ast.AST, tuple[ast.AST, ...]] = WeakKeyDictionary()
"""The nodes of each scope that was asked for before, for as long as its tree lives."""


def own_nodes(scope: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes of a scope's own body, in order, without those of functions and classes inside it."""
    known = _OWN.get(scope)
    if known is None:
        known = _OWN[scope] = tuple(_own_nodes(scope))
    return known


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    pending: list[ast.AST] = list(reversed(getattr(scope, "body", []) if not isinstance(scope, ast.Lambda) else []))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))


def loops_around(source: Source, node: ast.AST) -> list[ast.stmt]:
    """The loops of the same function whose body holds `node`, innermost first."""
    found: list[ast.stmt] = []
    child = node
    for parent in source.ancestors(node):
        if isinstance(parent, (*_FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(parent, LOOPS) and child in parent.body:
            found.append(parent)
        child = parent
    return found


def root_of(path: ast.expr) -> ast.expr:
    """`x` of `x.a[i].b`."""
    while isinstance(path, ast.Attribute | ast.Subscript):
        path = path.value
    return path


def binds(statement: ast.AST, path: ast.expr) -> bool:
    """True where something in `statement` binds the name or attribute `path`, or the name that it starts with."""
    return any(isinstance(n, ast.expr) and _stores(n, path) for n in ast.walk(statement))


def rebinds(loop: ast.stmt, path: ast.expr) -> bool:
    """True where a loop binds `path` other than by the in-place form `path op= value`."""
    in_place = {id(n.target) for n in ast.walk(loop) if isinstance(n, ast.AugAssign)}
    return any(isinstance(n, ast.expr) and id(n) not in in_place and _stores(n, path) for n in ast.walk(loop))


def _stores(node: ast.expr, path: ast.expr) -> bool:
    if not isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    return same(node, path) or same(node, root_of(path))


def takes(scope: ast.AST, name: str) -> bool:
    """True where `scope` is a function with a parameter of that name."""
    if not isinstance(scope, _FUNCTIONS):
        return False
    return any(isinstance(a, ast.arg) and a.arg == name for a in ast.walk(scope.args))


def bound_before(source: Source, node: ast.AST, path: ast.expr) -> bool:
    """True unless `path` is a local name whose first binding in the function stands behind `node`."""
    if not isinstance(path, ast.Name):
        return True
    scope = function_of(source, node)
    if takes(scope, path.id):
        return True
    start = source.bounds(node)[0]
    stores = [n for n in own_nodes(scope) if isinstance(n, ast.expr) and _stores(n, path)]
    return not stores or any(source.bounds(n)[0] < start for n in stores)


def read_after(source: Source, node: ast.AST, path: ast.expr) -> bool:
    """True where the function may read `path` after `node` ran; in a loop, everything in it comes after."""
    statement = source.statement(node)
    scope = function_of(source, node)
    _, end = source.bounds(node)
    leaves = isinstance(statement, ast.Return | ast.Raise)
    loops = [] if leaves else loops_around(source, node)
    begin = end
    if loops and not binds_first(loops[-1], statement, path):
        begin = source.bounds(loops[-1])[0]
    area = statement if leaves else scope
    inside = {id(n) for n in ast.walk(node)}
    for other in ast.walk(area):
        if id(other) in inside or not isinstance(other, ast.expr) or not same(other, path):
            continue
        if isinstance(getattr(other, "ctx", None), ast.Store) and not isinstance(
            source.parents.get(other), ast.AugAssign
        ):
            continue
        if source.bounds(other)[0] >= begin or source.scope(other) is not source.scope(node):
            return True
    return False


def binds_first(loop: ast.stmt, statement: ast.stmt, path: ast.expr) -> bool:
    """True where each round of a loop binds `path` afresh before it comes to `statement`."""
    if isinstance(loop, ast.For | ast.AsyncFor) and binds(loop.target, path):
        return True
    for child in getattr(loop, "body", []):
        if any(n is statement for n in ast.walk(child)):
            return False
        if isinstance(child, ast.Assign | ast.AnnAssign) and binds(child, path):
            uses = [n for n in ast.walk(child) if isinstance(n, ast.expr) and same(n, path)]
            return all(isinstance(getattr(n, "ctx", None), ast.Store) for n in uses)
    return False


def assignable(source: Source, node: ast.AST, name: str) -> bool:
    """True where assigning `name` beside `node` rebinds the name that is read there, not a new local one."""
    scope = function_of(source, node)
    if isinstance(scope, ast.Module | ast.ClassDef):
        return True
    if takes(scope, name):
        return True
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in own_nodes(scope))


def indexes_tensor(target: ast.Subscript) -> bool:
    """True where the index is one that only tensors and arrays take."""
    index = target.slice
    kinds = (ast.Slice, ast.Tuple, ast.Compare)
    if isinstance(index, kinds) or (isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert)):
        return True
    return isinstance(index, ast.Constant) and index.value in (None, Ellipsis)
