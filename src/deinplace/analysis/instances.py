"""Making instances of the project's own classes."""

from __future__ import annotations

import ast

from deinplace.analysis import modules
from deinplace.analysis.index import ClassInfo
from deinplace.analysis.machine import Machine
from deinplace.analysis.unknown import Keywords, unknown
from deinplace.analysis.values import (
    Cls,
    Const,
    Value,
)


def instantiate(m: Machine, cls: Cls, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    """Construct one of the project's classes."""
    outside = [b for b in m.bases(cls.info) if isinstance(b, str)]
    if looked_at(m, cls.info) or _special_class(m, cls.info):
        for given in (*args, *keywords.values()):
            m.escape(given, f"was given to {cls.info.name}")
    tag: object = cls.info
    value = m.record({}, "instance", tag=tag)
    if m.is_module(cls.info):
        m.m.put(value.oid, "training", Const(True))
        container = next((b for b in outside if b in modules.CONTAINERS), None)
        if container is not None and m.find_method(cls.info, "__init__") is None:
            return modules.construct(m, container, args, keywords, node)
    method = m.method_of(value, "__init__")
    if method is not None:
        m.call(method, args, keywords, node)
    elif any(ast.unparse(d).partition("(")[0].endswith("dataclass") for d in cls.info.node.decorator_list):
        names = [
            s.target.id for s in cls.info.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        ]
        for name, item in [*zip(names, args, strict=False), *keywords.items()]:
            if m.mem is not None:
                m.m.put(value.oid, name, item)
    elif args and any(b not in ("object", "Exception") for b in outside) and m.mem is not None:
        return unknown(m, cls, args, keywords, node, cls.info.name)
    return value


_CALLED = frozenset(
    {
        "__init__",
        "__call__",
        "__enter__",
        "__exit__",
        "__iter__",
        "__getitem__",
        "__setitem__",
        "__setattr__",
        "__getattr__",
    }
)
"""Special methods that are followed where they run."""


def looked_at(m: Machine, info: ClassInfo) -> bool:
    """True for a class with special methods that run where no call stands, or with attributes that have such."""
    known = m.looked_at.get(info)
    if known is None:
        m.looked_at[info] = False
        bases = [b for b in m.bases(info) if isinstance(b, ClassInfo)]
        names = {name for base in bases for name in base.methods}
        fields = [v for base in bases for v in m.class_fields.get(base, {}).values()]
        owners = [owner for v in fields if (owner := m.class_of(v)) is not None]
        special = any(name.startswith("__") and name.endswith("__") for name in names - _CALLED)
        known = m.looked_at[info] = special or any(looked_at(m, owner) for owner in owners)
    return known


def _special_class(m: Machine, info: ClassInfo) -> bool:
    """True where a metaclass of the project's own makes the instances."""
    return any(
        keyword.arg == "metaclass" and not m.text(keyword.value).endswith("ABCMeta")
        for base in m.bases(info)
        if isinstance(base, ClassInfo)
        for keyword in base.node.keywords
    )
