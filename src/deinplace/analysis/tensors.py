"""Methods of tensors and functions of torch."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import declared, dtypes, facts, modules, ops, writes
from deinplace.analysis.machine import Machine
from deinplace.analysis.members import leaf
from deinplace.analysis.unknown import unknown
from deinplace.analysis.values import NONE, Const, Obj, Other, Ref, Ten, Value
from deinplace.catalog import FunctionInfo

_MEMORY = ("storage", "data_ptr", "dlpack", "__array__")
"""Parts of the names of methods that give away where a tensor lies."""
PYTHON_METHODS = (
    "append", "extend", "insert", "update", "pop", "get", "items", "keys", "values", "copy", "add", "remove", "index",
    "count", "sort", "join", "split", "format", "setdefault", "clear", "replace", "strip", "put",
)  # fmt: skip


def method(m: Machine, base: Ten, name: str, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`tensor.name(...)`."""
    entry = facts.method(name)
    if "subclass" in name:
        # Of a class of the program's own, whose operators may do anything.
        made = unknown(m, base, [base, *args], keywords, node, f".{name}")
        m.escape(made, f"is of a class of its own, by .{name}()")
        return made
    if m.kind(base) == "unknown":
        if entry is None or name in PYTHON_METHODS:
            if declared.method_of_containers(name):
                declared.used_as(m, base, "container")
            m.escape(base, f"has .{name}() called")
            held = _held(m, base, name, args)
            return held if held is not None else unknown(m, base, [base, *args], keywords, node, f".{name}")
        m.refine(base, f"has .{name}() called", "likely")
    if entry is None:
        return unknown(m, base, [base, *args], keywords, node, f".{name}")
    if name in ("backward",):
        return _backward(m, base)
    if name in ("set_", "swap_"):
        for value in (base, *args):
            m.escape(value, f"shares memory by .{name}()")
    if entry.in_place:
        return _in_place(m, base, entry, name, args, keywords, node)
    if name == "type" and args and (casts := facts.method("to")) is not None:
        name, entry = "to", casts  # with a dtype it casts; without one it says a name
    if entry.returns not in ("self", "view", "views", "maybe_alias") and entry.aliases:
        m.escape(base, f"may share memory with the result of .{name}()")
    if name in ("register_hook", "retain_grad"):
        for value in args:
            m.escape(value, "is called by a hook")
        for sid in base.sids:
            m.update(sid, flags=m.storage(sid).flags | {"hooked"})
        m.observe(name, m.read(base), base.sids[0] if name == "retain_grad" else 0)
        return NONE
    if entry.returns == "other" or name in ("item", "tolist", "size", "numel", "dim", "stride"):
        if name in ("numpy", "tolist") or entry.aliases or any(part in name for part in _MEMORY):
            m.escape(base, f"is shared through .{name}()")
        term = m.terms.make(name, m.read(base), *(m.term_of(a) for a in args))
        return Other("size" if name == "size" and not args else "ndarray" if name == "numpy" else "number", term)
    named = _named(entry, [base, *args])
    parts = _parts(entry, node, True)
    return ops.operate(m, name, named, node, parts, keywords, entry)


def _held(m: Machine, base: Ten, name: str, args: list[Value]) -> Value | None:
    """What a method of a container gives whose annotation says what it holds."""
    spec = declared.of(m, base)
    if spec is None or not spec.parts or spec.parts[-1] is None:
        return None
    if name in ("get", "pop", "setdefault", "values", "items") and spec.what == "dict":
        key = m.term_of(args[0]) if args else 0
        held: list[Value] = [declared.element(m, base, ("item", base.sids, name, key, n)) for n in range(2)]
        if name == "values":
            return m.sequence(held, "list", True)
        if name == "items":
            pairs: list[Value] = [m.sequence([Other("unknown"), value], "tuple") for value in held]
            return m.sequence(pairs, "list", True)
        return held[0]
    return None


def _backward(m: Machine, base: Ten) -> Value:
    m.observe("backward", m.read(base), m.graph_of(base))
    m.sink([base])
    return NONE


def _in_place(
    m: Machine, base: Ten, entry: FunctionInfo, name: str, args: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    if entry.effect == "autograd":
        return _autograd(m, base, name, args)
    if entry.effect == "metadata":
        m.observe("metadata", name, m.read(base))
        return base
    op = facts.functional(name)
    named = _named(entry, [base, *args])
    first = next(iter(named))
    named.pop(first)
    if name == "copy_":
        op = "copy"
    elif name == "zero_":
        op = "zero"
    parts = _parts(entry, node, True)
    return writes.apply(m, base, op, named, node, "method", parts, keywords=keywords, entry=entry)


def _autograd(m: Machine, base: Ten, name: str, args: list[Value]) -> Value:
    if name == "requires_grad_":
        on = not (args and args[0] == Const(False))
        for sid in base.sids:
            known = m.storage(sid)
            if on:
                if known.grad == "yes" and not base.cut:
                    continue  # as torch does: what requires gradients keeps its graph
                mine = known.origin != "fresh" or "leaf" in known.flags  # it was one before: a copy becomes another
                graph = m.terms.make("leaf again" if mine else "leaf", known.term)
                if known.graph and not base.cut:
                    graph = m.terms.make("required", known.graph, known.term)
                flags = known.flags if known.nodes else known.flags | {"leaf"}
                m.update(sid, grad="yes", graph=graph, flags=flags)
            else:
                if known.nodes and not base.cut:
                    m.observe("raises", "only a leaf can stop requiring gradients")
                m.update(sid, grad="no", graph=0)
        return replace(base, cut="")
    if name == "detach_":
        for sid in base.sids:
            m.update(sid, grad="no", graph=0, nodes=frozenset())
        m.observe("detach_")
    return base


def _named(entry: FunctionInfo, args: list[Value]) -> dict[str, Value]:
    """Positional arguments by the names that the catalog's saves use."""
    named: dict[str, Value] = {}
    for n, value in enumerate(args):
        named[_parameter_name(entry, n)] = value
    return named


def _parameter_name(entry: FunctionInfo, n: int) -> str:
    """The n-th positional argument's parameter; those that `*args` swallows are told apart by a number."""
    if n < len(entry.parameters):
        return entry.parameters[n]
    return f"{entry.parameters[-1] if entry.parameters else 'more'}#{n}"


def _parts(entry: FunctionInfo, node: ast.AST, bound: bool) -> dict[str, ast.expr]:
    """Expressions of the arguments, by the same names."""
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return {}
    exprs = list(node.args)
    if bound and isinstance(node.func, ast.Attribute):
        exprs.insert(0, node.func.value)
    parts = {_parameter_name(entry, n): e for n, e in enumerate(exprs)}
    parts.update({k.arg: k.value for k in node.keywords if k.arg})
    return parts


def torch_call(m: Machine, name: str, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """A call of something in torch."""
    last = name.rpartition(".")[2]
    if (
        facts.module(name) is not None
        or name in modules.CONTAINERS
        or (name.startswith("torch.nn.") and last[:1].isupper() and last != "Parameter")
    ):
        return modules.construct(m, name, args, keywords, node)
    if last in ("Parameter", "Buffer"):
        return _parameter(m, args, last)
    if name.startswith("torch.optim."):
        if "lr_scheduler" in name:
            return Other("scheduler")
        return modules.make_optimizer(m, args, keywords)
    if name.startswith("torch.nn.init."):
        return _initialise(m, args, name, node)
    if name in ("torch.autograd.grad", "torch.autograd.backward"):
        return _gradients(m, args, keywords, last)
    entry = facts.function(name)
    if entry is None and name.startswith("torch.Tensor.") and args and isinstance(args[0], Ten):
        return method(m, args[0], last, args[1:], keywords, node)
    if entry is None:
        if last in ("manual_seed", "seed", "set_default_dtype", "device", "Generator", "Size"):
            return Other("number")
        return unknown(m, Ref(name), args, keywords, node, name)
    return _function(m, name, last, entry, args, keywords, node)


def _function(
    m: Machine, name: str, last: str, entry: FunctionInfo, args: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    named = _named(entry, args)
    parts = _parts(entry, node, False)
    outer = bool(entry.aliases) or last.startswith(("from", "as"))
    foreign = outer and any(_foreign(m, a) for a in args[:1])
    for value in args:
        if not entry.factory and not outer:
            m.refine(value, f"given to {name}")
    first = args[0] if args else keywords.get(entry.parameters[0] if entry.parameters else "input", NONE)
    out = keywords.pop("out", None)
    if isinstance(out, Obj):
        m.escape(out, "is one of several outputs")
    if entry.in_place and isinstance(first, Ten):
        rest = {k: v for n, (k, v) in enumerate(named.items()) if n}
        op = facts.functional(last) if facts.method(last) else last.rstrip("_")
        return writes.apply(m, first, op, rest, node, "function", parts, keywords=keywords, entry=entry)
    flag = _flag(entry, args, keywords)
    if flag and isinstance(first, Ten):
        rest = {k: v for n, (k, v) in enumerate(named.items()) if n and k != "inplace"}
        inplace = replace(entry, saves=entry.saves_inplace, saves_alone=entry.saves_inplace)
        return writes.apply(m, first, last, rest, node, "flag", parts, keywords=keywords, entry=inplace)
    named.pop("inplace", None)
    if last == "einsum" and sum(isinstance(v, Ten) for v in args) < 2:
        entry = replace(entry, returns="maybe_alias")  # of one operand it may only turn the dimensions
    value = ops.operate(m, last, named, node, parts, keywords, entry)
    if name.startswith("torch.sparse") or last == "Buffer":
        for part in (*args, *keywords.values()):
            m.escape(part, "lies in a sparse tensor")
    if isinstance(value, Ten) and foreign:
        m.escape(value, "may share memory with an array")
    if isinstance(out, Ten) and isinstance(value, Ten):
        target = out
        term = m.read(value)
        given, had = m.dtype_of(value), m.dtype_of(target)
        cast = (
            (given != had if given and had else not m.lenient)
            or (not m.lenient and not dtypes.is_float(given))
            or (not m.lenient and ops.turned(m, target))
        )
        if cast:
            term = m.terms.make("cast", term, had)
        writes.record(m, target, last, node, "out", cast=cast)
        writes.store(m, target, term, None if m.grad == "off" else m.graph_of(value), None, [value])
        return target
    if isinstance(out, Obj):
        return out
    if isinstance(value, Ten) and keywords.get("requires_grad") == Const(True) and value.exact:
        term = m.read(value)
        m.update(value.sids[0], grad="yes", graph=m.terms.make("leaf", term), flags=frozenset({"leaf"}), origin="leaf")
    return value


def _foreign(m: Machine, value: Value) -> bool:
    """True for what may be an array or a buffer."""
    return m.kind(value) == "unknown" if isinstance(value, Ten) else not isinstance(value, Const)


def _flag(entry: FunctionInfo, args: list[Value], keywords: dict[str, Value]) -> bool:
    if entry.inplace is None:
        return False
    given = keywords.get(entry.inplace.name) or (
        args[entry.inplace.position] if entry.inplace.position < len(args) else None
    )
    return isinstance(given, Const) and bool(given.value)


def _parameter(m: Machine, args: list[Value], last: str) -> Value:
    first = args[0] if args else NONE
    if isinstance(first, Ten):
        m.escape(first, f"shares memory with a {last}")
        made = leaf(m, "an nn.Parameter", m.read(first), "parameter" if last == "Parameter" else "buffer")
        m.escape(first, "became a Parameter")
        m.update(made.sids[0], dtype=m.dtype_of(first) or "float")
        return made
    return leaf(m, "an nn.Parameter", m.terms.make("parameter", m.serial()))


def _initialise(m: Machine, args: list[Value], name: str, node: ast.AST) -> Value:
    first = args[0] if args else NONE
    if isinstance(first, Ten):
        m.refine(first, f"given to {name}")
        grad, m.grad = m.grad, "off"
        writes.store(m, first, m.terms.make(name, m.read(first), m.serial()), None, None, [])
        m.grad = grad
    return first


def _gradients(m: Machine, args: list[Value], keywords: dict[str, Value], last: str) -> Value:
    named = dict(zip(("outputs", "inputs"), args, strict=False)) | keywords
    outputs = ops.tensors(m, named.get("outputs", named.get("tensors", NONE)))
    wanted = ops.tensors(m, named.get("inputs", NONE))
    m.observe(last, *((m.read(t), m.graph_of(t)) for t in outputs))
    if m.traced and wanted:
        led = m.behind(frozenset().union(*(m.nodes_of(t) for t in outputs)))
        m.observe("asks for gradients", *((m.own_graph(t), m.nodes_of(t) <= led) for t in wanted))
    m.sink(outputs)
    items: list[Value] = [
        m.tensor("a gradient", m.terms.make("gradient", m.read(t), m.serial()), grad="maybe", dtype=m.dtype_of(t))
        for t in wanted
    ]
    return m.sequence(items or [m.tensor("a gradient", m.terms.make("gradient", m.serial()))], "tuple")
