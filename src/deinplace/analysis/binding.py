"""What names, attributes and elements are bound to."""

from __future__ import annotations

import ast

from deinplace.analysis import attributes, elements
from deinplace.analysis.expressions import evaluate
from deinplace.analysis.iteration import iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    NONE,
    Obj,
    Other,
    Ten,
    Union,
    Value,
    union,
)


def assign(m: Machine, target: ast.expr, value: Value) -> None:
    """Bind a target."""
    if isinstance(target, ast.Name):
        bind(m, target.id, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part, item in unpack(m, target.elts, value):
            assign(m, part, item)
    elif isinstance(target, ast.Starred):
        assign(m, target.value, value)
    elif isinstance(target, ast.Attribute):
        attributes.store(m, evaluate(m, target.value), target, value)
    elif isinstance(target, ast.Subscript):
        base = evaluate(m, target.value)
        elements.store_item(m, base, evaluate(m, target.slice), target, value)


def bind(m: Machine, name: str, value: Value) -> None:
    """Bind a name in the scope that owns it."""
    if name in m.frame.shared:
        for fid in (*m.frame.closure, m.globals[m.frame.module.path]):
            if name in m.m.fields(fid).fields or fid == m.globals[m.frame.module.path]:
                m.m.put(fid, name, value)
                return
    m.m.put(m.frame.fid, name, value)
    if m.frame.function == "<module>":
        m.bound[m.frame.fid, name] = m.clock


def unpack(m: Machine, targets: list[ast.expr], value: Value) -> list[tuple[ast.expr, Value]]:
    """Pairs of target and item for a tuple assignment."""
    count = len(targets)
    star = next((n for n, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    if isinstance(value, Obj) and value.what in ("list", "tuple"):
        items = list(m.items_of(value).items)
        if star is None:
            items += [items[-1] if items else Other("unknown")] * (count - len(items))
            return list(zip(targets, items, strict=False))
        tail = count - star - 1
        middle = m.sequence(items[star : len(items) - tail])
        return list(zip(targets, [*items[:star], middle, *items[len(items) - tail :]], strict=False))
    if isinstance(value, Ten):
        return [(t, elements.part(m, value, n)) for n, t in enumerate(targets)]
    if isinstance(value, Union):
        each = [unpack(m, targets, option) for option in value.options if option != NONE] or [unpack(m, targets, NONE)]
        return [(pairs[0][0], union(tuple(v for _, v in pairs))) for pairs in zip(*each, strict=False)]
    items = iterate(m, value, targets[0])[0] or [Other("unknown")]
    return [(t, items[min(n, len(items) - 1)]) for n, t in enumerate(targets)]


def delete(m: Machine, node: ast.Delete) -> None:
    """Unbind names; what else is deleted stays, as far as anybody may still see it."""
    for target in node.targets:
        if isinstance(target, ast.Name):
            m.m.drop(m.frame.fid, target.id)
        elif isinstance(target, ast.Subscript):
            m.escape(evaluate(m, target.slice), "is a key")
