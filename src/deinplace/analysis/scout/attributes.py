"""Attributes in a quick look."""

from __future__ import annotations

from deinplace.analysis import facts
from deinplace.analysis.context import special
from deinplace.analysis.index import ClassInfo
from deinplace.analysis.modules import MODULE_METHODS
from deinplace.analysis.scout import calls, effects
from deinplace.analysis.scout.members import (
    CUT,
    EXPANDED,
    FRACTION,
    MULTI,
    NOTHING,
    OPAQUE,
    WHOLE,
    Code,
    Layer,
    Member,
    Parent,
    Thing,
    Value,
    contents,
)
from deinplace.analysis.scout.state import Scout
from deinplace.analysis.values import Cls, Const, Mod, Ref

_MARKS = (MULTI, EXPANDED, WHOLE, FRACTION, CUT)


_NUMBERS = ("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "is_cuda", "itemsize", "names")


def attribute(s: Scout, base: Value, attr: str) -> Value:
    """`base.attr`."""
    out: set[Member] = set()
    for member in base:
        if isinstance(member, int):
            out |= _of_cell(s, member, base, attr)
        elif isinstance(member, Ref):
            out.add(Ref(f"{member.name}.{attr}"))
        elif isinstance(member, Mod):
            out |= s.of_file(member.path, attr)
        elif isinstance(member, Thing):
            out |= of_thing(s, member, attr)
        elif isinstance(member, Cls):
            out |= _of_class(s, member, attr)
        elif isinstance(member, Parent):
            out |= _of_parent(s, member, attr)
        elif isinstance(member, Layer):
            if attr in ("weight", "bias") and facts.has_parameters(member.name):
                leaf = s.derived(member, attr)
                s.leaves.add(leaf)
                s.likely.add(leaf)
                out.add(leaf)
            elif member.children is not None:
                out |= contents(member.children)
        elif member is OPAQUE:
            out.add(OPAQUE)
    return frozenset(out)


def _of_cell(s: Scout, cell: int, base: Value, attr: str) -> Value:
    if attr in _NUMBERS:
        if attr == "shape":
            s.likely.add(cell)
        return NOTHING
    entry = facts.method(attr)
    if entry is not None and getattr(entry, "attribute", False) and attr != "grad":
        marks = {m for m in base if m in _MARKS}
        return frozenset({cell, *marks, CUT} if attr == "data" else {cell, *marks})
    return frozenset({cell if attr in facts.members() else s.derived(cell, attr)})


def of_thing(s: Scout, thing: Thing, attr: str) -> Value:
    """An attribute of an instance."""
    s.read.add(attr)
    held = thing.fields.get(attr)
    if held is not None:
        return held
    method = s.find_method(thing.info, attr)
    if method is not None:
        static = special(method.node)
        bound = frozenset(
            {Code(method.node, method.path, method, None if static == "staticmethod" else frozenset({thing}))}
        )
        return calls.call(s, bound, [], {}) if static == "property" else bound
    found = s.constants.get((thing.info, attr))
    if found is None:
        found = s.constants[thing.info, attr] = _class_field(s, thing.info, attr)
    return found if found else frozenset({s.derived(thing, attr)})


def _class_field(s: Scout, info: ClassInfo, attr: str) -> Value:
    for base in s.bases(info):
        stmt = base.bound.get(attr) if isinstance(base, ClassInfo) else None
        if stmt is not None and isinstance(base, ClassInfo):
            return s.bound_at_top(base.path, stmt, attr)
    return NOTHING


def _of_class(s: Scout, cls: Cls, attr: str) -> Value:
    method = s.find_method(cls.info, attr)
    if method is not None:
        me = frozenset({cls}) if special(method.node) == "classmethod" else None
        return frozenset({Code(method.node, method.path, method, me)})
    return _class_field(s, cls.info, attr)


def _of_parent(s: Scout, parent: Parent, attr: str) -> Value:
    out: set[Member] = set()
    for member in parent.me:
        info = member.info if isinstance(member, (Thing, Cls)) else None
        if info is None:
            continue
        method = s.find_method(info, attr, parent.after)
        if method is not None:
            out.add(Code(method.node, method.path, method, frozenset({member})))
        elif attr in MODULE_METHODS and isinstance(member, Thing):
            return NOTHING
    return frozenset(out)


def set_attribute(s: Scout, base: Value, attr: str, value: Value) -> None:
    """`base.attr = value`."""
    for member in base:
        if isinstance(member, Thing):
            known = member.fields.get(attr)
            member.fields[attr] = value if known is None else known | value
            if member not in s.scope.me and (known is None or not value <= known):
                s.forget(attr)
        elif isinstance(member, Layer) and attr == "inplace" and not value <= member.inplace:
            member.inplace |= value
            s.forget("inplace")
        elif isinstance(member, int) and attr == "requires_grad":
            if value != {Const(False)}:
                s.leaves.add(member)
                s.constant.discard(member)
        elif isinstance(member, int) and attr in ("data", "real", "imag"):
            kept, s.grad = s.grad, s.grad and attr != "data"
            effects.write(s, frozenset({member}), "copy", [value])
            s.grad = kept
