"""What names in a function are bound to, and which expressions mention which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from deinplace.analysis.source import Function, Source
from deinplace.model import Place, Span
from deinplace.rules.base import Project

Loop = ast.For | ast.AsyncFor | ast.While


def root(node: ast.expr) -> ast.expr:
    """What a write to `node` changes: subscripts, `.data` and view-free calls taken off."""
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    return node


def written(statement: ast.stmt) -> ast.expr | None:
    """The expression whose tensor a statement writes in place, with its subscripts."""
    if isinstance(statement, ast.AugAssign):
        return statement.target
    if isinstance(statement, ast.Assign):
        return next((t for t in statement.targets if isinstance(t, ast.Subscript)), None)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _receiver(statement.value)
    return None


def _receiver(call: ast.Call) -> ast.expr | None:
    found: ast.expr | None = None
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name.endswith("_") and not name.endswith("__"):
            found = node.func.value
        node = node.func.value
    return found


def frames(stack: tuple[Place, ...], project: Project) -> Iterator[tuple[Source, Place]]:
    """The frames of a stack whose files may be edited, innermost first."""
    for place in stack:
        if project.editable(place.path) and (source := project.get(place.path)) is not None:
            yield source, place


def statement_at(source: Source, span: Span) -> ast.stmt | None:
    """The smallest statement that covers a span."""
    found = source.innermost(span, ast.stmt)
    return found if isinstance(found, ast.stmt) else None


def assignments(scope: ast.AST, text: str) -> list[ast.Assign | ast.AnnAssign]:
    """Assignments in `scope` that bind the name or attribute `text` (tuple targets too), in source order."""
    known = _BOUND.get(scope)
    if known is None:
        known = _BOUND[scope] = _bound(scope)
    return list(known.get(text, ()))


_BOUND: WeakKeyDictionary[ast.AST, dict[str, list[ast.Assign | ast.AnnAssign]]] = WeakKeyDictionary()
"""What each scope binds that was asked for before, for as long as its tree lives."""


def _bound(scope: ast.AST) -> dict[str, list[ast.Assign | ast.AnnAssign]]:
    found: dict[str, list[ast.Assign | ast.AnnAssign]] = {}
    for node in _statements(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for text in {ast.unparse(t) for target in targets for t in flat(target)}:
                found.setdefault(text, []).append(node)
    for each in found.values():
        each.sort(key=lambda n: (n.lineno, n.col_offset))
    return found


def _statements(scope: ast.AST) -> Iterator[ast.AST]:
    """All statements in a scope, nested ones too: expressions hold none."""
    todo = [scope]
    for node in todo:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, None)
            todo += inner if isinstance(inner, list) else ()
    return iter(todo)


def value_for(statement: ast.Assign | ast.AnnAssign, text: str) -> ast.expr | None:
    """What an assignment binds to `text`: in `a, b = f(), g()` that is an element of the right side."""
    value = statement.value
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
            continue
        spread = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
        for element, each in zip(target.elts, value.elts, strict=False):
            if not spread and len(target.elts) == len(value.elts) and ast.unparse(element) == text:
                return each
    return value


def flat(target: ast.expr) -> Iterator[ast.expr]:
    """The names that a target binds, tuples taken apart."""
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from flat(item)
    elif isinstance(target, ast.Starred):
        yield from flat(target.value)
    else:
        yield target


def chains(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The longest dotted names inside a node."""
    if isinstance(node, ast.Name):
        yield node.id, node
        return
    if isinstance(node, ast.Attribute):
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(base, ast.Name):
            yield ast.unparse(node), node
            return
    for child in ast.iter_child_nodes(node):
        yield from chains(child)


def mentions(node: ast.AST, text: str) -> bool:
    """True where the name or dotted attribute `text` is read or written inside `node`."""
    return any(isinstance(n, ast.Name | ast.Attribute) and ast.unparse(n) == text for n in ast.walk(node))


def names_in(node: ast.AST) -> set[str]:
    """Every plain name inside a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def loop_over(source: Source, node: ast.AST, name: str) -> ast.For | None:
    """The `for` statement around `node` that binds `name`."""
    for parent in source.ancestors(node):
        if isinstance(parent, ast.For) and any(ast.unparse(t) == name for t in flat(parent.target)):
            return parent
        if isinstance(parent, Function | ast.Lambda):
            return None
    return None


def iterated(loop: ast.For, name: str) -> ast.expr | None:
    """What loop variable `name` runs over: through `zip` and `enumerate` to the argument that feeds it."""
    return _fed(loop.target, loop.iter, name)


def _fed(target: ast.expr, value: ast.expr, name: str) -> ast.expr | None:
    if ast.unparse(target) == name:
        return value
    if not isinstance(target, ast.Tuple):
        return None
    inside = [any(ast.unparse(t) == name for t in flat(item)) for item in target.elts]
    if True not in inside:
        return None
    at = inside.index(True)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        if value.func.id == "zip" and at < len(value.args):
            return _fed(target.elts[at], value.args[at], name)
        if value.func.id == "enumerate" and at == 1 and value.args:
            return _fed(target.elts[1], value.args[0], name)
    return value


def parameters(scope: ast.AST) -> list[str]:
    """Parameter names of a function, in order; none for a module or class."""
    if not isinstance(scope, Function | ast.Lambda):
        return []
    args = scope.args
    return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


def grad_off(source: Source, node: ast.AST) -> bool:
    """True where a `with` or decorator around `node` turns autograd off."""
    for parent in source.ancestors(node):
        holders: list[ast.expr] = []
        if isinstance(parent, ast.With):
            holders = [item.context_expr for item in parent.items]
        elif isinstance(parent, Function):
            holders = parent.decorator_list
        if any(word in ast.unparse(h) for h in holders for word in ("no_grad", "inference_mode")):
            return True
    return False
