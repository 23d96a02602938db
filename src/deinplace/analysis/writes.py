"""In-place writes: what they destroy, and what memory holds afterwards."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from deinplace.analysis import declared, dtypes, facts, ops, shapes, sharing, signs
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import stronger
from deinplace.analysis.records import Write
from deinplace.analysis.source import span_of
from deinplace.analysis.values import NO_IDS, NONE, Const, Fields, Ten, Torch, Union, Value, evolved
from deinplace.catalog import FunctionInfo
from deinplace.model import Place

UNFOLLOWED = "writes single elements of an expanded tensor"


def apply(
    m: Machine,
    target: Ten,
    op: str,
    named: dict[str, Value],
    node: ast.AST,
    form: str,
    parts: dict[str, ast.expr],
    keywords: dict[str, Value] | None = None,
    module: Torch | None = None,
    entry: FunctionInfo | None = None,
) -> Ten:
    """`target op= arguments`, in place; the target itself is the result."""
    inputs = {"self": target, **named}
    keywords = keywords or {}
    entry = entry or facts.method(op + "_") or facts.method(op)
    term = ops.term(m, op, inputs, keywords)
    if entry is not None and entry.random:
        term = m.terms.make("made", term, m.serial())
    cast = not dtypes.kept(m, op, target, [*named.values(), *keywords.values()])
    # the result of a tensor on a part of itself depends on which is written first
    cast = cast or (not m.lenient and any(_overlaps(target, v) for v in named.values()))
    cast = cast or (op not in facts.operators() and not m.lenient and ops.turned(m, target))
    cast = cast or (m.autocast and any(isinstance(v, Ten) for v in named.values()))
    if cast:
        term = m.terms.make("cast", term, dtypes.name(m, target))
    narrow = dtypes.narrows(m, op, target, list(named.values()), keywords)
    divisor = signs.whole_divisor(op, named.get("other")) if narrow else 0
    if divisor and signs.negative_free(m.terms, m.read(target)):
        # Refused as it stands; what can be meant is a division in whole numbers.
        term = m.terms.make("floor_divide", m.read(target), m.term_of(Const(divisor)))
    tensors = [t for v in (*named.values(), *keywords.values()) for t in ops.tensors(m, v)]
    graph = sharing.graph(m, term, [target, *tensors])
    if m.grad != "off":
        made = m.node([target, *tensors])
        # first: an argument that shares the memory of the target is overwritten by the operation that saved it
        ops.keep(m, op, made, {**named, **keywords}, [target, *tensors], node, parts, entry)
        record(m, target, op, node, form, module, tensors, narrow, cast=cast)
        store(m, target, term, graph, made, tensors)
        ops.keep_result(m, op, made, target, [target, *tensors], node, entry)
    else:
        record(m, target, op, node, form, module, tensors, narrow, cast=cast)
        store(m, target, term, None, None, [])
    return target


def _overlaps(target: Ten, value: Value) -> bool:
    return isinstance(value, Ten) and value.path != target.path and not set(value.sids).isdisjoint(target.sids)


def store(m: Machine, target: Ten, term: int, graph: int | None, node: int | None, inputs: list[Ten]) -> None:
    """Put a new value where `target` lies. `graph` None keeps the graph as it is, as a write under no_grad does."""
    if target.choice is not None:
        m.step()
        condition, yes, no = target.choice
        old_graphs = [m.graph_of(side) for side in (yes, no)]
        olds = [m.read(side) for side in (yes, no)]
        for side, old, old_graph, first in ((yes, olds[0], old_graphs[0], True), (no, olds[1], old_graphs[1], False)):
            pair = (term, old) if first else (old, term)
            graphs = None if graph is None else ((graph, old_graph) if first else (old_graph, graph))
            picked = None if graphs is None else m.terms.choose(condition, *graphs)
            store(m, side, m.terms.choose(condition, *pair), picked, node, inputs)
        return
    at, dims = _repeated(target)
    if at and not shapes.stays_repeated(m.terms, dims, target.path[at:]):
        m.notes.add(UNFOLLOWED)
    sid = target.sids[0]
    known = m.storage(sid)
    changes: dict[str, object] = {"term": m.terms.put(known.term, target.path, term)}
    leaf = "leaf" in known.flags and known.grad == "yes"
    if graph is not None and target.cut and m.mixed(inputs) == "yes":
        m.notes.add("writes what requires gradients into a detached tensor")
    if graph is not None and not target.cut and not leaf:
        changes["graph"] = m.terms.put(known.graph, target.path, graph)
        changes["nodes"] = known.nodes | ({node} if node is not None else NO_IDS)
        changes["grad"] = stronger(known.grad, m.mixed(inputs))
    m.m.cells[sid] = evolved(known, **changes)


def record(
    m: Machine,
    target: Ten,
    op: str,
    node: ast.AST,
    form: str,
    module: Torch | None = None,
    inputs: Sequence[Ten] = (),
    narrow: bool = False,
    part: Ten | None = None,
    cast: bool = False,
) -> None:
    """Note a write and the saves that it destroys; the saves are forgotten, as if the write had been mended.

    `part` is what is written of `target`, where that is not all of it.
    """
    hits: frozenset[int] = NO_IDS
    maybe: frozenset[int] = NO_IDS
    for sid in target.sids:
        known = m.storage(sid)
        if target.exact:
            hits |= known.saves
            maybe |= known.maybe
        else:
            maybe |= known.saves | known.maybe
        if (known.saves or known.maybe) and target.cut != "unseen":  # or the next write is the one that fails
            m.update(sid, saves=NO_IDS, maybe=NO_IDS)
    first = m.storage(target.sids[0])
    flagged: tuple[Place, ...] = ()
    if module is not None:
        flagged = (Place(module.path, span_of(module.node)),)
    time = m.tick()
    m.written.update(dict.fromkeys(target.sids, time))
    m.writes.append(
        Write(
            place=m.place(node),
            stack=m.stack(node),
            form=form,
            op=op,
            kind=m.kind(target),
            why=first.why,
            origin="view" if target.view else first.origin if target.exact else "alias",
            view=target.view,
            grad_on=m.grad != "off",
            grad=m.grad_of(replace(target, cut="")),
            leaf=any("leaf" in m.storage(s).flags for s in target.sids),
            time=time,
            hits=tuple(sorted(hits)),
            maybe=tuple(sorted(maybe)),
            names=names_of(m, target),
            flagged=flagged,
            cast=cast,
            module=module.name if module is not None else "",
            cut=target.cut,
            node=node,
            rhs=m.mixed(list(inputs)),
            misfit=_misfit(m, part or target, narrow, op),
            flags=frozenset().union(*(m.storage(s).flags for s in target.sids)),
            sids=target.sids,
        )
    )


def _repeated(target: Ten) -> tuple[int, tuple[int, ...]]:
    """Where a path passes an expansion, and the dimensions along which that repeats elements; 0 for nowhere."""
    for n, step in enumerate(target.path):
        if isinstance(step, tuple) and step[0] == "own":
            return n + 1, step[1]
    return 0, ()


def _misfit(m: Machine, target: Ten, narrow: bool, op: str) -> str:
    """Why a write is refused whatever autograd knows of the tensor; empty where it is not."""
    if not target.exact or target.choice is not None or m.kind(target) != "tensor":
        return ""
    if not m.inference and "inference" in m.storage(target.sids[0]).flags:
        return "inference"
    at, dims = _repeated(target)
    if at and op == "index_put":
        m.notes.add(UNFOLLOWED)  # torch warns, and writes
    elif at and shapes.stays_repeated(m.terms, dims, target.path[at:]):
        return "expanded"
    return "cast" if narrow else ""


def names_of(m: Machine, target: Ten) -> tuple[str, ...]:
    """Local names bound to the very tensor."""
    fields = m.m.peek(m.frame.fid)
    if not isinstance(fields, Fields):
        return ()
    return tuple(str(k) for k, v in fields.fields.items() if v == target)


def other(m: Machine, node: ast.AST, value: Value) -> None:
    """A write to something that is not a tensor."""
    if hasattr(node, "lineno"):
        key = m.frame.module.path, span_of(node)
        words = " or ".join(sorted(_what(m, value)))
        if key not in m.visited or "unknown" not in words:
            m.visited[key] = words


def _what(m: Machine, value: Value) -> set[str]:
    """In a word, what a value is; several words for one that is one of several."""
    if isinstance(value, Union):
        # None has nothing that could be written: whoever gets there holds one of the others.
        return set().union(*(_what(m, v) for v in value.options if v != NONE))
    if isinstance(value, Ten):
        spec = declared.of(m, value)
        return {spec.what if spec is not None else "unknown"}
    if isinstance(value, Const):
        return {"unknown" if value.value is None else type(value.value).__name__}
    return {str(getattr(value, "what", type(value).__name__))}
