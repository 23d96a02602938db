"""Calls: into the project's functions and classes, into torch, and into the unknown."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import attributes, builtin, context, declared, facts, modules, ops, tensors, writes
from deinplace.analysis.arguments import arguments
from deinplace.analysis.index import ClassInfo, FunctionInfo
from deinplace.analysis.iteration import iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import Memory
from deinplace.analysis.modules import MODULE_METHODS, parameter_of
from deinplace.analysis.records import ExhaustedError, Frame
from deinplace.analysis.values import (
    NONE,
    Bound,
    Cls,
    Const,
    Fields,
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

Keywords = dict[str, Value]
BRIEF_STEPS = 300
"""So far is a call followed that matters little."""


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
        follow = _briefly if m.building and not m.builders.matters(func.info, m.discarded is node) else inline
        return follow(m, func, [*bound, *args], keywords, node)
    if isinstance(func, Lam):
        return _lambda(m, func, args, keywords, node)
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


def _unfollowed(m: Machine, func: Fn, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    """A function of the project that is not followed: its result is of the kind that its annotation gives."""
    info = func.info
    value = unknown(m, func, args, keywords, node, info.name)
    if not isinstance(value, Ten) or info.node.returns is None or m.globals.get(info.path) is None:
        return value
    module = m.index.modules[info.path]
    m.frames.append(Frame(m.globals[info.path], module, module.source.tree, "<module>"))
    spec = declared.read(m, info.node.returns)
    m.frames.pop()
    if spec is not None and not spec.optional:
        if spec.what == "tensor":
            m.refine(value, "annotated as a tensor")
        elif m.kind(value) == "unknown" and spec.what in ("number", "string"):
            return Other(spec.what, m.read(value))
        elif m.kind(value) == "unknown":
            m.specs.setdefault(value.sids[0], spec)
    return value


def inline(m: Machine, func: Fn, args: list[Value], keywords: Keywords, node: ast.AST, opened: bool = False) -> Value:
    """Run a function of the project on these arguments; `opened` where there may be more of them."""
    info = func.info
    if m.entered(info):
        return _unfollowed(m, func, args, keywords, node)
    if m.constructing and (info.path, info.qualname) in m.endless:
        raise ExhaustedError
    m.reached.add(info.node)
    m.ran.add((info.path, info.qualname))
    code = m.patched.get(info.node, info.node)
    module = m.index.modules[info.path]
    fid = m.new_id()
    m.m.make(fid, Fields(bind(m, info.node.args, args, keywords, dict(func.defaults), opened)))
    keeper = context.keeper(m, info.node)
    if keeper:
        for value in (*args, *keywords.values()):
            m.escape(value, f"goes through @{keeper}")
    before, inferring = m.grad, m.inference
    calling = m.frames[-1].node if m.frames else None
    if m.frames and hasattr(node, "lineno"):
        m.frames[-1].node = node
    frame = Frame(fid, module, code, info.qualname, info.owner, func.closure, left=m.steps)
    mode = context.decorator_mode(m, info.node)
    m.grad = mode or before
    m.inference = m.inference or (mode == "off" and context.decorator_infers(m, info.node))
    m.frames.append(frame)
    m.execute(code.body)
    if m.glance:
        _nested(m, frame)
    m.frames.pop()
    m.grad, m.inference = before, inferring
    if m.frames:
        m.frames[-1].node = calling
    result = _returned(m, frame, info)
    if keeper and m.mem is not None:
        m.escape(result, f"comes from @{keeper}")
    return result


def _briefly(m: Machine, func: Fn, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    """Follow a function that makes nothing a little way: one that goes far counts as a call into the unknown."""
    if func.info in m.passed:
        return _unfollowed(m, func, args, keywords, node)
    start, depth, calling, before = m.m.fork(), len(m.frames), m.frame.node, (m.grad, m.inference)
    kept = max(m.steps - BRIEF_STEPS, 0)
    m.steps -= kept
    try:
        return inline(m, func, args, keywords, node)
    except ExhaustedError:
        if not kept:
            raise
    finally:
        m.steps = max(m.steps, 0) + kept
    m.passed.add(func.info)
    del m.frames[depth:]
    m.frame.node, m.mem = calling, start
    m.grad, m.inference = before
    return _unfollowed(m, func, args, keywords, node)


def _nested(m: Machine, frame: Frame) -> None:
    """Run the functions that were defined in this one and not called: whoever got hold of them may."""
    kept, ends = m.mem, [memory for _, memory in frame.returns]
    last = kept if kept is not None else ends[-1] if ends else None
    if last is None:
        return
    for value in list(last.fields(frame.fid).fields.values()):
        if isinstance(value, Fn) and value.info.node not in m.reached and frame.fid in value.closure:
            m.mem = last.fork()
            spec = value.info.node.args
            names = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
            given = dict(arguments(m, value.info, None, names))
            inline(m, value, [], {str(k): v for k, v in given.items()}, value.info.node.body[0], opened=True)
    m.mem = kept


def _returned(m: Machine, frame: Frame, info: FunctionInfo) -> Value:
    ends = list(frame.returns)
    if m.mem is not None:
        ends.append((NONE, m.mem))
    if not ends:
        return Other("unknown")
    value, m.mem = ends[0]
    for other, memory in ends[1:]:
        condition = m.terms.make("condition", m.serial())
        m.mem = m.merge_at(m.mem, memory, condition)
        value = union((value, other), condition)
    later = isinstance(info.node, ast.AsyncFunctionDef) or (
        frame.yields and context.special(info.node) != "contextmanager"
    )
    if later and not m.hasty and m.mem is not None:
        for given in m.m.fields(frame.fid).fields.values():
            m.escape(given, "goes into what runs later")
    if frame.yields and not any(v != NONE for v, _ in frame.returns):
        if context.special(info.node) == "contextmanager":
            m.notes.add("context manager")
            entered: dict[object, Value] = {"__entered__": frame.yields[0]}
            return m.record(entered, "instance")
        return m.sequence(frame.yields, "list", opened=True)
    return value


def bind(
    m: Machine,
    spec: ast.arguments,
    args: list[Value],
    keywords: Keywords,
    defaults: dict[str, Value],
    opened: bool = False,
) -> dict[object, Value]:
    """A function's parameters after a call; `opened` where it may be given more than is known."""
    plain = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    bound: dict[object, Value] = dict(zip(plain, args, strict=False))
    rest = dict(keywords)
    for name in (*plain, *(a.arg for a in spec.kwonlyargs)):
        if name in rest and name not in bound:
            bound[name] = rest.pop(name)
        elif name not in bound:
            bound[name] = defaults.get(name, Other("unknown"))
    if spec.vararg is not None:
        bound[spec.vararg.arg] = m.sequence(args[len(plain) :], "tuple", opened)
    if spec.kwarg is not None:
        bound[spec.kwarg.arg] = m.record({str(k): v for k, v in rest.items()}, "dict", opened)
    return bound


def _lambda(m: Machine, func: Lam, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    if len(m.frames) > 20:
        return unknown(m, func, args, keywords, node)
    fid = m.new_id()
    m.m.make(fid, Fields(bind(m, func.node.args, args, keywords, {})))
    frame = Frame(fid, m.index.modules[func.path], func.node, "<lambda>", None, func.closure, func.node)
    m.frames.append(frame)
    value = m.evaluate(func.node.body)
    m.frames.pop()
    return value


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
            found = modules.method(m, base, func.attr, args, keywords, node)
            return found if found is not None else unknown(m, func, [base, *args], keywords, node, f".{func.attr}")
        return builtin.container(m, base, func.attr, args, keywords, node)
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


__all__ = ["MODULE_METHODS", "attributes", "call", "facts", "parameter_of", "replace", "unknown"]
