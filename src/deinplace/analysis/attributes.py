"""Attributes and elements: reading and writing them."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import calls, context, declared, facts, instances, names, ops, writes
from deinplace.analysis.machine import Machine
from deinplace.analysis.modules import MODULE_METHODS, parameter_of
from deinplace.analysis.records import UnreachedError
from deinplace.analysis.values import (
    NONE,
    NUMBER,
    Bound,
    Cls,
    Const,
    Fields,
    Fn,
    Items,
    Mod,
    Obj,
    Other,
    Ref,
    Super,
    Ten,
    Torch,
    Union,
    Value,
    union,
)

_PLAIN = (
    "shape",
    "dtype",
    "device",
    "ndim",
    "requires_grad",
    "is_leaf",
    "grad_fn",
    "layout",
    "is_cuda",
    "names",
    "itemsize",
)


DEEP = 4
"""As many attributes of attributes are looked through where what an object holds is compared."""


def get(m: Machine, base: Value, attr: str, node: ast.AST) -> Value:
    """`base.attr`."""
    if isinstance(base, Ten):
        return _tensor_attribute(m, base, attr)
    if isinstance(base, Ref):
        return Ref(f"{base.name}.{attr}")
    if isinstance(base, Mod):
        return names.module_attribute(m, m.index.modules[base.path], attr)
    if isinstance(base, Obj):
        return _object_attribute(m, base, attr, node)
    if isinstance(base, Cls):
        return _class_attribute(m, base, attr)
    if isinstance(base, Super):
        return calls.super_method(m, base, attr)
    if isinstance(base, Union):
        # None has hardly any attributes: whoever gets there holds one of the others.
        options = tuple(o for o in base.options if o != NONE) or base.options
        options = tuple(o for o in options if not _lacks(o, attr)) or options
        return union(tuple(get(m, option, attr, node) for option in options))
    if isinstance(base, (Const, Other)):
        if isinstance(base, Other) and base.what == "unknown":
            return Other("unknown")
        return Bound(base, attr)
    return Bound(base, attr)


def _tensor_attribute(m: Machine, base: Ten, attr: str) -> Value:
    if attr == "_version":
        m.notes.add("reads a version counter")
    known = m.kind(base) == "tensor"
    if attr in ("shape",):
        m.refine(base, "has .shape", "likely")
        return Other("size", m.terms.make("shape", m.read(base)))
    if attr == "data" and (known or facts.method("data") is not None):
        return replace(base, cut=True) if known else m.outside(("attr", base.sids, attr), "attribute", "`.data`")
    if attr == "grad":
        term = m.terms.make("grad", m.read(base), len(m.sinks))
        return m.outside(
            ("attr", base.sids, "grad"),
            "attribute",
            "a gradient",
            "tensor" if known else "unknown",
            grad="no",
            graph=0,
            dtype=m.dtype_of(base),
            term=term,
        )
    entry = facts.method(attr)
    if known and attr in _PLAIN:
        return Other("number", m.terms.make(attr, m.read(base)))
    if entry is not None and getattr(entry, "attribute", False) and known:
        return ops.operate(m, attr, {"self": base}, m.frame.node or ast.Pass(), {}, entry=entry)
    if entry is not None and not getattr(entry, "attribute", False):
        return Bound(base, attr)
    if known or declared.method_of_containers(attr):
        return Bound(base, attr)
    if attr in ("device", "dtype", "requires_grad", "ndim"):
        return Other("number", m.terms.make(attr, m.read(base)))
    return m.outside(("attr", base.sids, attr), "attribute", f"attribute `{attr}` of a value of unknown kind")


def _lacks(base: Value, attr: str) -> bool:
    """True for a method of tensors that a list or dict does not have: Python raises."""
    plain = isinstance(base, Obj) and base.what in ("list", "dict")
    return plain and facts.method(attr) is not None and not (hasattr(list, attr) or hasattr(dict, attr))


def _object_attribute(m: Machine, base: Obj, attr: str, node: ast.AST) -> Value:
    if _lacks(base, attr):
        raise UnreachedError
    content = m.m.peek(base.oid)
    if isinstance(content, Items) and attr in (members := m.names.get(base.oid, ())):
        return content.items[members.index(attr)]
    if not isinstance(content, Fields) or base.what == "dict":
        return Bound(base, attr)
    if attr in content.fields:
        held = content.fields[attr]
        changes = base == m.me and isinstance(held, Const) and attr in m.index.assigned
        return union((held, Other("unknown"))) if changes else held
    if isinstance(content.tag, Torch):
        if attr in ("weight", "bias") and facts.has_parameters(content.tag.name):
            return parameter_of(m, base, attr)
        if attr.isdigit() and int(attr) in content.fields:
            return content.fields[int(attr)]
        return Bound(base, attr)
    method = m.method_of(base, attr)
    owner = m.class_of(base)
    if method is not None:
        if isinstance(method, Fn) and context.special(method.info.node) == "property":
            method = m.call(method, [], {}, node)
        again = base == m.me and owner is not None and attr in m.index.overridden.get(owner.name, ())
        return union((method, Other("unknown"))) if again else method
    if owner is not None:
        found = m.class_field(owner, attr)
        if found is not None:
            again = base == m.me and (attr in m.index.assigned or attr in m.index.overridden.get(owner.name, ()))
            return union((found, Other("unknown"))) if again else found
    if attr in ("__class__", "__dict__", "__name__"):
        m.escape(base, f"is seen through {attr}")
        return Other("unknown")
    if owner is not None and (m.is_module(owner) and hasattr_module(attr)):
        return Bound(base, attr)
    if owner is not None and m.find_method(owner, "__getattr__") is not None:
        m.escape(base, "is seen through __getattr__")
    value = m.outside(("attr", base.oid, attr), "attribute", f"attribute `{attr}`, set elsewhere")
    m.m.put(base.oid, attr, value)
    return value


def hasattr_module(attr: str) -> bool:
    """True for the methods that every nn.Module has."""
    return attr in MODULE_METHODS


def _class_attribute(m: Machine, base: Cls, attr: str) -> Value:
    method = m.find_method(base.info, attr)
    if method is not None:
        special = context.special(method.node)
        closure = ()
        return Fn(method, closure, base if special == "classmethod" else None, m.defaults_of(method))
    found = m.class_field(base.info, attr)
    return found if found is not None else Bound(base, attr)


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


def store(m: Machine, base: Value, target: ast.Attribute, value: Value, quiet: bool = False) -> None:
    """`base.attr = value`; `quiet` for the write-back of an augmented assignment."""
    attr = target.attr
    if isinstance(base, Ten):
        if attr in ("real", "imag") and m.kind(base) != "unknown" and not quiet:
            view = ops.operate(m, attr, {"self": base}, target, {})
            if isinstance(view, Ten):
                writes.apply(m, view, "copy", {"src": value}, m.frame.node or target, "setattr", {})
        elif attr == "data" and not quiet:
            m.observe("set data", m.read(base), m.term_of(value))
            m.escape(value, "became the data of another tensor")
            writes.record(m, replace(base, cut=True), "set_data", m.frame.node or target, "setattr")
        elif not quiet:
            m.observe("set", attr, m.read(base), m.term_of(value), m.graphs_of(value))
            m.escape(value, "was stored elsewhere")
            if attr != "requires_grad" and value != NONE:
                m.escape(base, f"holds an attribute `{attr}`")  # a new tensor would not
            if attr == "requires_grad" and isinstance(value, Const):
                m.call(Bound(base, "requires_grad_"), [value], {}, target)
            elif attr == "requires_grad":
                for sid in base.sids:
                    m.update(sid, grad="maybe")
        return
    if isinstance(base, Obj) and base.what in ("instance", "module"):
        owner = m.class_of(base)
        special_store = owner is not None and (m.find_method(owner, "__setattr__") or m.find_method(owner, attr))
        if special_store:
            m.notes.add("custom attributes")
            m.escape(value, "is stored by a method")
        if attr == "inplace" and base.what == "module" and not quiet:
            m.flag_places[base.oid] = m.place(m.frame.node)
        m.m.put(base.oid, attr, value)
        if _nested(target) > DEEP:
            m.escape(value, "lies deep in objects")
        if owner is not None and instances.looked_at(m, owner):
            m.escape(value, "lies in an object that is asked without a call")
        return
    if isinstance(base, Mod):
        fid = m.globals.get(base.path)
        if fid is not None:
            m.m.put(fid, attr, value)
        return
    if isinstance(base, Union):
        for option in base.options:
            store(m, option, target, value, quiet)
        return
    m.escape(value, "was stored elsewhere")
    m.observe("set", attr, m.term_of(value), m.graphs_of(value))


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
        graph = ops.graph(m, casted, tensors) if m.grad != "off" else None
        writes.store(m, written, casted, graph, made, tensors)
        return
    if cast:
        term = m.terms.make("cast", term)
    writes.record(m, base, "index_put", node, form, None, tensors, cast=cast)
    made = m.node([base, *tensors]) if m.grad != "off" else None
    graph = ops.graph(m, term, [base, *tensors]) if m.grad != "off" else None
    writes.store(m, base, term, graph, made, tensors)


def extend(m: Machine, value: Obj, more: list[Value], opened: bool) -> None:
    """`list += more`."""
    content = m.items_of(value)
    items = content.items + tuple(more)
    for item in items[40:]:
        m.escape(item, "lies deep in a list")
    m.m.cells[value.oid] = Items(items[:40], content.open or opened or len(items) > 40)


def _nested(target: ast.expr) -> int:
    depth = 0
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target, depth = target.value, depth + 1
    return depth


def is_tensor_annotation(m: Machine, node: ast.expr | None) -> bool:
    """True for `Tensor`, `torch.Tensor` and optional forms of them."""
    if node is None:
        return False
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value in ("Tensor", "torch.Tensor")
    if isinstance(node, (ast.Name, ast.Attribute)):
        value = m.evaluate(node)
        return isinstance(value, Ref) and value.name in ("torch.Tensor", "torch.FloatTensor", "torch.LongTensor")
    return False


__all__ = ["NUMBER", "get", "item", "part", "store", "store_item"]
