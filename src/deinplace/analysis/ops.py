"""Tensor operations: results, what they keep for backward, and which of them share memory."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import declared, dtypes, facts, shapes
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import tensors_in
from deinplace.analysis.records import Save
from deinplace.analysis.sharing import SAME_VALUE, choose, graph, shared
from deinplace.analysis.source import span_of
from deinplace.analysis.values import (
    NO_IDS,
    NUMBER,
    Const,
    Grad,
    Items,
    Kind,
    Obj,
    Other,
    Ten,
    Union,
    Value,
)
from deinplace.catalog import FunctionInfo, Outputs


def tensors(m: Machine, value: Value) -> list[Ten]:
    """Tensors that an argument is or holds."""
    return list(tensors_in(value, m.m, 2))


def term(m: Machine, op: str, named: dict[str, Value], keywords: dict[str, Value]) -> int:
    """The term of an operation."""
    positional = [m.term_of(v) for v in named.values()]
    if op in SAME_VALUE and positional:
        return positional[0]
    pairs = tuple(sorted((k, m.term_of(v)) for k, v in keywords.items() if k not in ("inplace", "out", "non_blocking")))
    if op == "copy":
        return m.terms.make("copy", positional[-1])
    parts = joined(m, op, named, keywords)
    if parts is not None:
        return m.terms.join(parts[0], [m.read(t) for t in parts[1]])
    return m.terms.make(op, *positional, *pairs)


def joined(m: Machine, op: str, named: dict[str, Value], keywords: dict[str, Value]) -> tuple[int, list[Ten]] | None:
    """Dimension and parts of `torch.cat` of a known number of tensors."""
    if op != "cat":
        return None
    values: list[Value] = [*named.values(), *(v for k, v in keywords.items() if k == "dim")]
    first, rest = values[0], values[1:]
    content = m.m.peek(first.oid) if isinstance(first, Obj) else None
    if not isinstance(content, Items) or content.open or len(rest) > 1:
        return None
    parts = [v for v in content.items if isinstance(v, Ten)]
    if not parts or len(parts) != len(content.items):
        return None
    return m.term_of(rest[0] if rest else Const(0)), parts


def operate(
    m: Machine,
    op: str,
    named: dict[str, Value],
    node: ast.AST,
    parts: dict[str, ast.expr],
    keywords: dict[str, Value] | None = None,
    entry: FunctionInfo | None = None,
) -> Value:
    """The result of an operation that writes nothing."""
    keywords = keywords or {}
    inputs = [t for v in (*named.values(), *keywords.values()) for t in tensors(m, v)]
    first = next((v for v in named.values() if isinstance(v, Ten)), None)
    entry = entry or facts.method(op)
    returns = entry.returns if entry is not None else "fresh"
    if first is not None and returns in ("view", "views", "self", "maybe_alias"):
        return shared(m, op, first, named, keywords, returns)
    if returns == "other":
        return Other("number", term(m, op, named, keywords))
    if returns in ("view", "views", "self", "maybe_alias"):
        for part in inputs:
            m.escape(part, f"may share memory with the result of {op}()")  # given in a list
    value = term(m, op, named, keywords)
    if not inputs or (entry is not None and entry.random):
        value = m.terms.make("made", value, m.serial())
    kind: Kind = "tensor"
    if op in facts.operators() and not any(m.kind(t) == "tensor" for t in inputs):
        kinds = {m.kind(t) for t in inputs}
        kind = "likely" if kinds == {"likely"} else "unknown"
    dtype = dtypes.of_value(m, keywords.get("dtype"))
    if not dtype:
        dtype = "bool" if facts.gives_bool(op) else dtypes.promoted(m, list(named.values()))
        if entry is not None and entry.factory and not inputs:
            dtype = dtypes.factory(m, op, list(named.values()))
    if m.autocast and inputs and dtypes.is_float(dtype):
        dtype = ""
    grad: Grad = (
        "no"
        if facts.constant(op) or (dtype and not dtypes.is_float(dtype) and "complex" not in dtype)
        else m.mixed(inputs)
    )
    made = m.node(inputs) if grad != "no" else None
    outputs = entry.outputs if entry is not None else None
    if entry is not None and outputs is not None and _gives_tuple(outputs, named, keywords):
        if made is not None:
            kept = replace(entry, saves=outputs.saves, saves_alone=outputs.saves)
            keep(m, op, made, {**named, **keywords}, inputs, node, parts, kept)
        return _outputs(m, op, value, outputs, grad, made, inputs, node, dtype)
    along = joined(m, op, named, keywords)
    out = m.tensor(
        f"made by {op}",
        value,
        kind=kind,
        dtype=dtype,
        grad=grad,
        graph=graph(m, value, inputs, op, along[0] if along is not None else None) if grad != "no" else 0,
        nodes=frozenset({made}) if made is not None else NO_IDS,
    )
    if "memory_format" in keywords or any(turned(m, t) for t in inputs):
        m.update(out.sids[0], flags=m.storage(out.sids[0]).flags | {"turned"})
    if made is not None:
        keep(m, op, made, {**named, **keywords}, inputs, node, parts, entry)
        keep_result(m, op, made, out, inputs, node, entry)
    if outputs is not None:
        m.tuples.add(out.sids[0])
    return out


def turned(m: Machine, value: Ten) -> bool:
    """True for what may lie in memory in another order than that of its dimensions: a new tensor may lie otherwise."""
    steps = any(isinstance(s, tuple) and s[0] == "op" and s[1] in shapes.TURNS for s in value.path)
    return steps or any("turned" in m.storage(sid).flags for sid in value.sids)


def _gives_tuple(outputs: Outputs, named: dict[str, Value], keywords: dict[str, Value]) -> bool:
    """True where a call surely gives a tuple: always, with `max`'s `dim`, or as `return_indices` says."""
    second = list(named.values())[1:2]
    number = any(v == NUMBER or (isinstance(v, Const) and type(v.value) is int) for v in second)
    dim = bool(outputs.names) and (number or "dim" in keywords)
    return outputs.always or dim or keywords.get("return_indices") == Const(True)


def _outputs(
    m: Machine,
    op: str,
    value: int,
    outputs: Outputs,
    grad: Grad,
    made: int | None,
    inputs: list[Ten],
    node: ast.AST,
    dtype: str,
) -> Value:
    """The tensors of a tuple, each in memory of its own."""
    kept = m.mixed(inputs)
    whole = graph(m, value, inputs) if grad != "no" else 0
    items: list[Value] = []
    for n, differentiable in enumerate(outputs.differentiable):
        flows = differentiable and made is not None
        out = m.tensor(
            f"made by {op}",
            m.terms.make("output", value, n),
            dtype=dtype if differentiable else "",
            grad=grad if flows else "no",
            graph=m.terms.make("output", whole, n) if flows and whole else 0,
            nodes=frozenset({made}) if flows and made is not None else NO_IDS,
        )
        if made is not None and f"result{n or ''}" in outputs.saves and kept != "no":
            add_save(m, out, made, op, node, None, "output", kept == "yes")
        items.append(out)
    given = m.sequence(items, "tuple")
    m.names[given.oid] = outputs.names
    return given


def keep(
    m: Machine,
    op: str,
    node_id: int,
    named: dict[str, Value],
    inputs: list[Ten],
    node: ast.AST,
    parts: dict[str, ast.expr],
    entry: FunctionInfo | None,
    saved: frozenset[str] | None = None,
) -> None:
    """Record the arguments that an operation keeps for backward.

    An argument of an operation with several inputs is kept for the gradient of the others.
    """
    names = facts.saved(op, entry, len(inputs)) if saved is None else saved
    for name, value in named.items():
        if name.partition("#")[0] not in names:
            continue
        for tensor in tensors(m, value):
            if m.kind(tensor) == "unknown":
                continue
            rest = list(inputs)
            rest.remove(tensor)  # once: `x * x` keeps x for the gradient of the other x
            rest = [t for t in rest if m.kind(t) != "unknown"]
            known = [t for t in inputs if m.kind(t) != "unknown"]
            grad = m.mixed(rest) if len(inputs) > 1 and facts.bilinear(op) else m.mixed(known)
            if grad != "no":
                add_save(m, tensor, node_id, op, node, parts.get(name), "input", grad == "yes")


def keep_result(
    m: Machine, op: str, node_id: int, out: Ten, inputs: list[Ten], node: ast.AST, entry: FunctionInfo | None
) -> None:
    """Record that an operation keeps its own result."""
    grad = m.mixed(inputs)
    if "result" in facts.saved(op, entry, len(inputs)) and grad != "no":
        add_save(m, out, node_id, op, node, None, "output", grad == "yes")


def add_save(
    m: Machine, tensor: Ten, node_id: int, op: str, node: ast.AST, part: ast.expr | None, role: str, sure: bool
) -> None:
    """A pending save on each storage that `tensor` may lie in."""
    span = span_of(part) if part is not None and isinstance(part, (ast.Name, ast.Attribute, ast.Subscript)) else None
    stack = m.stack(node)
    for sid in tensor.sids:
        m.saves.append(Save(node_id, sid, op, m.place(node), span, role, stack))
        known = m.storage(sid)
        number = frozenset({len(m.saves) - 1})
        if sure and tensor.exact:
            m.update(sid, saves=known.saves | number)
        else:
            m.update(sid, maybe=known.maybe | number)


def index(m: Machine, base: Ten, item: Value, node: ast.AST, parts: dict[str, ast.expr]) -> Value:
    """`base[item]`: a view for integers and slices, a copy for lists, masks and index tensors."""
    if base.choice is not None:
        m.step()
        return _index_choice(m, base, item, node, parts)
    steps, gathers, sure = index_steps(m, item)
    if m.kind(base) == "unknown" and isinstance(item, Const) and isinstance(item.value, str):
        declared.used_as(m, base, "dict")
        return declared.element(m, base, ("item", base.sids, item.value))
    if m.kind(base) == "unknown" and (
        gathers or (len(steps) == 1 and m.terms.parts(int(str(steps[0])))[0] not in ("slice", "any"))
    ):
        return declared.element(m, base, ("item", base.sids, steps), declared.position(item))
    if gathers:
        return operate(m, "index", {"self": base, "indices": item}, node, parts)
    view = Ten(base.sids, base.exact, base.view or "view", base.cut, (*base.path, ("index", *steps)))
    if sure:
        return view
    copy = m.tensor(
        "made by indexing",
        m.read(view),
        kind=m.kind(base),
        dtype=m.dtype_of(base),
        grad=m.grad_of(base),
        graph=m.graph_of(view),
        nodes=m.nodes_of(base),
    )
    return choose(m.terms.make("aliases", m.serial()), view, copy)


def _index_choice(m: Machine, base: Ten, item: Value, node: ast.AST, parts: dict[str, ast.expr]) -> Value:
    assert base.choice is not None
    condition, yes, no = base.choice
    left, right = index(m, yes, item, node, parts), index(m, no, item, node, parts)
    return choose(condition, left, right) if isinstance(left, Ten) and isinstance(right, Ten) else left


def index_steps(m: Machine, item: Value) -> tuple[tuple[int, ...], bool, bool]:
    """Terms of an index, whether it gathers (copies), and whether that is sure."""
    items = list(m.items_of(item).items) if isinstance(item, Obj) and item.what == "tuple" else [item]
    steps: list[int] = []
    gathers, sure = False, True
    for part in items:
        steps.append(m.term_of(part))
        if isinstance(part, Obj) and part.what == "list":
            gathers = True
        elif isinstance(part, Ten):
            if m.kind(part) == "unknown":
                sure = False
            else:
                gathers = True
            steps[-1] = m.terms.make("any", steps[-1])
        elif isinstance(part, (Union, Other)) and not (isinstance(part, Other) and part.what in ("slice", "number")):
            sure = False
    return tuple(steps), gathers, sure
