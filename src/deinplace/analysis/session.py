"""An abstract run that is kept, so that a rewrite inside a few functions runs again only what enters them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from deinplace.analysis.index import FunctionInfo, Index, ModuleInfo, read_module
from deinplace.analysis.machine import Machine
from deinplace.analysis.report import Report, Unit
from deinplace.analysis.run import analyse, make
from deinplace.analysis.source import Function, Source
from deinplace.analysis.terms import Terms
from deinplace.analysis.units import run_alone
from deinplace.model import Edit


@dataclass(frozen=True)
class _Patched:
    """A file after edits; no module where its functions do not correspond to those of before."""

    source: Source
    module: ModuleInfo | None
    swapped: Mapping[Function, Function]


class Session:
    """The project as it is: its machine after all programs ran, and what they and its functions did.

    In a `large` project, programs are not compared as they follow one another, each with what all before it left
    behind: that would take time and memory by the square of their number. A program that a rewrite concerns runs on its
    own, in a machine of its own, before and after; `first` says what it does before.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        terms: Terms,
        lenient: bool,
        wanted: Collection[Unit] | None = None,
        every: bool = False,
        index: Index | None = None,
        large: bool = False,
    ) -> None:
        self.index = index or Index(sources)
        self.wanted, self.every, self.large = wanted, every, large
        self.machine: Machine = make(self.index, terms, lenient)
        self.report = analyse(
            sources, wanted=wanted, every=every, index=self.index, machine=self.machine, lenient=lenient, quiet=large
        )
        self._shown: set[Unit] = set()
        self._patched: dict[str, _Patched] = {}
        self._holders: dict[Edit, list[FunctionInfo]] = {}
        self._alone = {
            (path, info.qualname): info for path, m in self.index.modules.items() for info in m.functions.values()
        }

    def entering(self, edits: Iterable[Edit]) -> frozenset[Unit] | None:
        """Units that run edited code; None where only a run of the whole project can tell what becomes of them.

        That is so where a program is among them, in a project that is not large, and where an edit lies at the top
        level of a file: of one that others import, in a large project.
        """
        edited: set[Unit] = set()
        files: set[str] = set()
        for edit in edits:
            around = self._around(edit)
            if not around and (not self.large or edit.path in self.index.imported):
                return None
            edited.update((edit.path, info.qualname) for info in around)
            files.update(() if around else (edit.path,))
        units = {unit for unit, ran in self.report.ran.items() if unit[0] in files or not edited.isdisjoint(ran)}
        return None if not self.large and any(unit not in self._alone for unit in units) else frozenset(units)

    def first(self, edits: Iterable[Edit], units: Iterable[Unit]) -> Report | None:
        """What those of `units` do by themselves before any edit that will be run apart, as far as it is new."""
        new = self._apart(edits, units) - self._shown
        self._shown |= new
        return self._run_apart(new) if new else None

    def _apart(self, edits: Iterable[Edit], units: Iterable[Unit]) -> set[Unit]:
        """Programs, and the functions of files with an edit at their top level."""
        files = {edit.path for edit in edits if not self._around(edit)}
        return {unit for unit in units if unit[0] in files or unit not in self._alone}

    def _run_apart(self, units: Collection[Unit]) -> Report:
        """Programs, and functions of their files, each file in a machine that has run nothing else."""
        out = Report()
        for path in sorted({path for path, _ in units}):
            machine = make(self.index, self.machine.terms, self.machine.lenient)
            machine.patched = self.machine.patched
            part = analyse(
                {}, wanted=self.wanted, every=self.every, index=self.index, machine=machine, files=[path], units=units
            )
            out = merged(out, part)
        return out

    def _edited(self, edits: Iterable[Edit]) -> frozenset[Unit]:
        return frozenset((e.path, info.qualname) for e in edits for info in self._around(e))

    def _around(self, edit: Edit) -> list[FunctionInfo]:
        """Functions whose body holds an edit."""
        known = self._holders.get(edit)
        if known is not None:
            return known
        module = self.index.modules[edit.path]
        found = self._holders[edit] = []
        for info in module.functions.values():
            first, last = info.node.body[0], info.node.body[-1]
            if module.source.bounds(first)[0] <= edit.start and edit.end <= module.source.bounds(last)[1]:
                found.append(info)
        return found

    def rerun(self, patched: Mapping[str, Source], edits: Iterable[Edit], units: frozenset[Unit]) -> Report | None:
        """What `units` do once the files say `patched`; None where their functions do not correspond any more."""
        edits = list(edits)
        changed = {edit.path for edit in edits}
        modules: dict[str, ModuleInfo] = {}
        swapped: dict[Function, Function] = {}
        for path in changed:
            known = self._patched.get(path)
            if known is None or known.source is not patched[path]:
                known = self._patched[path] = _matched(self.index.modules[path], patched[path])
            if known.module is None:
                return None
            swapped.update(known.swapped)
            modules[path] = known.module
        self.machine.edited = self._edited(edits)
        try:
            return self._run(modules, swapped, units, self._apart(edits, units))
        finally:
            self.machine.edited = frozenset()

    def _run(
        self,
        modules: Mapping[str, ModuleInfo],
        swapped: dict[Function, Function],
        units: frozenset[Unit],
        apart: set[Unit],
    ) -> Report:
        kept = {path: self.index.modules[path] for path in modules}
        self.index.modules.update(modules)
        self.machine.patched = swapped
        try:
            out = self._run_apart(apart) if apart else Report()
            for unit in self.report.ran:
                if unit in units and unit not in apart:
                    info = self._alone[unit]
                    run_alone(self.machine, out, self.index.modules[info.path], info)
        finally:
            self.index.modules.update(kept)
            self.machine.patched = {}
        return out


def _matched(old: ModuleInfo, source: Source) -> _Patched:
    """A file after edits, and which of its functions stands for which."""
    new = read_module(source, frozenset())
    pairs = list(zip(old.functions.values(), new.functions.values(), strict=False))
    same = len(old.functions) == len(new.functions) and len(old.classes) == len(new.classes)
    if not same or any(a.qualname != b.qualname or not _alike(a.node, b.node) for a, b in pairs):
        return _Patched(source, None, {})
    module = replace(new, name=old.name, package=old.package, imports=old.imports)
    return _Patched(source, module, {a.node: b.node for a, b in pairs})


def _alike(a: Function, b: Function) -> bool:
    """True where two functions are called and decorated alike."""
    return ast.dump(a.args) == ast.dump(b.args) and list(map(ast.dump, a.decorator_list)) == list(
        map(ast.dump, b.decorator_list)
    )


def merged(current: Report, part: Report) -> Report:
    """The report with what some of its units do now in the place of what they did."""
    mine = part.traces.keys()
    hits = [h for h in current.hits if h.unit not in mine]
    order = {unit: n for n, unit in enumerate({**current.ran, **part.ran})}
    return Report(
        hits=sorted([*hits, *part.hits], key=lambda h: order[h.unit]),
        writes=current.writes | part.writes,
        traces=current.traces | part.traces,
        others=current.others,
        flags=current.flags,
        incomplete={u: why for u, why in current.incomplete.items() if u not in mine} | part.incomplete,
        notes=current.notes | part.notes,
        ran=current.ran | part.ran,
    )
