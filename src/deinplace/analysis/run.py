"""Runs a project's programs and functions abstractly, and says what was written, saved and observed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from deinplace.analysis import calls, expressions, prefilter, statements
from deinplace.analysis.arguments import arguments
from deinplace.analysis.context import DOUBTFUL
from deinplace.analysis.index import FunctionInfo, Index, ModuleInfo
from deinplace.analysis.inline import inline
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import Memory
from deinplace.analysis.names import run_module
from deinplace.analysis.receiver import receiver
from deinplace.analysis.records import ExhaustedError, Frame, Save, UnreachedError, Write
from deinplace.analysis.source import Source, span_of
from deinplace.analysis.terms import Terms
from deinplace.analysis.values import (
    NONE,
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
    union,
)
from deinplace.analysis.writes import UNFOLLOWED
from deinplace.model import Span

PROGRAM_STEPS = 400_000
PROGRAM_STEPS_OF_MANY = 60_000
"""So many steps each program may take in a large project: most are done after a few thousand."""
CONSTRUCTOR_STEPS_OF_MANY = 3_000
"""So many a constructor may take there before methods, each of which is run: few take more and can be proved then."""
FUNCTION_STEPS = 12_000
DEEP = 6
"""So deep is looked into what a function returns or leaves behind."""
Unit = tuple[str, str]
"""(path, qualified name): a function on its own, or `<module>` for a program."""


@dataclass(frozen=True)
class Hit:
    """A write that destroys a save, and whether a backward pass that needs it is known to follow."""

    write: Write
    save: Save
    sure: bool
    unit: Unit


@dataclass
class Report:
    """What abstract runs found out."""

    hits: list[Hit] = field(default_factory=list)
    writes: dict[Unit, list[Write]] = field(default_factory=dict)
    traces: dict[Unit, list[tuple[object, ...]]] = field(default_factory=dict)
    others: dict[tuple[str, Span], str] = field(default_factory=dict)
    """What was seen at places that write something else than a tensor: `list`, or `list or unknown`."""
    flags: dict[tuple[str, Span], str] = field(default_factory=dict)
    """Modules of torch's own that were told to work in place, by the calls that led to their construction."""
    incomplete: dict[Unit, str] = field(default_factory=dict)
    notes: dict[Unit, frozenset[str]] = field(default_factory=dict)
    ran: dict[Unit, frozenset[Unit]] = field(default_factory=dict)
    """The functions that each unit entered."""
    failed: dict[str, str] = field(default_factory=dict)
    """Files whose functions could not be run, and why."""


Refine = Callable[[Report], Report]
"""Adds to a report what others than the analysis know, such as type checkers."""


Task = tuple[ModuleInfo, list[FunctionInfo]]
Spread = Callable[[Callable[[Task], Report], list[Task]], Iterable[Report | str]]


def analyse(
    sources: Mapping[str, Source],
    terms: Terms | None = None,
    lenient: bool = False,
    units: Collection[Unit] | None = None,
    wanted: Collection[Unit] | None = None,
    every: bool = False,
    index: Index | None = None,
    thorough: bool = False,
    traced: bool = True,
    quiet: bool = False,
    spread: Spread | None = None,
    machine: Machine | None = None,
    files: Collection[str] | None = None,
) -> Report:
    """Run every program, then every function that no program reached. `units` keeps to some of them.

    `wanted` names the functions worth a run of their own, those that hold sites; others run only when called. As a
    mapping, it says how many steps each may take. `every` runs them on their own even where a program reaches them:
    somebody else may call them too. `thorough` glances at the functions a second time that hold places which no run has
    reached. Without `traced`, what can be seen in the end is not written down: who compares no two runs has no use for
    it; `quiet` keeps silent about programs only. `spread` runs the functions of each file somewhere else, and gives a
    report for each, or why there is none, in order. `files` keeps to the programs and functions of these.
    """
    index = index or Index(sources)
    machine = machine or make(index, terms or Terms(), lenient)
    machine.limits = wanted if isinstance(wanted, Mapping) else {}
    if index.large:
        machine.most = PROGRAM_STEPS_OF_MANY
        machine.most_built = CONSTRUCTOR_STEPS_OF_MANY if every else machine.most_built
    machine.traced, machine.settling = traced and not quiet, True
    report = Report()
    machine.hasty = index.large and wanted is not None and not traced
    programs = _programs(machine, wanted) if files is None else [index.modules[path] for path in files]
    for module in programs:
        unit = (module.path, "<module>")
        if module.path in machine.globals:
            continue
        _guarded(machine, report, unit, lambda m=module: _program(machine, m), machine.most)
        if machine.mem is not None:
            machine.mem.settle(machine.new_id())
        if quiet:
            del report.traces[unit]
    machine.traced, machine.settling = traced, False
    if not lenient and machine.mem is not None:
        _reopen(machine)
        machine.mem.settle(machine.new_id())  # or each function would be told to have done it
    alone = _to_run(machine, programs, units, wanted, every)
    if spread is None:
        for module, infos in alone:
            machine.forget_receivers()
            for info in infos:
                _alone(machine, report, module, info)
    else:
        for (module, _), part in zip(alone, spread(lambda task: _apart(machine, *task), alone), strict=True):
            _add(machine, report, module.path, part)
    if thorough:
        _glance(machine, report, index, wanted)
    report.others, report.flags = machine.visited, machine.flags
    return report


def _to_run(
    machine: Machine,
    modules: Iterable[ModuleInfo],
    units: Collection[Unit] | None,
    wanted: Collection[Unit] | None,
    every: bool,
) -> list[Task]:
    """Functions that get a run of their own, by file."""
    reached = set(machine.reached)
    out: list[Task] = []
    for module in modules:
        infos = []
        for node, info in module.functions.items():
            unit = (module.path, info.qualname)
            if "<locals>" in info.qualname or (node in reached and not every):
                continue
            if (units is None or unit in units) and (wanted is None or unit in wanted):
                infos.append(info)
        if infos:
            out.append((module, infos))
    return out


def _apart(machine: Machine, module: ModuleInfo, infos: list[FunctionInfo]) -> Report:
    """The functions of one file, in a process of its own: a report that can be sent."""
    part = Report()
    machine.visited, machine.flags = {}, {}
    machine.forget_receivers()
    for info in infos:
        _alone(machine, part, module, info)
    part.others, part.flags = machine.visited, machine.flags
    part.traces.clear()
    part.ran.clear()
    return part


def _add(machine: Machine, report: Report, path: str, part: Report | str) -> None:
    """Take in what another process found out, as if it had been found here."""
    if isinstance(part, str):
        report.failed[path] = part
        return
    report.hits += part.hits
    report.writes |= part.writes
    report.incomplete |= part.incomplete
    report.notes |= part.notes
    for key, words in part.others.items():
        if key not in machine.visited or "unknown" not in words:
            machine.visited[key] = words
    machine.flags |= part.flags


def _glance(machine: Machine, report: Report, index: Index, wanted: Collection[Unit] | None) -> None:
    """Run functions again, less far, for the sake of places that nothing is known of yet."""
    seen = set(machine.visited)
    for writes in report.writes.values():
        seen |= {(place.path, place.span) for w in writes for place in (w.place, *w.flagged)}
    machine.glance = True
    for module in index.modules.values():
        for node, info in module.functions.items():
            unit = (module.path, info.qualname)
            if "<locals>" in info.qualname or (wanted is not None and unit not in wanted):
                continue
            if all((module.path, span_of(n)) in seen for n in ast.walk(node) if prefilter.writes(n)):
                continue
            glanced = Report()
            _alone(machine, glanced, module, info)
            report.writes.setdefault(unit, []).extend(w for w in glanced.writes[unit] if not (w.hits or w.maybe))
    machine.glance = False


def make(index: Index, terms: Terms, lenient: bool) -> Machine:
    """A machine with its evaluators in place."""
    machine = Machine(index, terms, PROGRAM_STEPS, lenient)
    machine.evaluate = lambda node: expressions.evaluate(machine, node)
    machine.execute = lambda body: statements.execute(machine, body)
    machine.call = lambda func, args, keywords, node: calls.call(machine, func, args, keywords, node)
    return machine


def _programs(machine: Machine, wanted: Collection[Unit] | None) -> list[ModuleInfo]:
    """All modules, those first that no other module of the project imports.

    In a hurry those that hold units which are `wanted`, and those that nothing imports and that do something: the
    others run when one of these imports them. That may miss what they leave in these, such as what they register there.
    """
    imported = machine.index.imported
    modules = list(machine.index.modules.values())
    if machine.hasty and wanted is not None:
        held = {path for path, _ in wanted}
        modules = [m for m in modules if m.path in held or (m.path not in imported and m.acts)]
    return sorted(modules, key=lambda m: m.path in imported)


def _reopen(machine: Machine) -> None:
    """What lasts is held by others, and code of the project may have put more into it when a function is called."""
    for fid in machine.globals.values():
        content = machine.m.peek(fid)
        if isinstance(content, Fields):
            _lasts(machine, content.fields.items(), "is held by a module")
    for attributes in machine.class_fields.values():
        _lasts(machine, attributes.items(), "is held by a class")


def _lasts(machine: Machine, named: Iterable[tuple[object, Value]], why: str) -> None:
    for name, value in named:
        machine.escape(value, why)
        if name in machine.index.filled and isinstance(value, Obj):
            _may_hold_more(machine, value)


def _may_hold_more(machine: Machine, value: Obj) -> None:
    content = machine.m.peek(value.oid)
    if isinstance(content, Items):
        machine.m.cells[value.oid] = Items(tuple(union((item, Other("unknown"))) for item in content.items), True)
    elif isinstance(content, Fields) and value.what == "dict":
        fields = {key: union((item, Other("unknown"))) for key, item in content.fields.items()}
        machine.m.cells[value.oid] = Fields(fields, True, content.tag)


def _guarded(machine: Machine, report: Report, unit: Unit, run: object, steps: int) -> None:
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
    for why in (UNFOLLOWED, DOUBTFUL):
        if why in machine.notes:
            report.incomplete.setdefault(unit, why)
    _settle(machine)
    report.traces[unit] = machine.trace
    report.writes[unit] = machine.writes
    report.notes[unit] = frozenset(machine.notes)
    report.ran[unit] = frozenset(machine.ran)
    report.hits += _hits(machine, unit)


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


def _program(machine: Machine, module: ModuleInfo) -> None:
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


def _alone(machine: Machine, report: Report, module: ModuleInfo, info: FunctionInfo) -> None:
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

    _guarded(machine, report, unit, run, machine.limits.get(unit, FUNCTION_STEPS))
    machine.mem, machine.me = start, None
    machine.restore(kept)


def _handed(machine: Machine, value: Value) -> list[Ten]:
    from deinplace.analysis.memory import tensors_in

    return list(tensors_in(value, machine.m, 3))


def _hits(machine: Machine, unit: Unit) -> list[Hit]:
    """Pairs of write and save; sure where a backward pass after the write reaches the operation that saved."""
    out: list[Hit] = []
    closures: list[tuple[int, frozenset[int]]] = []
    for nodes, time in machine.sinks:
        closures.append((time, _ancestors(machine, nodes)))
    for write in machine.writes:
        for numbers, certain in ((write.hits, True), (write.maybe, False)):
            for number in numbers:
                save = machine.saves[number]
                if any(time > write.time and save.node in reach for time, reach in closures):
                    out.append(Hit(write, save, certain, unit))
    return out


def _ancestors(machine: Machine, nodes: frozenset[int]) -> frozenset[int]:
    seen = set(nodes)
    todo = list(nodes)
    while todo:
        for parent in machine.parents[todo.pop()]:
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return frozenset(seen)


__all__ = ["NONE", "Hit", "Memory", "Report", "analyse"]
