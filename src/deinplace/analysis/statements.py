"""What a statement does, in an abstract run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from deinplace.analysis import attributes, context, declared, facts, writes
from deinplace.analysis.expressions import OPERATORS, binary, evaluate, truth
from deinplace.analysis.iteration import every, iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import Memory, tensors_in
from deinplace.analysis.names import import_statement, lookup
from deinplace.analysis.records import Loop, UnreachedError
from deinplace.analysis.source import names_in, span_of
from deinplace.analysis.values import (
    NONE,
    Cls,
    Const,
    Fields,
    Fn,
    Obj,
    Other,
    Ten,
    Union,
    Value,
    union,
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


def assign(m: Machine, target: ast.expr, value: Value) -> None:
    """Bind a target."""
    if isinstance(target, ast.Name):
        bind(m, target.id, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part, item in unpack(m, target.elts, value):
            assign(m, part, item)
    elif isinstance(target, ast.Starred):
        assign(m, target.value, value)
    elif isinstance(target, ast.Attribute):
        attributes.store(m, evaluate(m, target.value), target, value)
    elif isinstance(target, ast.Subscript):
        base = evaluate(m, target.value)
        attributes.store_item(m, base, evaluate(m, target.slice), target, value)


def bind(m: Machine, name: str, value: Value) -> None:
    """Bind a name in the scope that owns it."""
    if name in m.frame.shared:
        for fid in (*m.frame.closure, m.globals[m.frame.module.path]):
            if name in m.m.fields(fid).fields or fid == m.globals[m.frame.module.path]:
                m.m.put(fid, name, value)
                return
    m.m.put(m.frame.fid, name, value)
    if m.frame.function == "<module>":
        m.bound[m.frame.fid, name] = m.clock


def unpack(m: Machine, targets: list[ast.expr], value: Value) -> list[tuple[ast.expr, Value]]:
    """Pairs of target and item for a tuple assignment."""
    count = len(targets)
    star = next((n for n, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    if isinstance(value, Obj) and value.what in ("list", "tuple"):
        items = list(m.items_of(value).items)
        if star is None:
            items += [items[-1] if items else Other("unknown")] * (count - len(items))
            return list(zip(targets, items, strict=False))
        tail = count - star - 1
        middle = m.sequence(items[star : len(items) - tail])
        return list(zip(targets, [*items[:star], middle, *items[len(items) - tail :]], strict=False))
    if isinstance(value, Ten):
        return [(t, attributes.part(m, value, n)) for n, t in enumerate(targets)]
    if isinstance(value, Union):
        each = [unpack(m, targets, option) for option in value.options if option != NONE] or [unpack(m, targets, NONE)]
        return [(pairs[0][0], union(tuple(v for _, v in pairs))) for pairs in zip(*each, strict=False)]
    items = iterate(m, value, targets[0])[0] or [Other("unknown")]
    return [(t, items[min(n, len(items) - 1)]) for n, t in enumerate(targets)]


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
        old = attributes.item(m, base, index, target)
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
            attributes.store_item(m, base, index, target, fresh, "+=", node)
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
        attributes.store_item(m, base, index, target, value, quiet=True)


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
        attributes.extend(m, old, *every(m, right, node))
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


def _if(m: Machine, node: ast.If) -> None:
    test = evaluate(m, node.test)
    if m.mem is None:
        return
    known = truth(m, test)
    if known is not None:
        execute(m, node.body if known else node.orelse)
        return
    _ask(m, node.test)
    condition = m.terms.make("condition", m.serial())
    m.observe("if", m.term_of(test))
    start = m.m.fork()
    _narrow(m, node.test, True)
    execute(m, node.body)
    after, m.mem = m.mem, start
    _narrow(m, node.test, False)
    m.observe("else")
    execute(m, node.orelse)
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
        execute(m, node.body)
        m.mem = m.merge_all([m.mem, *loop.continues])
        loop.continues.clear()
    m.frame.loops.pop()
    if m.mem is not None:
        if opened:
            _handed_on(m, node.body)
        execute(m, node.orelse)
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
    execute(m, node.body)
    m.frame.loops.pop()
    m.mem = m.merge_all([start, m.mem, *loop.continues, *loop.breaks])
    if m.mem is not None:
        execute(m, node.orelse)


def _while(m: Machine, node: ast.While) -> None:
    loop = Loop()
    m.frame.loops.append(loop)
    exits: list[Memory | None] = []
    for _ in range(2):
        known = truth(m, evaluate(m, node.test)) if m.mem is not None else False
        if m.mem is None or known is False:
            break
        execute(m, node.body)
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
        execute(m, node.orelse)


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
        execute(m, node.body)
    m.grad, m.inference, m.autocast = before, inferring, casting
    for leave in reversed(exits):
        if m.mem is not None:
            m.call(leave, [NONE, NONE, NONE], {}, node)


def _try(m: Machine, node: ast.Try | ast.TryStar) -> None:
    start, made = m.m.fork(), len(m.writes)
    execute(m, node.body)
    if m.mem is not None:
        execute(m, node.orelse)
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
        execute(m, handler.body)
        ends.append(m.mem)
    m.mem = m.merge_all(ends)
    made = len(m.writes)
    if m.mem is not None:
        execute(m, node.finalbody)
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
        taken_along(m, names_in([node]), "is read by a local class")


def _import(m: Machine, node: ast.Import | ast.ImportFrom) -> None:
    import_statement(m, node)


def _shared(m: Machine, node: ast.Global | ast.Nonlocal) -> None:
    m.frame.shared.update(node.names)


def _delete(m: Machine, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            m.m.drop(m.frame.fid, target.id)
        elif isinstance(target, ast.Subscript):
            m.escape(evaluate(m, target.slice), "is a key")


def _assert(m: Machine, node: ast.Assert) -> None:
    evaluate(m, node.test)
    if m.mem is not None:
        _narrow(m, node.test, True)


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
        execute(m, case.body)
        ends.append(m.mem)
    m.mem = m.merge_all(ends)


_HANDLERS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.Return: _return,
    ast.Raise: _raise,
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
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Global: _shared,
    ast.Nonlocal: _shared,
    ast.Delete: _delete,
    ast.Assert: _assert,
    ast.Match: _match,
}
__all__ = ["Const", "assign", "bind", "execute", "taken_along", "unpack"]
