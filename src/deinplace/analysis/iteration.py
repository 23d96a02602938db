"""What a loop runs over: the first few items stand for all of them."""

from __future__ import annotations

import ast

from deinplace.analysis import declared
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import NONE, Const, Items, Obj, Other, Ref, Ten, Torch, Union, Value, union

LIMIT = 4
GLANCED = 2
ROWS = 2
"""Of a tensor, whose length is not known, the first rows."""


def iterate(m: Machine, value: Value, node: ast.AST) -> tuple[list[Value], bool]:
    """Items of `value`, at most a few, and whether there may be others."""
    if isinstance(value, Obj):
        return _object(m, value)
    if isinstance(value, Const) and isinstance(value.value, (str, bytes, tuple)):
        items = [Const(v) for v in value.value]
        return list(items[:LIMIT]), len(items) > LIMIT
    if isinstance(value, Ten):
        return [element(m, value, n) for n in range(ROWS)], True
    if isinstance(value, Union):
        found = [iterate(m, option, node) for option in value.options if option != NONE] or [([], True)]
        most = max(len(items) for items, _ in found)
        each = [union(tuple(items[n] for items, _ in found if n < len(items))) for n in range(most)]
        return each, any(opened or len(items) < most for items, opened in found)
    what = value.what if isinstance(value, Other) else "unknown"
    if what in ("number", "string", "size", "ndarray"):
        return [
            Other("number" if what == "size" else what, m.terms.make("item", m.term_of(value), n)) for n in range(2)
        ], True
    if isinstance(value, Ref):
        return [m.outside(("item", value.name, n), "element", f"an element of {value.name}") for n in range(2)], True
    return [Other("unknown"), Other("unknown")], True


def every(m: Machine, value: Value, node: ast.AST) -> tuple[list[Value], bool]:
    """All items of a list or tuple that are known, not only those that a loop runs over; of other things these."""
    content = m.m.peek(value.oid) if isinstance(value, Obj) else None
    return (list(content.items), content.open) if isinstance(content, Items) else iterate(m, value, node)


def element(m: Machine, value: Ten, n: int) -> Value:
    """The n-th item of a tensor, or of something that may be a container of tensors."""
    if m.kind(value) == "tensor":
        row = ("index", m.term_of(Const(n)))
        return Ten(value.sids, value.exact, "multi", value.cut, (*value.path, row), None)
    return declared.element(m, value, ("item", value.sids, n), n)


def _object(m: Machine, value: Obj) -> tuple[list[Value], bool]:
    content = m.m.peek(value.oid)
    if isinstance(content, Items):
        modules = all(isinstance(v, Obj) and v.what in ("module", "instance") for v in content.items)
        limit = GLANCED if m.glance else 64 if modules else LIMIT
        if (
            content.open
            and value.what == "tuple"
            and all(isinstance(v, Ten) and v.view == "multi" for v in content.items)
        ):
            limit = ROWS  # as many as of a tensor, whose rows they may be
        return list(content.items[:limit]), content.open or len(content.items) > limit
    fields = m.fields_of(value)
    if value.what == "dict":
        keys = [Const(k) if not isinstance(k, tuple) else Other("unknown") for k in fields.fields]
        return list(keys[:LIMIT]), fields.open or len(keys) > LIMIT
    if isinstance(fields.tag, Torch):
        children = module_children(m, value)
        if fields.tag.name.endswith("Dict"):
            keys = [Const(k) for k in fields.fields if k != "training"]
            return list(keys[:LIMIT]), len(keys) > LIMIT
        return children[: LIMIT + 2], len(children) > LIMIT + 2
    method = m.method_of(value, "__iter__")
    if method is not None:
        made = m.call(method, [], {}, m.frame.node or ast.Pass())
        if made != value:
            return iterate(m, made, ast.Pass())
    return [m.outside(("item", value.oid, n), "element", "an element of an object") for n in range(2)], True


def module_children(m: Machine, value: Obj) -> list[Value]:
    """Members of a Sequential, ModuleList, ModuleDict or their like, in order."""
    return [v for k, v in m.fields_of(value).fields.items() if k not in ("training", "inplace")]
