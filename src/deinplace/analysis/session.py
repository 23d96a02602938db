"""An abstract run that is kept, so that a rewrite inside a few functions runs again only what enters them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from deinplace.analysis.index import FunctionInfo, Index, ModuleInfo, read_module
from deinplace.analysis.machine import Machine
from deinplace.analysis.run import Report, Unit, _alone, analyse, make
from deinplace.analysis.source import Function, Source
from deinplace.analysis.terms import Terms
from deinplace.model import Edit


class Session:
    """The project as it is: its machine after all programs ran, and what they and its functions did."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        terms: Terms,
        lenient: bool,
        wanted: Collection[Unit] | None = None,
        every: bool = False,
        index: Index | None = None,
    ) -> None:
        self.index = index or Index(sources)
        self.machine: Machine = make(self.index, terms, lenient)
        self.report = analyse(
            sources, wanted=wanted, every=every, index=self.index, machine=self.machine, lenient=lenient
        )
        self._alone = {
            (path, info.qualname): info for path, m in self.index.modules.items() for info in m.functions.values()
        }

    def entering(self, edits: Iterable[Edit]) -> frozenset[Unit] | None:
        """Units that enter an edited function; None where a program does, or an edit lies outside of all functions."""
        edited: set[Unit] = set()
        for edit in edits:
            around = self._around(edit)
            if not around:
                return None
            edited.update((edit.path, info.qualname) for info in around)
        units = frozenset(unit for unit, ran in self.report.ran.items() if not edited.isdisjoint(ran))
        return None if any(unit not in self._alone for unit in units) else units

    def _edited(self, edits: Iterable[Edit]) -> frozenset[Unit]:
        return frozenset((e.path, info.qualname) for e in edits for info in self._around(e))

    def _around(self, edit: Edit) -> list[FunctionInfo]:
        """Functions whose body holds an edit."""
        module = self.index.modules[edit.path]
        found = []
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
            old = self.index.modules[path]
            new = read_module(patched[path], frozenset())
            pairs = list(zip(old.functions.values(), new.functions.values(), strict=False))
            same = len(old.functions) == len(new.functions) and len(old.classes) == len(new.classes)
            if not same or any(a.qualname != b.qualname or not _alike(a.node, b.node) for a, b in pairs):
                return None
            swapped.update((a.node, b.node) for a, b in pairs)
            modules[path] = replace(new, name=old.name, package=old.package, imports=old.imports)
        self.machine.edited = self._edited(edits)
        try:
            return self._run(modules, swapped, units)
        finally:
            self.machine.edited = frozenset()

    def _run(
        self, modules: Mapping[str, ModuleInfo], swapped: dict[Function, Function], units: frozenset[Unit]
    ) -> Report:
        kept = {path: self.index.modules[path] for path in modules}
        out = Report()
        self.index.modules.update(modules)
        self.machine.patched = swapped
        try:
            for unit in self.report.ran:
                if unit in units:
                    info = self._alone[unit]
                    _alone(self.machine, out, self.index.modules[info.path], info)
        finally:
            self.index.modules.update(kept)
            self.machine.patched = {}
        return out


def _alike(a: Function, b: Function) -> bool:
    """True where two functions are called and decorated alike."""
    return ast.dump(a.args) == ast.dump(b.args) and list(map(ast.dump, a.decorator_list)) == list(
        map(ast.dump, b.decorator_list)
    )


def merged(current: Report, part: Report) -> Report:
    """The report with what some of its units do now in the place of what they did."""
    mine = part.traces.keys()
    hits = [h for h in current.hits if h.unit not in mine]
    order = {unit: n for n, unit in enumerate(current.traces)}
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
