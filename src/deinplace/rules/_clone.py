"""Rewrites that put a clone in the way of a write: before the statement, before the loop, in the container."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Applicability, Edit, Rewrite
from deinplace.rewrite.expression import cloned_text, flat, fresh_name, pure, replace, same
from deinplace.rewrite.insert import insert_before
from deinplace.rewrite.statement import Refused
from deinplace.rules._names import (
    LOOPS,
    bound_before,
    dotted,
    function_of,
    imports,
    loops_around,
    own_nodes,
    rebinds,
    takes,
)

_SHARING = ("self", "view", "views", "maybe_alias", "unknown")


def rewrite(
    rule: str,
    source: Source,
    title: str,
    edits: Iterable[Edit],
    node: ast.AST,
    note: str = "",
    applicability: Applicability = "safe",
) -> Rewrite:
    """A rewrite's record: the line and the function that `node` has."""
    touches = ((source.path, source.qualname(node)),)
    line = getattr(node, "lineno", 1)
    return Rewrite(rule, title, tuple(edits), applicability, line, source.path, touches, note)


def bases(source: Source, node: ast.expr) -> list[ast.expr]:
    """What may own the storage that a write through `node` reaches, the outermost owner first.

    `x[i]`, `x.data`, `x[0].view(-1)` and `x.real[k]` all lead to `x`, `self.a.b[i]` to `self.a.b`; an element such as
    `xs[0]`, which may be a tensor in a list as well as a row, comes behind.
    """
    elements: list[ast.expr] = []
    while (inner := _aliased(source, node)) is not None:
        if isinstance(node, ast.Subscript) and pure(node) and not _tensor_index(node.slice):
            elements.append(node)
        node = inner
    if not (isinstance(node, ast.Name | ast.Attribute) and pure(node)):
        return []
    return _unique([node, *reversed(elements)])


def _aliased(source: Source, node: ast.expr) -> ast.expr | None:
    """The expression whose storage `node` may share; None where it is a name, an attribute of its own, or fresh."""
    if isinstance(node, ast.Subscript):
        return node.value
    if isinstance(node, ast.NamedExpr):
        return node.target
    if isinstance(node, ast.Attribute):
        known = load().method(node.attr)
        return node.value if known is not None and known.attribute and known.returns in _SHARING else None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    name = dotted(node.func, imports(source)) or ""
    if name.startswith("torch."):
        function = load().function(name)
        shared = function is not None and function.returns in _SHARING
        return node.args[0] if shared and node.args and not isinstance(node.args[0], ast.Starred) else None
    method = load().method(node.func.attr)
    return node.func.value if method is not None and method.returns in _SHARING else None


def _tensor_index(index: ast.expr) -> bool:
    return any(isinstance(n, ast.Slice | ast.Compare | ast.Tuple) for n in ast.walk(index))


def _unique(nodes: Iterable[ast.expr]) -> list[ast.expr]:
    found: list[ast.expr] = []
    for node in nodes:
        if not any(same(node, other) for other in found):
            found.append(node)
    return found


def clones_before(rule: str, source: Source, statement: ast.stmt, target: ast.expr) -> Iterator[Rewrite]:
    """`x = x.clone()` before the loop that holds the statement, then before the statement itself."""
    owners = bases(source, target)
    if any(isinstance(o, ast.Name) and bound_inside(source, target, o.id) for o in owners[:1]):
        return
    for owner in owners:
        for loop in hoists(source, statement, owner):
            yield from _inserted(rule, source, loop, owner, f"before the loop on line {loop.lineno}", "")
        looped = bool(loops_around(source, statement))
        note = "A clone in every round of the loop." if looped else ""
        for each in _inserted(rule, source, statement, owner, "before the write", note):
            part = looped and not same(owner, target) and not _bound_each_round(source, statement, owner)
            yield dataclasses.replace(each, costly=part)
    if owners:
        yield from element_clones(rule, source, statement, owners[0])


def bound_inside(source: Source, node: ast.AST, name: str) -> bool:
    """True where a comprehension or lambda of the same statement binds `name`: outside it means something else."""
    for parent in source.ancestors(node):
        if isinstance(parent, ast.stmt):
            return False
        if isinstance(parent, ast.Lambda) and takes(parent, name):
            return True
        for each in getattr(parent, "generators", []):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(each.target)):
                return True
    return False


def _bound_each_round(source: Source, statement: ast.stmt, owner: ast.expr) -> bool:
    """True where the innermost loop makes what `owner` names: a clone of it is as large as what the round makes."""
    return rebinds(loops_around(source, statement)[0], owner)


def _inserted(
    rule: str, source: Source, statement: ast.stmt, owner: ast.expr, where: str, note: str
) -> Iterator[Rewrite]:
    name, clone = flat(source, owner), cloned_text(source, owner)
    if "\n" in clone or "\r" in clone:  # over several lines only within the parentheses of a call
        clone = f"{name}.clone()"
    try:
        edit = insert_before(source, statement, f"{name} = {clone}")
    except Refused:
        return
    yield rewrite(rule, source, f"clone `{name}` {where}", [edit], statement, note)


def hoists(source: Source, statement: ast.stmt, owner: ast.expr) -> list[ast.stmt]:
    """Loops before which one clone of `owner` is enough: the outermost that does not bind it, then the innermost."""
    fitting: list[ast.stmt] = []
    for loop in loops_around(source, statement):
        if rebinds(loop, owner) or not bound_before(source, loop, owner):
            break
        fitting.append(loop)
    return fitting[:1] if len(fitting) < 2 else [fitting[-1], fitting[0]]


def element_clones(rule: str, source: Source, statement: ast.stmt, owner: ast.expr) -> Iterator[Rewrite]:
    """For a loop variable: rebuild the container out of clones before the loop that walks it."""
    if not isinstance(owner, ast.Name):
        return
    for loop in loops_around(source, statement):
        if not isinstance(loop, ast.For):
            continue
        for container, kind in walked(loop, owner.id):
            code = rebuilt(source, container, kind)
            if code is None:
                continue
            try:
                edit = insert_before(source, loop, code)
            except Refused:
                continue
            name = source.segment(container)
            yield rewrite(rule, source, f"rebuild `{name}` out of clones before the loop", [edit], statement)
        return


def walked(loop: ast.For, name: str, views: bool = False) -> Iterator[tuple[ast.expr, str]]:
    """(container, `values`/`items`/`list`) whose elements the loop variable `name` runs over.

    With `views` also what a call hands out, such as `x.unbind(1)`.
    """
    for container, kind in _pairs(loop.target, loop.iter, name):
        if views or isinstance(container, ast.Name | ast.Attribute):
            yield container, kind


def _pairs(target: ast.expr, iterated: ast.expr, name: str) -> Iterator[tuple[ast.expr, str]]:
    called = iterated.func if isinstance(iterated, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in ("values", "items") and pure(called.value):
        if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(target)):
            yield called.value, called.attr
    elif isinstance(iterated, ast.Call) and isinstance(called, ast.Name) and isinstance(target, ast.Tuple):
        if called.id == "zip":
            for part, source in zip(target.elts, iterated.args, strict=False):
                yield from _pairs(part, source, name)
        elif called.id == "enumerate" and len(target.elts) == 2 and iterated.args:
            yield from _pairs(target.elts[1], iterated.args[0], name)
    elif isinstance(target, ast.Name) and target.id == name:
        if isinstance(iterated, ast.Call) and called is not None and isinstance(called, ast.Name):
            if called.id in ("reversed", "list", "tuple") and iterated.args:
                yield from _pairs(target, iterated.args[0], name)
            elif called.id not in ("range", "zip", "enumerate", "map", "filter"):
                yield iterated, "list"
        else:
            yield iterated, "list"


def rebuilt(source: Source, container: ast.expr, kind: str) -> str | None:
    """A statement that gives a container clones of its tensors."""
    if not isinstance(container, ast.Name | ast.Attribute):
        return None
    name = source.segment(container)
    taken: set[str] = set()
    if kind == "list":
        item = fresh_name(source, "item", taken)
        return f"{name} = [{item}.clone() for {item} in {name}]"
    key, value = fresh_name(source, "key", taken), fresh_name(source, "value", taken)
    return f"{name} = {{{key}: {value}.clone() for {key}, {value} in {name}.items()}}"


def alias_clones(rule: str, source: Source, statement: ast.stmt, target: ast.expr) -> Iterator[Rewrite]:
    """Clone where the written name was made an alias: `y = x.detach()` becomes `y = x.detach().clone()`."""
    for owner in bases(source, target):
        if not isinstance(owner, ast.Name):
            continue
        made = _last_assignment(source, statement, owner)
        if made is None or made.value is None or not _aliasing(source, made.value):
            continue
        _, end = source.bounds(made.value)
        edit = Edit(source.path, end, end, ".clone()")
        title = f"clone where `{owner.id}` was made an alias, on line {made.lineno}"
        yield dataclasses.replace(rewrite(rule, source, title, [edit], made), keeps_source=_cut(made.value))


def _cut(value: ast.expr) -> bool:
    """True for an alias that autograd does not follow: one writes to it to leave the graph alone."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("detach", "data") for n in ast.walk(value))


def _aliasing(source: Source, value: ast.expr) -> bool:
    """True where an expression may hand out a tensor that others hold too: a path, an element, a view's call."""
    if isinstance(value, ast.Call):
        return _aliased(source, value) is not None
    return isinstance(value, ast.Attribute | ast.Subscript | ast.Name)


def _last_assignment(source: Source, statement: ast.stmt, name: ast.Name) -> ast.Assign | ast.AnnAssign | None:
    start = source.bounds(statement)[0]
    best: ast.Assign | ast.AnnAssign | None = None
    for node in own_nodes(function_of(source, statement)):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(same(t, name) for t in targets) and source.bounds(node)[0] < start:
            best = node
    return best


def in_loop(source: Source, node: ast.AST) -> bool:
    """True where a loop of the same function holds a node."""
    return any(isinstance(n, LOOPS) for n in loops_around(source, node))


def stored_slot(source: Source, loop: ast.For, name: str) -> tuple[str, list[Edit]]:
    """Where a loop variable came from, as a target to write it back to, and the edits to the loop that this needs."""
    target, iterated = loop.target, loop.iter
    called = iterated.func if isinstance(iterated, ast.Call) else None
    for container, kind in walked(loop, name):
        text = source.segment(container)
        if kind == "items" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
            return f"{text}[{target.elts[0].id}]", []
        if kind == "values" and isinstance(target, ast.Name) and isinstance(called, ast.Attribute):
            key = fresh_name(source, "key", set())
            _, end = source.bounds(called)
            items = Edit(source.path, end - len("values"), end, "items")
            return f"{text}[{key}]", [replace(source, target, f"{key}, {name}"), items]
        if (
            (
                kind == "list"
                and isinstance(called, ast.Name)
                and called.id == "enumerate"
                and isinstance(target, ast.Tuple)
            )
            and isinstance(target.elts[0], ast.Name)
            and isinstance(iterated, ast.Call)
            and len(iterated.args) == 1
        ):
            return f"{text}[{target.elts[0].id}]", []
        if kind == "list" and iterated is container and isinstance(target, ast.Name):
            index = fresh_name(source, "index", set())
            edits = [replace(source, target, f"{index}, {name}"), replace(source, iterated, f"enumerate({text})")]
            return f"{text}[{index}]", edits
    return "", []
