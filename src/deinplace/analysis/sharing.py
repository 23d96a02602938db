"""What a result shares with its inputs: memory, and the way that gradients take."""

from __future__ import annotations

from dataclasses import replace

from deinplace.analysis import dtypes, shapes
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    Const,
    Obj,
    Ten,
    Value,
    union,
)

SAME_VALUE = ("clone", "contiguous", "detach", "alias", "data", "requires_grad")


def graph(m: Machine, value: int, inputs: list[Ten], op: str = "", along: int | None = None) -> int:
    """The term of how gradients leave a result; `along` is the dimension in which `cat` joins its inputs."""
    if m.grad == "off":
        return 0
    if op in SAME_VALUE and inputs:
        return m.graph_of(inputs[0])
    graphs = [m.graph_of(t) for t in inputs]
    if along is not None and any(graphs):
        return m.terms.join(along, graphs)
    return m.terms.make("backward", value, *graphs) if any(graphs) else 0


def shared(m: Machine, op: str, base: Ten, named: dict[str, Value], keywords: dict[str, Value], returns: str) -> Value:
    """A result that lies in its input's memory, or may."""
    m.refine(base, f"has .{op}()", "likely")
    rest = tuple(m.term_of(v) for v in list(named.values())[1:])
    pairs = tuple(sorted((k, m.term_of(v)) for k, v in keywords.items()))
    if returns == "self" or op in SAME_VALUE:
        view = replace(base, cut="unseen" if op == "data" else base.cut or ("detached" if op == "detach" else ""))
        if returns != "maybe_alias":
            return view
    step = _step(m, op, rest, dict(pairs))
    dims = shapes.repeated(m.terms, op, m.read(base), rest) if op in shapes.EXPANDS else ()
    if dims:
        # One element in many places: torch refuses to write it, so that whoever means to write it means a copy.
        step = ("own", dims, *step)
    if op in SAME_VALUE:
        view = base
    elif base.choice is not None:
        m.step()
        condition, yes, no = base.choice
        left = shared(m, op, yes, {**named, "self": yes}, keywords, returns)
        right = shared(m, op, no, {**named, "self": no}, keywords, returns)
        return _either(m, condition, left, right)
    else:
        view = replace(base, view="view", path=(*base.path, step))
    if returns == "views":
        pieces: list[Value] = [replace(view, view="multi", path=_output(m, view.path, n)) for n in range(_count(named))]
        return m.sequence(pieces, "tuple", opened=True)
    if returns == "maybe_alias" and not m.glance:
        copied = dtypes.of_value(m, keywords.get("dtype")) or next(
            (d for v in list(named.values())[1:] if (d := dtypes.of_value(m, v))), ""
        )
        dtype = copied or dtypes.cast(m, op) or m.dtype_of(base)
        if m.kind(base) == "tensor" and dtypes.differ(m, dtype, m.dtype_of(base)):
            made = m.node([base])
            value = m.terms.make(op, m.read(base), *rest, *pairs)
            return m.tensor(
                f"made by {op}",
                value,
                dtype=dtype,
                grad=m.mixed([base]),
                graph=graph(m, value, [base]),
                nodes=frozenset({made}),
            )
        made = m.node([base])
        copy = m.tensor(
            f"made by {op}",
            m.read(view),
            kind=m.kind(base),
            dtype=dtype,
            grad=m.mixed([base]),
            graph=m.graph_of(view),
            nodes=frozenset({made}),
        )
        return choose(m.terms.make("aliases", m.serial()), view, copy)
    return view


def _step(m: Machine, op: str, rest: tuple[int, ...], pairs: dict[str, int]) -> tuple[object, ...]:
    """How a view leads on from its base; rows have one spelling, however they are taken."""
    first = m.term_of(Const(0))
    if op in ("unbind", "select"):
        named = {**dict(zip(("dim", "index"), rest, strict=False)), **pairs}
        dim = named.get("dim", first)
        if op == "unbind":
            return ("rows", dim)
        if "index" in named:
            return ("index", named["index"]) if dim == first else ("select", dim, named["index"])
    return ("op", op, *rest, *sorted(pairs.items()))


def _output(m: Machine, path: tuple[object, ...], n: int) -> tuple[object, ...]:
    """The path of the n-th of several views."""
    last = path[-1] if path else None
    if isinstance(last, tuple) and last[0] == "rows":
        number = m.term_of(Const(n))
        row = ("index", number) if last[1] == m.term_of(Const(0)) else ("select", last[1], number)
        return (*path[:-1], row)
    return (*path, ("output", n))


def _either(m: Machine, condition: int, yes: Value, no: Value) -> Value:
    """A view, or each of several views, of one tensor or of another."""
    if isinstance(yes, Ten) and isinstance(no, Ten):
        return choose(condition, yes, no)
    if isinstance(yes, Obj) and isinstance(no, Obj):
        pairs = zip(m.items_of(yes).items, m.items_of(no).items, strict=False)
        return m.sequence([_either(m, condition, a, b) for a, b in pairs], yes.what, opened=True)
    return union((yes, no), condition)


def choose(condition: int, yes: Ten, no: Ten) -> Ten:
    """A view that is one of two: `yes` where the condition of that term holds."""
    sids = tuple(dict.fromkeys((*yes.sids, *no.sids)))
    return Ten(sids, False, yes.view or no.view, yes.cut and no.cut, (), (condition, yes, no))


def _count(named: dict[str, Value]) -> int:
    """How many outputs `chunk`, `split` or `unbind` give: known for chunk(n), else a few."""
    for value in list(named.values())[1:2]:
        if isinstance(value, Const) and isinstance(value.value, int):
            return max(2, min(value.value, 8))
    return 4
