"""Attributes and elements: reading and writing them."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import calls, context, declared, facts, instances, names, ops, writes
from deinplace.analysis.machine import Machine
from deinplace.analysis.members import parameter_of
from deinplace.analysis.modules import MODULE_METHODS
from deinplace.analysis.records import UnreachedError
from deinplace.analysis.values import (
    NONE,
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
        return replace(base, cut="unseen") if known else m.outside(("attr", base.sids, attr), "attribute", "`.data`")
    if attr == "grad":
        term = m.terms.make("grad", m.read(base), m.own_graph(base), len(m.sinks))
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
        return Other("number", m.terms.make(attr, m.read(base), *([m.own_graph(base)] if attr == "is_leaf" else [])))
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
            writes.record(m, replace(base, cut="unseen"), "set_data", m.frame.node or target, "setattr")
        elif not quiet:
            m.observe("set", attr, m.read(base), m.own_graph(base), m.term_of(value), m.graphs_of(value))
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
        if not quiet and _takes_a_parameters_place(m, base, attr, value):
            m.observe("raises", m.terms.make("no parameter", attr))
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


def _takes_a_parameters_place(m: Machine, base: Obj, attr: str, value: Value) -> bool:
    """True for a plain tensor that is assigned where a module holds a parameter: the module refuses it."""
    held = m.fields_of(base).fields.get(attr)

    def registered(tensor: Value | None) -> bool:
        return isinstance(tensor, Ten) and any("parameter" in m.storage(sid).flags for sid in tensor.sids)

    return registered(held) and isinstance(value, Ten) and not registered(value)


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
