"""What code asks about its own objects: attributes by name, kinds, and what names hold."""

from __future__ import annotations

import ast
from collections.abc import Callable

from deinplace.analysis import attributes
from deinplace.analysis.iteration import iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    NONE,
    NUMBER,
    Cls,
    Const,
    Fields,
    Mod,
    Obj,
    Other,
    Ref,
    Ten,
    Union,
    Value,
)


def _getattr(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    for default in args[2:]:
        m.escape(default, "is a default of getattr()")
    if len(args) > 1 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        return attributes.get(m, args[0], args[1].value, node)
    for value in args[:1]:
        m.escape(value, "is seen through getattr")
    if isinstance(args[0] if args else None, Ref):
        return Other("unknown")
    return m.outside(("getattr", m.serial()), "attribute", "an attribute chosen at run time")


def _setattr(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(args) == 3 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        target = ast.Attribute(ast.Name("_", ast.Load()), args[1].value, ast.Store())
        attributes.store(m, args[0], ast.copy_location(target, node), args[2])
    elif len(args) == 3:
        if isinstance(args[0], Obj) and args[0].what in ("instance", "module"):
            m.m.put(args[0].oid, ("attribute", m.term_of(args[1])), args[2])
        else:
            m.escape(args[2], "was stored elsewhere")
    return NONE


def is_instance(m: Machine, value: Value, about: Value) -> Value:
    """`isinstance(value, about)`: a constant where it is known."""
    options = [about]
    if isinstance(about, Obj):
        options = list(iterate(m, about, ast.Pass())[0])
    answers = [_is_one(m, value, option) for option in options]
    if True in answers:
        return Const(True)
    return NUMBER if None in answers else Const(False)


def _is_one(m: Machine, value: Value, about: Value) -> bool | None:
    if isinstance(value, Union):
        found = {_is_one(m, o, about) for o in value.options}
        return found.pop() if len(found) == 1 else None
    if isinstance(about, Cls):
        owner = m.class_of(value)
        if owner is not None:
            return about.info in m.bases(owner)
        return False if m.torch_tag(value) is not None or isinstance(value, Const) else None
    if not isinstance(about, Ref):
        return None
    tag = m.torch_tag(value)
    if tag is not None:
        base = about.name in ("torch.nn.Module", "object") or (about.name.endswith("Container"))
        return base or tag.name == about.name or (None if "_" in about.name.rpartition(".")[2] else False)
    owner = m.class_of(value)
    if owner is not None:
        names = [b for b in m.bases(owner) if isinstance(b, str)]
        return about.name in names or (about.name == "torch.nn.Module" and m.is_module(owner))
    if isinstance(value, Ten):
        if about.name.endswith("Tensor") and about.name.startswith("torch"):
            return True if m.kind(value) == "tensor" else None
        return False if m.kind(value) == "tensor" else None
    if isinstance(value, Const):
        known = {"int": int, "float": float, "str": str, "bool": bool}.get(about.name)
        return isinstance(value.value, known) if known is not None else False
    if isinstance(value, Obj):
        return value.what == about.name if about.name in ("list", "tuple", "dict") else False
    return None


def _globals(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`globals()`: whoever has it sees what this module's names hold."""
    fid = m.globals.get(m.frame.module.path)
    return _seen(m, set() if fid is None else {fid}, args)


def _locals(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`locals()`, and `vars()` of nothing: what this function's names hold; `vars(x)`: what x holds."""
    if not args:
        return _seen(m, {m.frame.fid, *m.frame.closure}, args)
    if isinstance(args[0], Mod):
        return _seen(m, {m.globals[args[0].path]} if args[0].path in m.globals else set(), args)
    return _seen(m, set(), args) if isinstance(args[0], Obj) else _anything(m, args, keywords, node)


def _anything(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`exec()` and `eval()` reach every name that there is."""
    return _seen(m, {m.frame.fid, *m.frame.closure, *m.globals.values()}, args)


def _seen(m: Machine, frames: set[int], args: list[Value]) -> Value:
    for fid in frames:
        fields = m.m.peek(fid)
        if not isinstance(fields, Fields) or (m.settling and m.exposed.get(fid) is fields):
            continue  # packages that load lazily ask once each: what they all saw before is not looked through again
        if m.settling:
            m.exposed[fid] = fields
        for value in list(fields.fields.values()):
            m.escape(value, "is seen by its name", 1)
    for value in args:
        m.escape(value, "is seen by its name")
    return Other("unknown")


def _identity(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    return args[0] if args else NONE


FUNCTIONS: dict[str, Callable[[Machine, list[Value], dict[str, Value], ast.AST], Value]] = {
    "getattr": _getattr,
    "setattr": _setattr,
    "globals": _globals,
    "locals": _locals,
    "vars": _locals,
    "exec": _anything,
    "eval": _anything,
    "torch.compile": _identity,
    "torch.jit.script": _identity,
    "torch.nn.DataParallel": _identity,
}
