"""Elements of tensors, containers and modules: reading and writing them."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import declared, ops, sharing, writes
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    Cls,
    Const,
    Fields,
    Items,
    Obj,
    Other,
    Ref,
    Ten,
    Torch,
    Union,
    Value,
    union,
)


def part(m: Machine, value: Ten, n: int) -> Value:
    """The n-th of several results unpacked from one value."""
    if m.kind(value) == "tensor":
        view = "view" if value.sids[0] in m.tuples and not value.path else "multi"
        return replace(value, view=view, path=(*value.path, ("index", m.term_of(Const(n)))), choice=None)
    return declared.element(m, value, ("item", value.sids, n), n)


def item(m: Machine, base: Value, index: Value, node: ast.Subscript) -> Value:
    """`base[index]`."""
    if isinstance(base, Ten):
        return ops.index(m, base, index, node, {"self": node.value, "indices": node.slice})
    if isinstance(base, Obj):
        content = m.m.peek(base.oid)
        if isinstance(content, Items):
            return _list_item(m, base, content, index)
        if isinstance(content, Fields):
            if isinstance(content.tag, Torch):
                return _module_item(m, base, content, index)
            return _dict_item(m, base, content, index, node)
    if isinstance(base, Other):
        term = m.terms.make("item", m.term_of(base), m.term_of(index))
        return Other("number" if base.what == "size" else base.what, term)
    if isinstance(base, Union):
        return union(tuple(item(m, option, index, node) for option in base.options))
    if isinstance(base, Const) and isinstance(base.value, str):
        return Other("string")
    if isinstance(base, (Ref, Cls)):
        m.escape(index, "is given to a class in brackets")
        return base
    return Other("unknown")


def _list_item(m: Machine, base: Obj, content: Items, index: Value) -> Value:
    items = content.items
    if isinstance(index, Const) and isinstance(index.value, int) and items:
        position = index.value
        if -len(items) <= position < len(items) and (position >= 0 or not content.open):
            return items[position]
        if content.open:
            return union(items)
    if isinstance(index, Other) and index.what == "slice":
        known = None if content.open else _bounds(m, index)
        return m.sequence(items if known is None else items[known], base.what, known is None)
    return union(items) if items else Other("unknown")


def _bounds(m: Machine, index: Other) -> slice | None:
    """A slice whose bounds are known."""
    bounds: list[int | None] = []
    for part in m.terms.parts(index.term)[1:]:
        made = m.terms.parts(int(str(part)))
        if made[0] != "const" or made[1] not in ("int", "NoneType"):
            return None
        bounds.append(int(str(made[2])) if made[1] == "int" else None)
    return slice(*bounds) if len(bounds) == 3 and bounds[2] != 0 else None


def _module_item(m: Machine, base: Obj, content: Fields, index: Value) -> Value:
    children = [(k, v) for k, v in content.fields.items() if k not in ("training", "inplace")]
    if isinstance(index, Const) and children:
        by_name = dict(children)
        if index.value in by_name:
            return by_name[index.value]
        if isinstance(index.value, int) and -len(children) <= index.value < len(children):
            return children[index.value][1]
    if isinstance(index, Other) and index.what == "slice" and children:
        return m.record(dict(content.fields), "module", content.open, content.tag)
    return union(tuple(v for _, v in children)) if children else Other("unknown")


def _dict_item(m: Machine, base: Obj, content: Fields, index: Value, node: ast.AST) -> Value:
    if base.what == "instance":
        method = m.method_of(base, "__getitem__")
        if method is not None:
            return m.call(method, [index], {}, node)
        return Other("unknown")
    if isinstance(index, Const) and index.value in content.fields:
        return content.fields[index.value]
    key = ("key", m.term_of(index))
    if key in content.fields:
        return content.fields[key]
    if content.open or not isinstance(index, Const):
        options = tuple(content.fields.values())
        if options and not content.open:
            return union(options)
        return m.outside(("item", base.oid, str(m.term_of(index))), "element", "an element of a dict")
    return m.outside(("item", base.oid, str(m.term_of(index))), "element", "an element of a dict")


def store_item(
    m: Machine,
    base: Value,
    index: Value,
    target: ast.Subscript,
    value: Value,
    form: str = "[]=",
    node: ast.AST | None = None,
    quiet: bool = False,
) -> None:
    """`base[index] = value`."""
    node = node or m.frame.node or target
    if isinstance(base, Ten):
        if quiet:
            return
        if m.kind(base) == "unknown" and isinstance(index, Const) and isinstance(index.value, str):
            declared.used_as(m, base, "dict")
        if declared.of(m, base) is not None:
            writes.other(m, node, base)
        if m.kind(base) == "unknown":
            m.escape(index, "is a key")
            m.escape(value, "was stored in something unknown")
        _tensor_item(m, base, index, value, form, node, target)
        return
    if isinstance(base, Obj):
        content = m.m.peek(base.oid)
        if isinstance(content, Items):
            if base.what == "tuple":
                m.observe("raises", m.terms.make("no item assignment"))
            items = list(content.items)
            if isinstance(index, Const) and isinstance(index.value, int) and -len(items) <= index.value < len(items):
                items[index.value] = value
                m.m.cells[base.oid] = Items(tuple(items), content.open)
            else:
                m.m.cells[base.oid] = Items(tuple(union((i, value)) for i in items), content.open)
        elif isinstance(content, Fields) and base.what == "dict":
            key: object = index.value if isinstance(index, Const) else ("key", m.term_of(index))
            m.escape(index, "is a key")
            m.m.put(base.oid, key, value)
        else:
            method = m.method_of(base, "__setitem__")
            if method is not None and not quiet:
                m.call(method, [index, value], {}, node)
        if not quiet:
            writes.other(m, node, base)
        return
    if not quiet:
        writes.other(m, node, base)
        m.escape(index, "is a key")
        m.escape(value, "was stored elsewhere")
        m.observe("set item", m.term_of(base), m.term_of(index), m.term_of(value), m.graphs_of(value))


def _tensor_item(
    m: Machine, base: Ten, index: Value, value: Value, form: str, node: ast.AST, target: ast.Subscript
) -> None:
    """A write to a part of a tensor; a mask fill has the term of `masked_fill`."""
    if base.choice is not None:
        steps: tuple[int, ...] = (m.term_of(index),)
        whole = True
    else:
        steps, gathers, _ = ops.index_steps(m, index)
        whole = gathers
    tensors = ops.tensors(m, value)
    cast = not m.lenient and ops.turned(m, base)
    if whole and isinstance(value, (Const, Other)) and isinstance(index, Ten):
        term = m.terms.make("masked_fill", m.read(base), m.term_of(index), m.term_of(value))
    elif whole:
        term = m.terms.make("index_put", m.read(base), *steps, m.term_of(value))
    else:
        written = replace(base, path=(*base.path, ("index", *steps)), view=base.view or "view")
        writes.record(m, base, "copy", node, form, None, tensors, part=written)
        made = m.node([base, *tensors]) if m.grad != "off" else None
        casted = m.term_of(value)
        graph = sharing.graph(m, casted, tensors) if m.grad != "off" else None
        writes.store(m, written, casted, graph, made, tensors)
        return
    if cast:
        term = m.terms.make("cast", term)
    writes.record(m, base, "index_put", node, form, None, tensors, cast=cast)
    made = m.node([base, *tensors]) if m.grad != "off" else None
    graph = sharing.graph(m, term, [base, *tensors]) if m.grad != "off" else None
    writes.store(m, base, term, graph, made, tensors)


def extend(m: Machine, value: Obj, more: list[Value], opened: bool) -> None:
    """`list += more`."""
    content = m.items_of(value)
    items = content.items + tuple(more)
    for item in items[40:]:
        m.escape(item, "lies deep in a list")
    m.m.cells[value.oid] = Items(items[:40], content.open or opened or len(items) > 40)
