"""Runs a project's programs and functions abstractly, and says what was written, saved and observed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Mapping

from deinplace.analysis import calls, expressions, prefilter, statements
from deinplace.analysis.index import FunctionInfo, Index, ModuleInfo
from deinplace.analysis.machine import Machine
from deinplace.analysis.report import Report, Unit, merge_part
from deinplace.analysis.source import Source, span_of
from deinplace.analysis.terms import Terms
from deinplace.analysis.units import guarded, run_alone, run_program
from deinplace.analysis.values import (
    Fields,
    Items,
    Obj,
    Other,
    Value,
    union,
)

PROGRAM_STEPS = 400_000
PROGRAM_STEPS_OF_MANY = 60_000
"""So many steps each program may take in a large project: most are done after a few thousand."""
CONSTRUCTOR_STEPS_OF_MANY = 3_000
"""So many a constructor may take there before methods, each of which is run: few take more and can be proved then."""


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
        guarded(machine, report, unit, lambda m=module: run_program(machine, m), machine.most)
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
                run_alone(machine, report, module, info)
    else:
        for (module, _), part in zip(alone, spread(lambda task: _apart(machine, *task), alone), strict=True):
            merge_part(machine, report, module.path, part)
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
        run_alone(machine, part, module, info)
    part.others, part.flags = machine.visited, machine.flags
    part.traces.clear()
    part.ran.clear()
    return part


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
            run_alone(machine, glanced, module, info)
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
