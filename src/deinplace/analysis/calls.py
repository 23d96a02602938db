"""Calls: into the project's functions and classes, into torch, and into the unknown."""

from __future__ import annotations

import ast

from deinplace.analysis import builtin, containers, context, members, modules, ops, tensors, writes
from deinplace.analysis.inline import briefly, call_lambda, inline
from deinplace.analysis.instances import instantiate
from deinplace.analysis.iteration import iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import Memory
from deinplace.analysis.unknown import Keywords, unknown
from deinplace.analysis.values import (
    NONE,
    Bound,
    Cls,
    Const,
    Fn,
    Lam,
    Obj,
    Other,
    Part,
    Ref,
    Super,
    Ten,
    Union,
    Value,
    further,
    union,
)


def call_node(m: Machine, node: ast.Call) -> Value:
    """A call expression."""
    func = _super(m, node) or m.evaluate(node.func)
    args: list[Value] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            args += iterate(m, m.evaluate(arg.value), arg)[0]
        else:
            args.append(m.evaluate(arg))
    keywords: Keywords = {}
    for keyword in node.keywords:
        value = m.evaluate(keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif isinstance(value, Obj) and value.what == "dict":
            keywords.update({str(k): v for k, v in m.fields_of(value).fields.items() if not isinstance(k, tuple)})
    if m.mem is None:
        return Other("unknown")
    if not isinstance(func, (Fn, Lam, Cls, Part)) and any(context.mode_of(m, v) for v in args if type(v) is Other):
        m.notes.add(context.DOUBTFUL)  # an ExitStack may enter it
    return m.call(func, args, keywords, node)


def _super(m: Machine, node: ast.Call) -> Value | None:
    if not (isinstance(node.func, ast.Name) and node.func.id == "super" and m.frame.owner is not None):
        return None
    scope = m.frame.scope
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and scope.args.args:
        me = m.m.fields(m.frame.fid).fields.get(scope.args.args[0].arg)
        if me is not None:
            return Part(Ref("super"), (Super(m.frame.owner, me),), ())
    return None


def call(m: Machine, func: Value, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    """Call any value."""
    m.step()
    if isinstance(func, Fn):
        bound = [func.bound] if func.bound is not None else []
        follow = briefly if m.building and not m.builders.matters(func.info, m.discarded is node) else inline
        return follow(m, func, [*bound, *args], keywords, node)
    if isinstance(func, Lam):
        return call_lambda(m, func, args, keywords, node)
    if isinstance(func, Cls):
        return instantiate(m, func, args, keywords, node)
    if isinstance(func, Part):
        if isinstance(func.func, Ref) and func.func.name == "super":
            return func.args[0]
        return m.call(func.func, [*func.args, *args], {**dict(func.kwargs), **keywords}, node)
    if isinstance(func, Bound):
        return _method(m, func, args, keywords, node)
    if isinstance(func, Obj):
        out = _object(m, func, args, keywords, node)
        if not m.lenient and m.mem is not None and m.index.hooks:
            for value in (*args, out):
                m.escape(value, "may be seen by a hook")
        return out
    if isinstance(func, Ref):
        return _reference(m, func.name, args, keywords, node)
    if isinstance(func, Union):
        return _several(m, func, args, keywords, node)
    return unknown(m, func, args, keywords, node)


def _several(m: Machine, func: Union, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    start = m.m
    results: list[Value] = []
    ends: list[Memory | None] = []
    for option in func.options[:3]:
        m.mem = start.fork()
        results.append(m.call(option, args, keywords, node))
        ends.append(m.mem)
    condition = m.terms.make("condition", m.serial())
    out = ends[0]
    for n, end in enumerate(ends[1:]):
        out = m.merge_at(out, end, further(condition, n))
    m.mem = out
    return union(tuple(results), condition)


def _object(m: Machine, func: Obj, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    if m.torch_tag(func) is not None:
        return modules.call_module(m, func, args, keywords, node)
    owner = m.class_of(func)
    if owner is not None:
        for name in ("forward", "__call__") if m.is_module(owner) else ("__call__",):
            method = m.method_of(func, name)
            if method is not None:
                for value in args:
                    if m.is_module(owner) and isinstance(value, Ten):
                        m.refine(value, "given to a module", "likely")
                return m.call(method, args, keywords, node)
    return unknown(m, func, args, keywords, node)


def _method(m: Machine, func: Bound, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    base = func.base
    if isinstance(base, Ten):
        return tensors.method(m, base, func.attr, args, keywords, node)
    if func.attr.endswith("_") and not func.attr.startswith("_"):
        writes.other(m, node, base)
    if isinstance(base, Obj):
        if base.what in ("module", "instance"):
            found = members.method(m, base, func.attr, args, keywords, node)
            return found if found is not None else unknown(m, func, [base, *args], keywords, node, f".{func.attr}")
        return containers.container(m, base, func.attr, args, keywords, node)
    if isinstance(base, Other) and base.what.startswith("optimizer"):
        return modules.optimizer(m, base, func.attr, node)
    if isinstance(base, (Other, Const)):
        if context.mode_of(m, base):
            m.notes.add(context.DOUBTFUL)  # `__enter__` by hand
        for value in args:
            m.escape(value, f"was given to .{func.attr}()")
        what = "string" if isinstance(base, Const) and isinstance(base.value, str) else getattr(base, "what", "number")
        return Other(what, m.terms.make(func.attr, m.term_of(base), *(m.term_of(a) for a in args)))
    if isinstance(base, Cls):
        return _class_call(m, base, func.attr, args, keywords, node)
    return unknown(m, func, args, keywords, node)


def _class_call(m: Machine, base: Cls, attr: str, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    """`Function.apply(x)` runs the class's forward; the rest is unknown."""
    forward = m.find_method(base.info, "forward")
    if attr == "apply" and forward is not None:
        ctx = m.record({}, "instance", opened=True, tag="ctx")
        found = [t for v in args for t in ops.tensors(m, v)]
        made = m.node(found)
        grad, before = m.mixed(found), m.grad
        dirty = any(isinstance(n, ast.Attribute) and n.attr == "mark_dirty" for n in ast.walk(forward.node))
        m.grad = "off"
        out = inline(m, Fn(forward, ()), [ctx, *args], keywords, node)
        m.grad = before
        m.notes.add("custom function")
        if m.mem is not None and not dirty:
            for tensor in ops.tensors(m, out):
                for sid in tensor.sids:
                    known = m.storage(sid)
                    m.update(sid, grad=grad, nodes=known.nodes | {made}, graph=m.terms.make("custom", known.term))
        return out
    return unknown(m, base, args, keywords, node)


def super_method(m: Machine, base: Super, attr: str) -> Value:
    """`super().attr`."""
    owner = m.class_of(base.self)
    start = owner if owner is not None else base.after
    method = m.find_method(start, attr, base.after)
    if method is not None:
        static = context.special(method.node) == "staticmethod"
        return Fn(method, (), None if static else base.self, m.defaults_of(method))
    if attr == "__init__":
        return Part(Ref("super_init"), (base.self,), ())
    return Bound(base.self, attr)


def _reference(m: Machine, name: str, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    if name == "super_init":
        return NONE
    if name.startswith("torch._C.") and "grad" in name:
        m.notes.add(context.DOUBTFUL)
    manager = context.manager(name, args)
    if manager is not None:
        return _set_mode(m, manager, name, args, node)
    if name in ("functools.partial", "partial") and args:
        return Part(args[0], tuple(args[1:]), tuple(keywords.items()))
    found = builtin.function(m, name, args, keywords, node)
    if found is not None:
        return found
    if name.startswith("torch."):
        return tensors.torch_call(m, name, args, keywords, node)
    return unknown(m, Ref(name), args, keywords, node, name)


def _set_mode(m: Machine, manager: Value, name: str, args: list[Value], node: ast.AST) -> Value:
    """`torch.set_grad_enabled(x)` works at once, and as a context manager; `torch.no_grad()(f)` wraps f."""
    parents = m.frame.module.source.parents
    if name in context.SET and isinstance(parents.get(node), ast.Expr):
        m.grad = context.mode_of(m, manager)
    elif name in context.SET and not isinstance(parents.get(node), (ast.withitem, ast.FunctionDef)):
        m.notes.add(context.DOUBTFUL)
    if args and isinstance(args[0], Fn):
        return args[0]
    return manager
