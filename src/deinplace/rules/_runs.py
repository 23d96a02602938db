"""Runs of statements that update leaves: what goes under one `no_grad`, and what must not."""

from __future__ import annotations

import ast

from deinplace.analysis.source import Source
from deinplace.rules import _bindings as names
from deinplace.rules import _intent as intent
from deinplace.rules import _lines as lines


def through_data(target: ast.expr) -> bool:
    """True where a target goes through `.data` or is a gradient itself: autograd does not refuse that."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("data", "grad") for n in ast.walk(target))


def needs_gradient(statement: ast.stmt) -> bool:
    """The right side itself runs autograd, which `no_grad` would switch off."""
    calls = (n for n in ast.walk(statement) if isinstance(n, ast.Call))
    return any(ast.unparse(c.func).rsplit(".", 1)[-1] in ("grad", "backward", "vjp", "jvp") for c in calls)


def siblings(source: Source, first: ast.stmt, last: ast.stmt) -> list[ast.stmt]:
    found = lines.block_of(source, first)
    return found[0][found[1] : found[0].index(last) + 1] if found is not None else [first]


def unit(source: Source, statement: ast.stmt) -> tuple[ast.stmt, ast.stmt]:
    """The smallest run of siblings that are all such writes; a loop or `if` that holds nothing else goes whole."""
    first = last = statement
    target = names.written(statement)
    own = ast.unparse(names.root(target)) if target is not None else ""
    while True:
        first, last = _run(source, first, last, own)
        parent = source.parents.get(first)
        if not isinstance(parent, ast.For | ast.If) or parent.orelse or parent.body[0] is not first:
            return first, last
        if parent.body[-1] is not last or (isinstance(parent, ast.For) and not _plain(parent.iter)):
            return first, last
        if isinstance(parent, ast.If) and not _plain(parent.test):
            return first, last
        if isinstance(parent, ast.For) and _is_training_loop(parent):
            return first, last
        first = last = parent


def _run(source: Source, first: ast.stmt, last: ast.stmt, own: str) -> tuple[ast.stmt, ast.stmt]:
    found = lines.block_of(source, first)
    if found is None:
        return first, last
    block, start = found
    end = block.index(last)
    while start and _update_like(source, block[start - 1], own):
        start -= 1
    while end + 1 < len(block) and _update_like(source, block[end + 1], own):
        end += 1
    while (
        end + 1 < len(block) and end + 2 == len(block) and _resets_gradient(block[end + 1]) and _in_loop(source, first)
    ):
        end += 1
    return block[start], block[end]


def _in_loop(source: Source, statement: ast.stmt) -> bool:
    parent = source.parents.get(statement)
    return isinstance(parent, ast.For) and parent.body[0] is statement and not _is_training_loop(parent)


def _is_training_loop(loop: ast.For) -> bool:
    return any(isinstance(n, ast.Call) and ast.unparse(n.func).endswith("backward") for n in ast.walk(loop))


def _update_like(source: Source, statement: ast.stmt, own: str) -> bool:
    if isinstance(statement, ast.For | ast.If):
        holds = statement.iter if isinstance(statement, ast.For) else statement.test
        body = [*statement.body]
        while body and _resets_gradient(body[-1]):
            body.pop()
        return bool(body) and not statement.orelse and _plain(holds) and all(_update_like(source, s, own) for s in body)
    if names.written(statement) is None or needs_gradient(statement):
        return False
    target = names.written(statement)
    if target is None or through_data(target):
        return False
    return ast.unparse(names.root(target)) == own or intent.updates(source, statement)


def _resets_gradient(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return all(isinstance(t, ast.Attribute) and t.attr == "grad" for t in statement.targets)
    return isinstance(statement, ast.Expr) and ast.unparse(statement).endswith(
        (".grad.zero_()", ".grad.data.zero_()", ".grad.detach_()")
    )


def _plain(node: ast.expr) -> bool:
    """Nothing in an expression that could run a forward or a backward."""
    harmless = [
        "zip",
        "enumerate",
        "range",
        "reversed",
        "sorted",
        "list",
        "tuple",
        "len",
        "parameters",
        "named_parameters",
        "values",
        "items",
        "keys",
        "modules",
        "named_modules",
        "children",
        "size",
        "isinstance",
        "dim",
    ]
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    return all(ast.unparse(c.func).rsplit(".", 1)[-1] in harmless for c in calls)
