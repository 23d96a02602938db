"""What a statement does, in an abstract run."""

from __future__ import annotations

import ast
from collections.abc import Callable

from deinplace.analysis import attributes, context, declared, elements, facts, flow, writes
from deinplace.analysis.binding import assign, bind, delete
from deinplace.analysis.expressions import evaluate
from deinplace.analysis.iteration import every
from deinplace.analysis.machine import Machine
from deinplace.analysis.names import import_statement, lookup
from deinplace.analysis.operators import OPERATORS, binary
from deinplace.analysis.records import UnreachedError
from deinplace.analysis.source import names_in, span_of
from deinplace.analysis.values import (
    NONE,
    Cls,
    Fn,
    Obj,
    Ten,
    Value,
)
from deinplace.model import Span


def execute(m: Machine, body: list[ast.stmt]) -> None:
    """Run statements until the path ends."""
    depth, loops, grad = len(m.frames), len(m.frame.loops), m.grad
    for stmt in body:
        if m.mem is None:
            return
        m.step()
        m.frame.node = stmt
        handler = _HANDLERS.get(type(stmt))
        if handler is None:
            continue
        try:
            handler(m, stmt)
        except UnreachedError:
            del m.frames[depth:]
            del m.frame.loops[loops:]
            m.mem, m.grad = None, grad


def _assign(m: Machine, node: ast.Assign) -> None:
    value = evaluate(m, node.value)
    for target in node.targets:
        assign(m, target, value)


def _annotated(m: Machine, node: ast.AnnAssign) -> None:
    if node.value is not None:
        value = evaluate(m, node.value)
        if isinstance(value, Ten) and attributes.is_tensor_annotation(m, node.annotation):
            m.refine(value, "annotated as a tensor")
        assign(m, node.target, value)


def _augmented(m: Machine, node: ast.AugAssign) -> None:
    target = node.target
    base: Value = NONE
    index: Value = NONE
    if isinstance(target, ast.Name):
        old = lookup(m, target.id)
    elif isinstance(target, ast.Attribute):
        base = evaluate(m, target.value)
        old = attributes.get(m, base, target.attr, target)
    else:
        base = evaluate(m, target.value)
        index = evaluate(m, target.slice)
        old = elements.item(m, base, index, target)
    right = evaluate(m, node.value)
    name = OPERATORS[type(node.op)][0]
    m.frame.node = node
    if isinstance(old, Ten) and not facts.augments(_SPECIAL[type(node.op)]):
        assign(m, target, binary(m, node.op, old, right, node, (target, node.value)))
        return
    if isinstance(old, Ten):
        if declared.of(m, old) is not None:
            writes.other(m, node, old)
        if isinstance(target, ast.Subscript) and isinstance(base, Ten):
            known = len(m.saves)
            fresh = binary(m, node.op, old, right, node, (target, node.value))
            _as_in_place(m, known, old, fresh, span_of(target))
            elements.store_item(m, base, index, target, fresh, "+=", node)
            return
        parts = {"other": node.value}
        value: Value = writes.apply(m, old, name, {"other": right}, node, "aug", parts)
    else:
        value = _plain(m, node, old, right, target)
    if isinstance(target, ast.Name):
        bind(m, target.id, value)
    elif isinstance(target, ast.Attribute):
        attributes.store(m, base, target, value, quiet=True)
    else:
        elements.store_item(m, base, index, target, value, quiet=True)


def _as_in_place(m: Machine, known: int, old: Ten, fresh: Value, span: Span) -> None:
    """What an operation in place saves otherwise: its target as a copy, and its result where the target lies."""
    for number in range(known, len(m.saves)):
        save = m.saves[number]
        only = frozenset({number})
        if save.role == "input" and save.expression == span:
            cell = m.storage(save.sid)
            m.update(save.sid, saves=cell.saves - only, maybe=cell.maybe - only)
        elif save.role == "output" and isinstance(fresh, Ten) and save.sid in fresh.sids and old.view:
            for sid in old.sids:
                m.update(sid, saves=m.storage(sid).saves | only)


def _plain(m: Machine, node: ast.AugAssign, old: Value, right: Value, target: ast.expr) -> Value:
    """An augmented assignment to something that is not a tensor."""
    writes.other(m, node, old)
    if isinstance(old, Obj) and old.what == "list" and isinstance(node.op, ast.Add):
        elements.extend(m, old, *every(m, right, node))
        return old
    owner = m.class_of(old)
    if owner is not None:
        m.call(attributes.get(m, old, _SPECIAL[type(node.op)], node), [right], {}, node)
        return old
    parts = (ast.copy_location(ast.Name("_", ast.Load()), node), node.value)
    return binary(m, node.op, old, right, node, parts)


_SPECIAL: dict[type[ast.operator], str] = {
    ast.Add: "__iadd__",
    ast.Sub: "__isub__",
    ast.Mult: "__imul__",
    ast.Div: "__itruediv__",
    ast.FloorDiv: "__ifloordiv__",
    ast.Mod: "__imod__",
    ast.Pow: "__ipow__",
    ast.MatMult: "__imatmul__",
    ast.BitAnd: "__iand__",
    ast.BitOr: "__ior__",
    ast.BitXor: "__ixor__",
    ast.LShift: "__ilshift__",
    ast.RShift: "__irshift__",
}


def _expression(m: Machine, node: ast.Expr) -> None:
    m.discarded = node.value
    evaluate(m, node.value)


def _return(m: Machine, node: ast.Return) -> None:
    value = evaluate(m, node.value) if node.value is not None else NONE
    if m.mem is not None:
        m.frame.returns.append((value, m.mem))
    m.mem = None


def _raise(m: Machine, node: ast.Raise) -> None:
    m.mem = None


def _function(m: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    info = m.frame.module.functions[node]
    plain = [*node.args.posonlyargs, *node.args.args]
    defaults = [(a.arg, evaluate(m, d)) for a, d in zip(plain[::-1], node.args.defaults[::-1], strict=False)]
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None:
            defaults.append((arg.arg, evaluate(m, default)))
    closure = () if m.frame.function == "<module>" else (m.frame.fid, *m.frame.closure)
    value: Value = Fn(info, closure, None, tuple(defaults))
    m.m.put(m.frame.fid, node.name, context.decorated(m, value, node))


def _class(m: Machine, node: ast.ClassDef) -> None:
    info = m.frame.module.classes[node]
    m.m.put(m.frame.fid, node.name, Cls(info))
    fields = {}
    for stmt in node.body:
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
            fields[stmt.targets[0].id] = evaluate(m, stmt.value)
        elif isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name) and stmt.value is not None:
            fields[stmt.target.id] = evaluate(m, stmt.value)
    m.class_fields[info] = fields
    for value in fields.values() if m.frame.function != "<module>" else ():
        m.escape(value, "is held by a class")
    for method in info.methods.values():
        args = method.node.args
        if not all(d is None or isinstance(d, ast.Constant) for d in (*args.defaults, *args.kw_defaults)):
            for _, default in m.defaults_of(method):
                m.escape(default, "is a default of a method")
    if m.frame.function != "<module>":
        flow.taken_along(m, names_in([node]), "is read by a local class")


def _import(m: Machine, node: ast.Import | ast.ImportFrom) -> None:
    import_statement(m, node)


def _shared(m: Machine, node: ast.Global | ast.Nonlocal) -> None:
    m.frame.shared.update(node.names)


_HANDLERS: dict[type[ast.stmt], Callable[..., None]] = {
    **flow.HANDLERS,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Global: _shared,
    ast.Nonlocal: _shared,
    ast.Delete: delete,
}
