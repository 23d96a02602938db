"""`fix --all` without a driver: writes that no fault comes from, freed where two abstract runs prove it harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from deinplace.analysis import safety
from deinplace.analysis.index import Index
from deinplace.analysis.prefilter import may_hold_site, places
from deinplace.analysis.records import Write
from deinplace.analysis.report import Refine, Report, Unit
from deinplace.analysis.run import analyse
from deinplace.analysis.safety import Safety
from deinplace.analysis.session import Session, merged
from deinplace.analysis.source import Source
from deinplace.analysis.terms import Terms
from deinplace.model import Edit, Rewrite, Site, Span
from deinplace.rewrite.apply import CheckError, OverlapError, patched
from deinplace.rules import sites, static_candidates
from deinplace.rules.base import Project
from deinplace.verify.abstract import Trials, overwritten

STEPS = 8_000
"""So many steps a function may take in a large project, where there are many to be freed: few take as many."""
PASSES = 4
"""So often, at most, changed files are looked at again."""
_SAME_OPERATION = ("DIP102", "DIP103")
"""Rules whose rewrite is the same operation, out of place."""
Planned = tuple[Site, Rewrite, Safety]
Written = dict[tuple[str, Span], list[tuple[Unit, Write]]]


def sites_to_free(
    sources: Mapping[str, Source], taken: Sequence[Rewrite], refine: Refine | None = None
) -> list[Planned]:
    """Sites that write tensors, each with a rewrite proved to change nothing that a caller or program sees."""
    return surveyed(sources, taken, refine)[0]


def settled(
    now: Mapping[str, Source], before: Mapping[str, Source], allowed: Collection[str] | None, refine: Refine | None
) -> Mapping[str, Source]:
    """The files once nothing more may be freed in those that changed: a tensor that is new may free the next site."""
    for _ in range(PASSES):
        changed = {path for path, source in now.items() if source is not before[path]}
        found, _reasons = surveyed(now, [], refine, changed)
        more = [rewrite for _, rewrite, _ in found if allowed is None or rewrite.rule in allowed]
        if not more:
            break
        now = patched(now, more)
    return now


def surveyed(
    sources: Mapping[str, Source],
    taken: Sequence[Rewrite],
    refine: Refine | None = None,
    only: Collection[str] | None = None,
) -> tuple[list[Planned], Counter[str]]:
    """Sites that may be freed, and why the others stay as they are: how many for each reason.

    `only` names the files whose sites are looked at; None stands for all.
    """
    project = Project(sources)
    looked = (s for path, s in sources.items() if (only is None or path in only) and _may_be_freed(s))
    found = [site for source in looked for site in sites(source)]
    wanted = {unit for site in found for unit in _units(site)}
    bench = _Bench(sources, wanted, list(taken), refine)
    touched = {(e.path, e.start) for r in taken for e in r.edits}
    todo: list[tuple[Site, Rewrite, frozenset[Unit]]] = []
    reasons: Counter[str] = Counter()
    for site in found:
        units = bench.units(site)
        if isinstance(units, str):
            reasons[units] += 1
            continue
        rewrite = next((r for _, r in static_candidates(site, project) if _frees(r)), None)
        if rewrite is None:
            reasons["no rewrite"] += 1
        elif bench.session.large and bench.session.entering(rewrite.edits) is None:
            reasons["at the top level of a file that others import"] += 1
        elif not any((e.path, e.start) in touched for e in rewrite.edits):
            todo.append((site, rewrite, units))
    proved = [(site, rewrite, safety.PROVED) for site, rewrite, _ in bench.prove(todo)]
    reasons["not proved equal"] += len(todo) - len(proved)
    return proved, reasons


def _may_be_freed(source: Source) -> bool:
    """False for a file without anything that looks like a write to a tensor; a step of an optimizer is never freed."""
    return may_hold_site(source.data) and next(places(source.text), None) is not None


def _units(site: Site) -> list[Unit]:
    """The function that holds a site, and those around it: nested functions run when their outer one does."""
    return [(site.path, site.function), (site.path, site.function.partition(".<locals>")[0])]


def _frees(rewrite: Rewrite) -> bool:
    """False for rewrites that only put a clone in the way of a write: they cost memory and mend nothing here."""
    return ".clone()" not in "".join(e.new for e in rewrite.edits)


class _Bench(Trials):
    """Trials of groups of rewrites."""

    def __init__(
        self, sources: Mapping[str, Source], wanted: set[Unit], taken: list[Rewrite], refine: Refine | None = None
    ) -> None:
        self.sources, self.wanted, self.taken, self.refine = sources, wanted, taken, refine
        self.terms = Terms()
        edits = [e for r in taken for e in r.edits]
        index = Index(sources)
        limits = dict.fromkeys(wanted, STEPS) if index.large else wanted
        self.session = Session(sources, self.terms, False, limits, every=True, index=index, large=index.large)
        self.whole = self.session.entering(edits) is None
        """Whether only a run of the whole project can tell what a rewrite does."""
        if self.whole and self.session.large:
            self.session = Session(sources, self.terms, False, wanted, every=True, index=index)
        self.before = self.refined(self.session.report)
        self.written: Written = {}
        self.files: dict[tuple[Edit, ...], Source] = {}
        """Files by the edits that made them."""
        self.current = self.before
        if taken:
            out = patched(sources, taken, self.files)
            self.current = (self._after(taken, out) or (self.run(out), set()))[0]
        self.faulty = {hit.unit for hit in self.current.hits if hit.sure}
        for unit, writes in self.before.writes.items():
            for write in writes:
                for place in (write.place, *write.flagged):
                    self.written.setdefault((place.path, place.span), []).append((unit, write))

    def run(self, sources: Mapping[str, Source]) -> Report:
        return self.refined(analyse(sources, self.terms, lenient=False, wanted=self.wanted, every=True))

    def units(self, site: Site) -> frozenset[Unit] | str:
        """Units that make a site's write, where all of them write a tensor that may be freed; elsewhere, why not."""
        made = self.written.get((site.path, site.span))
        if not made:
            return "not known to write a tensor"
        if "(" in site.target:
            return "writes a temporary value"
        if self.session.large and site.rule in _SAME_OPERATION and all(write.cast for _, write in made):
            return "a new tensor may have another dtype or shape"  # two runs would only show what is known here
        for unit, write in made:
            if write.kind != "tensor":
                return "not known to be a tensor"
            refusal = safety.refuses(write)
            if refusal is not None:
                return refusal.reason_code
            if write.form in ("step", "setattr"):
                return "a step or an assignment to an attribute"
            if write.view:
                # A new tensor need not have the strides that a part of a larger one has.
                return "writes a view"
            if unit in self.before.incomplete or self.before.notes.get(unit):
                return "the analysis of its function is incomplete"
            if unit in self.faulty:
                return "its function holds a fault"
        units = {unit for unit, _ in made}
        if (site.path, site.function) not in units:
            # A function that no run of its own covers may be called in ways that were not seen.
            return "no run of its own covers its function"
        return frozenset(units)

    def prove(self, todo: list[tuple[Site, Rewrite, frozenset[Unit]]]) -> list[tuple[Site, Rewrite, frozenset[Unit]]]:
        """As many as hold together: all at once, else those of each file, else each half.

        In a large project something always fails, and all at once is not tried.
        """
        if not todo:
            return []
        paths = list(dict.fromkeys(site.path for site, _, _ in todo))
        after = self._holds(todo) if len(paths) == 1 or not self.session.large else None
        if after is not None:
            self.current = after
            self.taken += [rewrite for _, rewrite, _ in todo]
            return todo
        if len(paths) > 1:
            return [one for path in paths for one in self.prove([t for t in todo if t[0].path == path])]
        if len(todo) == 1:
            return []
        half = len(todo) // 2
        return [*self.prove(todo[:half]), *self.prove(todo[half:])]

    def _holds(self, todo: list[tuple[Site, Rewrite, frozenset[Unit]]]) -> Report | None:
        """What the program does with these rewrites, where nobody sees a difference but that there are fewer writes."""
        rewrites = [r for _, r, _ in todo]
        try:
            out = patched(self.sources, [*self.taken, *rewrites], self.files)
        except (OverlapError, CheckError):
            return None
        made = self._after(rewrites, out)
        if made is None:
            return None
        after, units = made
        if not self._fewer(todo, after, units) or overwritten(after, sure=False) - overwritten(
            self.current, sure=False
        ):
            return None
        return after if safety.compare(self.before, after, units).ok else None

    def _after(self, rewrites: Sequence[Rewrite], out: Mapping[str, Source]) -> tuple[Report, set[Unit]] | None:
        """What the program does with more rewrites, once its files say `out`, and the units that ran again.

        None where a run of the whole project would have to tell, and it is too large for that.
        """
        part = None if self.whole else self.part(rewrites, out)
        if part is not None:
            return merged(self.current, part), set(part.traces)
        return None if self.session.large else (self.run(out), set(self.before.traces))

    def _fewer(self, todo: list[tuple[Site, Rewrite, frozenset[Unit]]], after: Report, units: set[Unit]) -> bool:
        """Whether each site's own write is made less often: a rewrite that frees nothing may not ride with others."""
        old, new = (
            Counter(safety.write_key(w) for u in units for w in report.writes.get(u, ()))
            for report in (self.current, after)
        )
        # `x[i] = x[i] + y` writes as `x[i] += y` does: the number has to sink, too
        return old.total() - new.total() >= len(todo) and all(
            any(new[k] < old[k] for k in {safety.write_key(w) for _, w in self.written[site.path, site.span]})
            for site, _, _ in todo
        )
