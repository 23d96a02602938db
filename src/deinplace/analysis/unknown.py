"""Calls into code that nobody has read: what they may keep, write and return."""

from __future__ import annotations

import ast

from deinplace.analysis import ops
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    Fn,
    Obj,
    Ten,
    Value,
)

Keywords = dict[str, Value]


def unknown(m: Machine, func: Value, args: list[Value], keywords: Keywords, node: ast.AST, name: str = "") -> Value:
    """A call that leads out of what is known: arguments may be kept, and are seen as they are now."""
    label = name or _label(m, node)
    values = [*args, *keywords.values()]
    for value in values:
        m.escape(value, f"was given to {label}")
        if isinstance(value, Fn) or (isinstance(value, Obj) and value.what in ("instance", "module")):
            m.notes.add("code handed out")
    terms = tuple(m.term_of(v, 3) for v in values) if m.traced else ()
    m.observe("call", label, *terms, *(m.graphs_of(v) for v in values if m.traced))
    likely = any(isinstance(v, Ten) and m.kind(v) != "unknown" for v in values)
    grad = m.mixed([t for v in values for t in ops.tensors(m, v)])
    term = m.terms.make("called", label, m.serial(), *terms)
    sid = m.outside(("called", term), "fresh", f"returned by {label}", "likely" if likely else "unknown", term=term)
    found = [t for v in values for t in ops.tensors(m, v)]
    if m.mem is not None and found:
        parents = m.node(found)
        m.update(sid.sids[0], nodes=frozenset({parents}), grad="maybe" if grad != "no" else "no")
    return sid


def _label(m: Machine, node: ast.AST) -> str:
    return m.text(node.func) if isinstance(node, ast.Call) else "a call"
