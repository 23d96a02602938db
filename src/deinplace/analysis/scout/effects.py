"""What operations of torch do to the cells of a quick look: views, saves and writes."""

from __future__ import annotations

import ast

from deinplace.analysis import facts
from deinplace.analysis.context import INFERENCE, OFF, ON
from deinplace.analysis.scout.members import (
    CUT,
    EXPANDED,
    FRACTION,
    MULTI,
    NOTHING,
    WHOLE,
    Box,
    Layer,
    Member,
    Value,
    cells_of,
)
from deinplace.analysis.scout.state import Scout
from deinplace.analysis.shapes import EXPANDS
from deinplace.analysis.values import Const, Ref
from deinplace.catalog import FunctionInfo

_WHOLE_MAKERS = ("arange", "randint", "randperm", "tensor", "full", "as_tensor", "from_numpy")
_WHOLE_CASTS = ("long", "int", "short", "char", "byte", "bool")
_FLOAT_CASTS = ("float", "double", "half", "bfloat16")
Inputs = list[tuple[str, Value]]


def operate(s: Scout, op: str, entry: FunctionInfo | None, inputs: Inputs, keywords: dict[str, Value]) -> Value:
    """The result of an operation that writes nothing."""
    entry = entry or facts.method(op)
    returns = entry.returns if entry is not None else "fresh"
    first = next((v for _, v in inputs if int in map(type, v)), None)
    if first is not None and returns in ("view", "views", "self", "maybe_alias"):
        s.likely |= cells_of(first, 0)
        return _view(op, returns, first, keywords)
    if returns == "other":
        return NOTHING
    values: Inputs = [*inputs, *keywords.items()]
    held = [cells_of(v) for _, v in values]
    all_cells = set().union(*held)
    s.steps -= len(all_cells)
    made = s.cell()
    if s.inference:
        s.inferred.add(made)
    out: set[Member] = {made}
    if op not in facts.operators() or all_cells & s.likely:
        s.likely.add(made)
    if not s.grad or facts.constant(op) or facts.gives_bool(op) or all_cells <= s.constant:
        s.constant.add(made)
    if keywords.get("requires_grad", NOTHING) - {Const(False), Const(None)}:
        s.leaves.add(made)
        s.constant.discard(made)
    if _whole(op, entry, inputs, keywords):
        out.add(WHOLE)
    keep(s, op, entry, values, held, all_cells)
    if s.grad and all_cells - s.constant and _keeps_result(op, entry, sum(map(len, held))):
        s.saved.add(made)
    return frozenset(out)


def _view(op: str, returns: str, first: Value, keywords: dict[str, Value]) -> Value:
    out = {m for m in first if isinstance(m, (int, str))}
    if op in ("detach", "data"):
        out.add(CUT)
    if returns == "views":
        out.add(MULTI)
    if op in EXPANDS:
        out.add(EXPANDED)
    if op in _WHOLE_CASTS or op in ("to", "type") or "dtype" in keywords:
        out.add(WHOLE)
    elif op in _FLOAT_CASTS:
        out.discard(WHOLE)
    return frozenset(out)


def _whole(op: str, entry: FunctionInfo | None, inputs: Inputs, keywords: dict[str, Value]) -> bool:
    """True where a result may hold whole numbers."""
    dtype = keywords.get("dtype")
    if dtype:
        return any(not isinstance(m, Ref) or "int" in m.name or m.name.endswith(("long", "bool")) for m in dtype)
    if op in _WHOLE_MAKERS or op.startswith("arg"):
        return True
    tensors = [v for _, v in inputs if int in map(type, v)]
    return bool(tensors) and all(WHOLE in v for v in tensors) and not any(FRACTION in v for _, v in inputs)


def _saved(op: str, entry: FunctionInfo | None, count: int) -> frozenset[str]:
    alone = facts.saved(op, entry, 1)
    return alone | facts.saved(op, entry, 2) if count > 1 else alone


def _keeps_result(op: str, entry: FunctionInfo | None, count: int) -> bool:
    """True where backward needs the result, or one of several, which all lie in one cell here."""
    return "result" in _saved(op, entry, count) or (
        entry is not None and entry.outputs is not None and any(n.startswith("result") for n in entry.outputs.saves)
    )


def keep(
    s: Scout, op: str, entry: FunctionInfo | None, values: Inputs, held: list[set[int]], all_cells: set[int]
) -> None:
    """Note the arguments that an operation keeps for backward."""
    count = sum(map(len, held))
    names = _saved(op, entry, count)
    if not names or not s.grad:
        return
    known = all_cells & s.likely
    if not known - s.constant:
        return
    for n, (name, _) in enumerate(values):
        mine = held[n] & s.likely
        if not mine or name.partition("#")[0] not in names:
            continue
        if facts.bilinear(op) and count > 1:
            # Kept for the gradients of the others; one that stands twice is kept for its own.
            others = set().union(*(c for k, c in enumerate(held) if k != n))
            if not (others & s.likely) - s.constant and len(held[n]) < 2:
                continue
        s.saved |= mine


def write(s: Scout, target: Value, op: str, values: list[Value]) -> None:
    """A write in place: does it meet a save, or what torch guards?"""
    cells = cells_of(target, 0)
    if not cells:
        return
    refused(s, cells)
    likely = not cells.isdisjoint(s.likely)
    if not cells.isdisjoint(s.saved) or (likely and EXPANDED in target):
        s.blame()
    if s.grad and likely and CUT not in target and (MULTI in target or not cells.isdisjoint(s.leaves)):
        s.blame()
    fractions = any(FRACTION in v or (WHOLE not in v and cells_of(v) & s.likely) for v in values)
    if likely and WHOLE in target and op in facts.operators() and (op == "div" or fractions):
        s.blame()
    s.written |= cells
    given = set().union(*(cells_of(v) for v in values))
    if s.grad and given - s.constant:
        s.constant -= cells


def refused(s: Scout, cells: set[int]) -> None:
    """A write to what was made in inference mode, outside it."""
    if not s.inference and not cells.isdisjoint(s.inferred):
        s.blame()


def in_place(
    s: Scout,
    op: str,
    target: Value,
    inputs: Inputs,
    entry: FunctionInfo | None,
    partial: bool = False,
) -> Value:
    """`target op= arguments`; `partial` where only a part of it is written, by way of a new tensor."""
    entry = entry or facts.method(op + "_") or facts.method(op)
    values: Inputs = [("self", target), *inputs]
    held = [cells_of(v) for _, v in values]
    all_cells = set().union(*held)
    if partial:
        kept = s.saved & held[0]
        keep(s, op, facts.method(op), values, held, all_cells)
        s.saved -= held[0] - kept - set().union(*held[1:])
    else:
        keep(s, op, entry, values, held, all_cells)
    write(s, target, op, [v for _, v in inputs])
    if s.grad and all_cells - s.constant and "result" in _saved(op, entry, sum(map(len, held))):
        s.saved |= held[0]
    return target


def layer(s: Scout, module: Layer, args: list[Value], keywords: dict[str, Value]) -> Value:
    """A call of a module of torch's own that holds no others."""
    first = args[0] if args else NOTHING
    if module.name == "torch.nn.Identity":
        return first
    for value in args:
        s.likely |= cells_of(value, 0)
    s.read.add("inplace")
    entry = facts.module(module.name)
    functional = (entry.functional if entry is not None else None) or module.name
    op = functional.rpartition(".")[2]
    out: Value = NOTHING
    working = entry is not None and entry.inplace is not None and module.inplace - {Const(False), Const(None)}
    if working and entry is not None and cells_of(first, 0):
        saves = _as_entry(module.name, entry.saves_inplace)
        out |= in_place(s, op, first, [], saves)
        if module.inplace == {Const(True)}:
            return out
    saves = _as_entry(module.name, entry.saves if entry is not None else frozenset({"input"}))
    named: Inputs = [("input" if n == 0 else f"input{n}", v) for n, v in enumerate(args)]
    if facts.has_parameters(module.name) or entry is None:
        weight = s.derived(module, "weight")
        s.leaves.add(weight)
        s.likely.add(weight)
        named.append(("weight", frozenset({weight})))
    out |= operate(s, op, saves, named, keywords)
    if module.name.rpartition(".")[2] in ("LSTM", "GRU", "RNN", "MultiheadAttention"):
        return frozenset({Box([out, out | frozenset({Box([out, out])})])})
    return out


def _as_entry(name: str, saves: frozenset[str]) -> FunctionInfo:
    kept = frozenset("result" if s in ("result", "output") else s for s in saves)
    return FunctionInfo(name, saves=kept, saves_alone=kept, returns="fresh")


def switch(s: Scout, node: ast.expr) -> None:
    """Switch gradients off or on, and inference mode on, as a context manager or decorator does."""
    found = mode(s, node)
    if found is not None:
        s.grad = found
    if found is False:
        func = node.func if isinstance(node, ast.Call) else node
        named = s.named(s.scope.path, func)
        s.inference = s.inference or any(isinstance(m, Ref) and m.name in INFERENCE for m in named)


def mode(s: Scout, node: ast.expr) -> bool | None:
    """Whether a context manager or decorator switches gradients on or off."""
    called = isinstance(node, ast.Call)
    func = node.func if isinstance(node, ast.Call) else node
    for member in s.named(s.scope.path, func):
        if isinstance(member, Ref) and member.name in OFF:
            given = node.args if called and isinstance(node, ast.Call) else []
            return bool(given and isinstance(given[0], ast.Constant) and given[0].value is False)
        if isinstance(member, Ref) and member.name in ON:
            return True
    return None
