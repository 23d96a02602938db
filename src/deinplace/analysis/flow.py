"""Branches, loops and what is caught, in an abstract run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from deinplace.analysis import context, declared
from deinplace.analysis.binding import assign, bind
from deinplace.analysis.expressions import evaluate
from deinplace.analysis.iteration import iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import Memory, tensors_in
from deinplace.analysis.names import lookup
from deinplace.analysis.operators import truth
from deinplace.analysis.records import Loop
from deinplace.analysis.source import names_in
from deinplace.analysis.values import (
    NONE,
    Fields,
    Other,
    Ten,
    Union,
    Value,
)


def _if(m: Machine, node: ast.If) -> None:
    test = evaluate(m, node.test)
    if m.mem is None:
        return
    known = truth(m, test)
    if known is not None:
        m.execute(node.body if known else node.orelse)
        return
    _ask(m, node.test)
    condition = m.terms.make("condition", m.serial())
    m.observe("if", m.term_of(test))
    start = m.m.fork()
    _narrow(m, node.test, True)
    m.execute(node.body)
    after, m.mem = m.mem, start
    _narrow(m, node.test, False)
    m.observe("else")
    m.execute(node.orelse)
    m.observe("fi")
    m.mem = m.merge_at(after, m.mem, condition)


def _ask(m: Machine, test: ast.expr) -> None:
    """The program asks of which class a value is: how it is used in one branch says nothing of another."""
    about = m.questions.get(test)
    if about is None:
        about = m.questions[test] = tuple(_questions(test))
    for part in about:
        value = evaluate(m, part)
        m.asked.update(value.sids if isinstance(value, Ten) else ())


def _questions(test: ast.expr) -> Iterator[ast.expr]:
    for part in ast.walk(test):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.args:
            about = part.args[0]
            if part.func.id in ("isinstance", "hasattr", "callable") and isinstance(about, (ast.Name, ast.Attribute)):
                yield about


def _narrow(m: Machine, test: ast.expr, held: bool) -> None:
    """`isinstance(x, torch.Tensor)` and `torch.is_tensor(x)` say what x is; `x is None` what it is not."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and held:
        for part in test.values:
            _narrow(m, part, True)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        _narrow(m, test.operand, not held)
    elif isinstance(test, ast.Call) and held and test.args and isinstance(test.args[0], ast.Name):
        called = ast.unparse(test.func)
        about = ast.unparse(test.args[1]) if len(test.args) > 1 else ""
        if called.endswith("is_tensor") or (called == "isinstance" and about.endswith("Tensor")):
            m.refine(lookup(m, test.args[0].id), "guarded by a test for tensors")
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
        right = test.comparators[0]
        if isinstance(right, ast.Constant) and right.value is None:
            if isinstance(test.ops[0], ast.Is) is held:
                bind(m, test.left.id, NONE)
            else:
                value = lookup(m, test.left.id)
                if isinstance(value, Ten) and m.storage(value.sids[0]).why == declared.OPTIONAL:
                    m.refine(value, "annotated as a tensor or None, and not None")
                if isinstance(value, Union):
                    rest = tuple(o for o in value.options if o != NONE)
                    bind(m, test.left.id, rest[0] if len(rest) == 1 else Union(rest))


def _for(m: Machine, node: ast.For | ast.AsyncFor) -> None:
    values, opened = iterate(m, evaluate(m, node.iter), node.iter)
    m.frame.node = node
    if not values and opened and m.mem is not None:
        _perhaps(m, node)
        return
    loop = Loop()
    m.frame.loops.append(loop)
    made = len(m.writes)
    for value in values:
        if m.mem is None:
            break
        if any(_outdated(m, t, made) for t in tensors_in(value, m.m, 2)):
            m.observe("refused", m.term_of(value))
        assign(m, node.target, value)
        m.execute(node.body)
        m.mem = m.merge_all([m.mem, *loop.continues])
        loop.continues.clear()
    m.frame.loops.pop()
    if m.mem is not None:
        if opened:
            _handed_on(m, node.body)
        m.execute(node.orelse)
    m.mem = m.merge_all([m.mem, *loop.breaks])


def _handed_on(m: Machine, body: list[ast.stmt]) -> None:
    """More rounds than are followed may hand a tensor on from name to name: `c = b; b = a`."""
    if m.lenient:
        return
    bound = (n.value for s in body for n in ast.walk(s) if isinstance(n, ast.Assign))
    names = names_in(value for value in bound if isinstance(value, (ast.Name, ast.Tuple, ast.IfExp)))
    taken_along(m, names, "goes from name to name in a loop")


def _outdated(m: Machine, value: Ten, made: int) -> bool:
    """One of several views made at once, whose base was written since: autograd refuses to read it."""
    if value.view != "multi" or m.grad == "off" or m.grad_of(value) != "yes":
        return False
    return any(w.view != "multi" and w.grad_on and set(w.sids) & set(value.sids) for w in m.writes[made:])


def _perhaps(m: Machine, node: ast.For | ast.AsyncFor) -> None:
    """A loop over something of which no element is known: its body may run."""
    start = m.m.fork()
    loop = Loop()
    m.frame.loops.append(loop)
    assign(m, node.target, m.outside(("loop", m.serial()), "element", "an element of something unknown"))
    m.execute(node.body)
    m.frame.loops.pop()
    m.mem = m.merge_all([start, m.mem, *loop.continues, *loop.breaks])
    if m.mem is not None:
        m.execute(node.orelse)


def _while(m: Machine, node: ast.While) -> None:
    loop = Loop()
    m.frame.loops.append(loop)
    exits: list[Memory | None] = []
    for _ in range(2):
        known = truth(m, evaluate(m, node.test)) if m.mem is not None else False
        if m.mem is None or known is False:
            break
        m.execute(node.body)
        m.mem = m.merge_all([m.mem, *loop.continues])
        loop.continues.clear()
    m.frame.loops.pop()
    if m.mem is not None:
        _handed_on(m, node.body)
    forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
    if not forever or (not loop.breaks and m.frame.scope is m.frame.module.source.tree):
        exits.append(m.mem)
    m.mem = m.merge_all([*exits, *loop.breaks])
    if m.mem is not None and node.orelse:
        m.execute(node.orelse)


def _break(m: Machine, node: ast.Break) -> None:
    if m.frame.loops and m.mem is not None:
        m.frame.loops[-1].breaks.append(m.mem)
    m.mem = None


def _continue(m: Machine, node: ast.Continue) -> None:
    if m.frame.loops and m.mem is not None:
        m.frame.loops[-1].continues.append(m.mem)
    m.mem = None


def _with(m: Machine, node: ast.With | ast.AsyncWith) -> None:
    before, inferring, casting = m.grad, m.inference, m.autocast
    sinks = len(m.sinks)
    exits: list[Value] = []
    for item in node.items:
        value = evaluate(m, item.context_expr)
        text = m.text(item.context_expr)
        made_here = m.class_of(value)
        if context.doubtful(m, value, text) or (
            made_here is not None and any(isinstance(b, str) and b.endswith("Mode") for b in m.bases(made_here))
        ):
            m.notes.add(context.DOUBTFUL)
        m.autocast = m.autocast or "autocast" in text
        mode = context.mode_of(m, value)
        entered: Value = value
        if mode:
            m.grad = mode
            m.inference = m.inference or context.infers(value)
        elif m.mem is not None:
            method = m.method_of(value, "__enter__")
            if method is not None:
                entered = m.call(method, [], {}, item.context_expr)
                leave = m.method_of(value, "__exit__")
                exits += [leave] if leave is not None else []
        if item.optional_vars is not None and m.mem is not None:
            assign(m, item.optional_vars, entered)
    if m.mem is not None:
        m.execute(node.body)
    if len(m.sinks) > sinks and any(context.expects_an_error(m.text(item.context_expr)) for item in node.items):
        m.notes.add(context.FAILING)
    m.grad, m.inference, m.autocast = before, inferring, casting
    for leave in reversed(exits):
        if m.mem is not None:
            m.call(leave, [NONE, NONE, NONE], {}, node)


def _try(m: Machine, node: ast.Try | ast.TryStar) -> None:
    start, made = m.m.fork(), len(m.writes)
    m.execute(node.body)
    if m.mem is not None:
        m.execute(node.orelse)
    if any(not _reraises(handler) for handler in node.handlers):
        _may_be_cut(m, made)
    raised = list(_raised(node)) if node.handlers else []
    seen = names_in(node.body) if node.handlers and not m.lenient else set()
    ends: list[Memory | None] = [m.mem]
    for handler in node.handlers:
        m.mem = start.fork()
        if handler.name:
            m.m.put(m.frame.fid, handler.name, Other("exception"))
        for part in raised:
            m.escape(evaluate(m, part), "is raised")
        taken_along(m, seen, "is named where an exception may be caught")
        m.execute(handler.body)
        ends.append(m.mem)
    m.mem = m.merge_all(ends)
    made = len(m.writes)
    if m.mem is not None:
        m.execute(node.finalbody)
    _may_be_cut(m, made)


def _reraises(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)


def taken_along(m: Machine, seen: set[str], why: str) -> None:
    """Code that is not followed in all of its orders may have given these names' tensors other names, too."""
    content = m.m.peek(m.frame.fid)
    if not isinstance(content, Fields):
        return
    for name in sorted(seen & {str(key) for key in content.fields}):
        m.escape(content.fields[name], why)


def _may_be_cut(m: Machine, made: int) -> None:
    """Writes of this function since the write number `made`: an exception that is caught may come right after each.

    Where nothing is proved for all who call, that matters for those that torch refuses: what is caught is that.
    """
    for n, write in enumerate(m.writes[made:], made):
        if m.lenient and not (write.misfit or write.leaf or write.view == "multi"):
            continue
        if write.place.function == m.frame.function and write.place.path == m.frame.module.path:
            m.writes[n] = replace(write, flags=write.flags | {"is written where an exception may be caught"})


def _raised(node: ast.Try | ast.TryStar) -> Iterator[ast.expr]:
    """The arguments of exceptions that a block raises by itself."""
    for stmt in node.body:
        for part in ast.walk(stmt):
            if isinstance(part, ast.Raise) and isinstance(part.exc, ast.Call):
                yield from (a for a in part.exc.args if isinstance(a, (ast.Name, ast.Attribute)))


def _match(m: Machine, node: ast.Match) -> None:
    m.escape(evaluate(m, node.subject), "is taken apart by match")
    start = m.m.fork()
    ends: list[Memory | None] = [start]
    for case in node.cases:
        m.mem = start.fork()
        for part in ast.walk(case.pattern):
            name = getattr(part, "name", None)
            if isinstance(name, str):
                m.m.put(m.frame.fid, name, Other("unknown"))
        m.execute(case.body)
        ends.append(m.mem)
    m.mem = m.merge_all(ends)


def _assert(m: Machine, node: ast.Assert) -> None:
    evaluate(m, node.test)
    if m.mem is not None:
        _narrow(m, node.test, True)


HANDLERS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.Assert: _assert,
    ast.Match: _match,
}
