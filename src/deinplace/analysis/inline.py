"""Following a call into a function's own statements."""

from __future__ import annotations

import ast

from deinplace.analysis import context, declared
from deinplace.analysis.arguments import arguments
from deinplace.analysis.index import FunctionInfo
from deinplace.analysis.machine import Machine
from deinplace.analysis.records import ExhaustedError, Frame
from deinplace.analysis.unknown import Keywords, unknown
from deinplace.analysis.values import (
    NONE,
    Fields,
    Fn,
    Lam,
    Other,
    Ten,
    Value,
    union,
)

BRIEF_STEPS = 300
"""So far is a call followed that matters little."""


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


def briefly(m: Machine, func: Fn, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
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


def call_lambda(m: Machine, func: Lam, args: list[Value], keywords: Keywords, node: ast.AST) -> Value:
    """Call a lambda: its expression, with its arguments bound."""
    if len(m.frames) > 20:
        return unknown(m, func, args, keywords, node)
    fid = m.new_id()
    m.m.make(fid, Fields(bind(m, func.node.args, args, keywords, {})))
    frame = Frame(fid, m.index.modules[func.path], func.node, "<lambda>", None, func.closure, func.node)
    m.frames.append(frame)
    value = m.evaluate(func.node.body)
    m.frames.pop()
    return value
