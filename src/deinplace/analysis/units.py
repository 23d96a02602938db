"""One abstract run: of a program, or of a function on its own, and what others see of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deinplace.analysis.arguments import arguments
from deinplace.analysis.context import DOUBTFUL, FAILING
from deinplace.analysis.index import FunctionInfo, ModuleInfo
from deinplace.analysis.inline import inline
from deinplace.analysis.machine import Machine
from deinplace.analysis.names import run_module
from deinplace.analysis.receiver import receiver
from deinplace.analysis.records import ExhaustedError, Frame, UnreachedError
from deinplace.analysis.report import Report, Unit, hits_of
from deinplace.analysis.values import (
    Const,
    Content,
    Fields,
    Fn,
    Items,
    Obj,
    Other,
    Storage,
    Ten,
    Value,
)
from deinplace.analysis.writes import UNFOLLOWED

FUNCTION_STEPS = 12_000
DEEP = 6
"""So deep is looked into what a function returns or leaves behind."""


def guarded(machine: Machine, report: Report, unit: Unit, run: object, steps: int) -> None:
    """Run one unit and collect what it did; what goes wrong makes it incomplete."""
    machine.trace, machine.writes, machine.sinks = [], [], []
    machine.notes, machine.clock = set(), 0
    machine.steps, machine.grad, machine.inference = steps, "on", False
    machine.autocast = not machine.lenient and machine.index.autocasts
    depth = len(machine.frames)
    before = machine.mem
    machine.begin(unit)
    try:
        run()  # type: ignore[operator]
    except UnreachedError:
        machine.mem = None
    except ExhaustedError:
        report.incomplete[unit] = "takes too many steps to follow"
    except RecursionError:
        report.incomplete[unit] = "is nested too deeply to follow"
    del machine.frames[depth:]
    if machine.mem is None:
        machine.mem = before
    if "ends early" in machine.notes:
        report.incomplete.setdefault(unit, "does not run to its end")
    for why in (UNFOLLOWED, DOUBTFUL, FAILING):
        if why in machine.notes:
            report.incomplete.setdefault(unit, why)
    _settle(machine)
    report.traces[unit] = machine.trace
    report.writes[unit] = machine.writes
    report.notes[unit] = frozenset(machine.notes)
    report.ran[unit] = frozenset(machine.ran)
    report.hits += hits_of(machine, unit)


def _settle(machine: Machine) -> None:
    """What was learnt of a value after it was written holds for the write, too."""
    for n, write in enumerate(machine.writes):
        if write.kind != "unknown":
            continue
        known = [machine.m.peek(s) for s in write.sids]
        kinds = {k.kind if isinstance(k, Storage) else "unknown" for k in known}
        if "unknown" not in kinds:
            first = next(k for k in known if isinstance(k, Storage))
            machine.writes[n] = replace(write, kind="tensor" if kinds == {"tensor"} else "likely", why=first.why)
        specs = {machine.specs.get(s) for s in write.sids}
        if len(specs) == 1 and (spec := specs.pop()) is not None and write.node is not None:
            machine.visited.setdefault((write.place.path, write.place.span), spec.what)


def run_program(machine: Machine, module: ModuleInfo) -> None:
    """Run the top level of a file as its own program, with its main block."""
    first = machine.new_id()
    ended = run_module(machine, module)
    if ended:
        machine.notes.add("ends early")
    if machine.traced:
        observe_globals(machine)
        observe_outside(machine, machine.m.changes(), first)


def observe_globals(machine: Machine) -> None:
    """What the top levels of all modules hold in the end can be seen by anybody."""
    for path, fid in sorted(machine.globals.items()):
        fields = machine.m.peek(fid)
        if not isinstance(fields, Fields):
            continue
        for name, value in sorted(fields.fields.items(), key=lambda pair: str(pair[0])):
            if isinstance(value, Ten) and machine.lenient and _stale(machine, fid, str(name), value):
                continue
            if isinstance(value, (Ten, Obj, Const, Other)):
                machine.observe("global", path, str(name), *_seen(machine, value))
            for parameter, default in value.defaults if isinstance(value, Fn) else ():
                machine.observe("global", path, f"{name}({parameter})", *_seen(machine, default))


def _stale(machine: Machine, fid: int, name: str, value: Ten) -> bool:
    """True for a name of a failing program that nobody looked at since its tensor was written."""
    written = max((machine.written.get(s, 0) for s in value.sids), default=0)
    looked = max((machine.looked.get(s, 0) for s in value.sids), default=0)
    return max(looked, machine.bound.get((fid, name), 0)) < written


def observe_outside(machine: Machine, changes: Mapping[int, Content], first: int) -> None:
    """Memory that came from outside and was written since id `first`: its owner sees that.

    What a module made that was imported meanwhile is settled already, and has to be looked for.
    """
    settled = machine.m.born
    held = {sid: settled[sid] for sid in machine.m.kept if sid in settled} | dict(changes)
    for sid in sorted(held.keys() & machine.arrived.keys()):
        known, before, born = held[sid], settled.get(sid), machine.arrived[sid]
        was = machine.terms.whole(before.term) if sid < first and isinstance(before, Storage) else born
        if isinstance(known, Storage) and (term := machine.terms.whole(known.term)) != was:
            machine.observe("outside", born, term, machine.terms.whole(known.graph))


def observe_kept(machine: Machine, changes: Mapping[int, Content], first: int, me: Value | None) -> None:
    """What a function put into containers and objects that outlive it: module state, class state, defaults.

    Those that it was given, and what it is bound to, are observed as arguments.
    """
    mine = next((b.born for b in machine.receivers.values() if b.value == me), range(0))
    settled = machine.m.born
    for oid in sorted(oid for oid in changes if oid < first and oid not in mine):
        content, before = changes[oid], settled.get(oid)
        if content is before:
            continue
        if isinstance(content, Items):
            machine.observe("kept", *(t for value in content.items for t in _seen(machine, value, DEEP)))
        elif isinstance(content, Fields):
            known = before.fields if isinstance(before, Fields) else {}
            changed = {str(k): v for k, v in content.fields.items() if known.get(k) is not v}
            machine.observe("kept", *((k, *_seen(machine, changed[k], DEEP)) for k in sorted(changed)))


def _seen(machine: Machine, value: Value, depth: int = 4) -> tuple[int, int]:
    """A value, and how gradients leave the tensors that it is or holds."""
    return machine.term_of(value, depth), machine.graphs_of(value)


def run_alone(machine: Machine, report: Report, module: ModuleInfo, info: FunctionInfo) -> None:
    """Run a function on unknown arguments; whoever calls it sees its arguments, its result and `self` afterwards."""
    start = machine.m.fork()
    kept = machine.settled()
    unit = (module.path, info.qualname)

    def run() -> None:
        fid = machine.globals.get(module.path)
        if fid is None:
            return
        first = machine.new_id()
        machine.frames.append(Frame(fid, module, module.source.tree, "<caller>"))
        bound = receiver(machine, info)
        machine.clock = 0
        machine.writes.clear()
        machine.trace.clear()
        machine.me = None if machine.lenient else bound
        if bound is not None and not machine.lenient:
            machine.escape(bound, "lies in an object that lasts")
        names = [*info.node.args.posonlyargs, *info.node.args.args, *info.node.args.kwonlyargs]
        values = dict(arguments(machine, info, bound, names))
        fn = Fn(info, (), None, machine.defaults_of(info))
        keywords: dict[str, Value] = {str(k): v for k, v in values.items()}
        positional = [
            keywords.pop(a.arg) for a in (*info.node.args.posonlyargs, *info.node.args.args) if a.arg in keywords
        ]
        result = inline(machine, fn, positional, keywords, info.node.body[0], opened=True)
        if machine.mem is None:
            return
        handed = [t for v in (result, bound, *values.values()) if v is not None for t in _handed(machine, v)]
        machine.sink(handed)
        if not machine.traced:
            return
        machine.observe("returns", *_seen(machine, result, DEEP))
        for name, value in values.items():
            machine.observe("argument", name, *_seen(machine, value))
        changes = machine.m.changes()
        observe_outside(machine, changes, first)
        observe_kept(machine, changes, first, bound)

    guarded(machine, report, unit, run, machine.limits.get(unit, FUNCTION_STEPS))
    machine.mem, machine.me = start, None
    machine.restore(kept)


def _handed(machine: Machine, value: Value) -> list[Ten]:
    from deinplace.analysis.memory import tensors_in

    return list(tensors_in(value, machine.m, 3))
