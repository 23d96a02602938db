"""Name look-up, imports, and running a module's top level once."""

from __future__ import annotations

import ast
import builtins

from deinplace.analysis.imports import bindings
from deinplace.analysis.index import ModuleInfo
from deinplace.analysis.machine import Machine
from deinplace.analysis.records import ExhaustedError, Frame
from deinplace.analysis.values import Fields, Mod, Other, Ref, Ten, Value

_BUILTINS = frozenset(dir(builtins))
PACKAGE_STEPS = 300
"""So far a package is followed that only gathers what others may import, by whatever clever means."""


def lookup(m: Machine, name: str) -> Value:
    """What a name stands for in the running frame; the look is remembered."""
    value = _find(m, name)
    if isinstance(value, Ten) and m.frame.function == "<module>":
        m.looked.update(dict.fromkeys(value.sids, m.clock))
    return value


def _find(m: Machine, name: str) -> Value:
    frame, memory = m.frames[-1], m.m
    for fid in (frame.fid, *frame.closure):
        fields = memory.cells.get(fid) or memory.under.get(fid) or memory.born.get(fid)
        if isinstance(fields, Fields) and name in fields.fields:
            if fid == frame.fid and name in frame.shared:
                continue
            return fields.fields[name]
    top = m.globals.get(frame.module.path)
    if top is not None:
        fields = m.m.peek(top)
        if isinstance(fields, Fields):
            if name in fields.fields:
                return fields.fields[name]
            starred = _star(m, fields, name) if frame.module.starred else None
            if starred is not None:
                return starred
    if name == "__name__":
        return Other("string", m.terms.make("name"))
    if name in _BUILTINS:
        return Ref(name)
    return m.outside(("global", frame.module.path, name), "external", "a name that is not defined here")


def _star(m: Machine, fields: Fields, name: str) -> Value | None:
    for key, value in fields.fields.items():
        if not str(key).startswith("*"):
            continue
        if isinstance(value, Mod):
            found = m.m.peek(m.globals.get(value.path, -1))
            if isinstance(found, Fields):
                if name in found.fields:
                    return found.fields[name]
                deeper = _star(m, found, name) if m.index.modules[value.path].starred else None
                if deeper is not None:
                    return deeper
        elif isinstance(value, Ref) and value.name.startswith("torch") and name not in _BUILTINS:
            return Ref(f"{value.name}.{name}")
    return None


def import_statement(m: Machine, node: ast.Import | ast.ImportFrom) -> None:
    """Bind what an import binds."""
    module = m.frame.module
    fields = m.m.fields(m.frame.fid)
    for name, dotted in bindings(node, module.package, len(fields.fields)):
        m.m.put(m.frame.fid, name, resolve(m, dotted, module.path))


def resolve(m: Machine, dotted: str, near: str) -> Value:
    """A dotted name: a module of the project, something in one, or something outside."""
    found = m.index.module(dotted, near)
    if found is not None:
        run_module(m, found)
        return Mod(found.path)
    base, _, last = dotted.rpartition(".")
    if base:
        holder = m.index.module(base, near)
        if holder is not None:
            return module_attribute(m, holder, last)
    return Ref(dotted)


def module_attribute(m: Machine, holder: ModuleInfo, name: str) -> Value:
    """What a module of the project binds `name` to."""
    run_module(m, holder)
    fields = m.m.peek(m.globals.get(holder.path, -1))
    if isinstance(fields, Fields):
        if name in fields.fields:
            return fields.fields[name]
        starred = _star(m, fields, name) if holder.starred else None
        if starred is not None:
            return starred
    inner = m.index.module(f"{holder.name}.{name}", holder.path)
    if inner is not None and inner is not holder:
        run_module(m, inner)
        return Mod(inner.path)
    return m.outside(("global", holder.path, name), "external", "a name that is not defined there")


def run_module(m: Machine, module: ModuleInfo) -> bool:
    """Run a module's top level, unless that has begun already; true where no path gets to its end.

    While programs run, a module runs beside the path that imports it: what it makes is settled for all paths, so that
    these have little to carry.
    """
    known = m.globals.get(module.path)
    if known is not None and m.m.peek(known) is not None:
        return False
    before = m.m
    fid = m.new_id()
    if m.settling:
        m.mem = before.fork()
    beside = m.m
    beside.make(fid, Fields({}))
    m.globals[module.path] = fid
    grad, m.grad = m.grad, "on"
    m.frames.append(Frame(fid, module, module.source.tree, "<module>"))
    _top_level(m, module)
    m.frames.pop()
    m.grad = grad
    after = m.mem
    if m.settling:
        before.absorb(after or beside, fid)
    m.mem = before if m.settling or after is None else after
    return after is None


def _top_level(m: Machine, module: ModuleInfo) -> None:
    """Run a module's statements, those of a mere package not too far; each module has steps of its own.

    In a hurry, calls that make no tensor and no module are followed only a little way in what others import.
    """
    depth, left, building = len(m.frames), m.steps, m.building
    package = module.path.endswith("__init__.py") and b"torch" not in module.source.data
    if m.settling:
        m.steps = PACKAGE_STEPS if package else m.most
        m.building = m.hasty and module.path in m.index.imported
    try:
        m.execute(module.source.tree.body)
    except ExhaustedError:
        if not m.settling or not package:
            raise
        del m.frames[depth:]
    finally:
        m.building = building
    if m.settling:
        m.steps = left
