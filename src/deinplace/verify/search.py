"""Chooses one rewrite for each write: the cheapest that changes nothing but what other names see."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deinplace.analysis.source import Source
from deinplace.model import Memory, Place, Rewrite, Status, Trial, Verdict
from deinplace.rules import rule
from deinplace.rules.base import Incident
from deinplace.verify import incidents
from deinplace.verify.cost import Usage, memory
from deinplace.verify.groups import Group
from deinplace.verify.records import changes_argument_aside, recordings
from deinplace.verify.trial import Bench, Result

Progress = Callable[[str], None]
_ARGUMENT = re.compile(r"argument \w+(\[.*\])?")
"""Labels of what an argument itself holds after a call, as opposed to its attributes."""


@dataclass(frozen=True)
class Choice:
    """What was chosen for a group: a rewrite, or none and the reason."""

    group: Group
    rewrite: Rewrite | None
    trials: tuple[Trial, ...] = ()
    reason: str = ""
    unproved: bool = False
    """True where the rewrite changes what is computed, and was asked for with `--unsafe`."""
    memory: Memory | None = None


class Search:
    """Looks for a set of rewrites under which the program runs by itself and sees what the oracle saw."""

    def __init__(self, bench: Bench, unsafe: bool, progress: Progress) -> None:
        self.bench, self.unsafe, self.progress = bench, unsafe, progress
        self.met: Counter[object] = Counter()
        """How many incidents of each sort there were before any rewrite."""

    def choose(self, groups: Sequence[Group]) -> tuple[list[Choice], Result | None]:
        """All cheapest rewrites at once; where that fails, each group by itself, then all that held together."""
        options = {id(g): g.usable(self.unsafe) for g in groups}
        self.met = Counter(_sort(i) for g in groups for i in g.incidents)
        first = [options[id(g)][0] for g in groups if options[id(g)]]
        if first and len(first) == len(groups):
            self.progress(f"trying {len(first)} rewrite{'s' * (len(first) > 1)}")
            result = self.bench.run(first, watch=False)
            if result.equal:
                return self._thrifty(groups, options, first, result)
        choices = [self._alone(g, options[id(g)]) for g in groups]
        return self._together(choices)

    def _thrifty(
        self, groups: Sequence[Group], options: Mapping[int, Sequence[Rewrite]], chosen: list[Rewrite], result: Result
    ) -> tuple[list[Choice], Result]:
        """All of `chosen` hold together: where they cost much memory, cheaper ones in their stead that hold as well."""
        for index, group in enumerate(groups):

            def run(other: Rewrite, index: int = index) -> Usage | None:
                tried = self.bench.run([*chosen[:index], other, *chosen[index + 1 :]], watch=False)
                return tried.usage if tried.equal else None

            chosen[index] = self.bench.thrift.cheaper(chosen[index], result.usage, options[id(group)][1:], run)
            result = self.bench.run(chosen, watch=False)
        cost = memory(self.bench.thrift.before, result.usage, len(chosen))
        return [self._held(g, r, (), cost) for g, r in zip(groups, chosen, strict=True)], result

    def _held(self, group: Group, rewrite: Rewrite, before: tuple[Trial, ...], cost: Memory | None) -> Choice:
        trial = Trial(rewrite, Verdict("confirmed", "the run saw what the oracle saw"))
        return Choice(group, rewrite, (*before, trial), memory=cost)

    def _alone(self, group: Group, options: Sequence[Rewrite]) -> Choice:
        """Try a group's alternatives under copy-on-write, where other groups' conflicts do no harm."""
        trials: list[Trial] = []
        meant = False
        for index, rewrite in enumerate(options):
            if meant and rule(rewrite.rule).fallback:
                break  # would prove the literal program right, which may not be the one that is meant
            self.progress(f"trying {rewrite.title} ({index + 1} of {len(options)})")
            result = self.bench.run((rewrite,), watch=True)
            if self._holds(group, rewrite, result):
                best = self._cheapest(group, rewrite, options[index + 1 :], result)
                cost = memory(self.bench.thrift.before, self.bench.run((best,), watch=True).usage)
                return self._held(group, best, tuple(trials), cost)
            reason = result.reason or "the conflict is still there"
            status: Status = "unconfirmed" if reason.startswith("not tried") else "refuted"
            trials.append(Trial(rewrite, Verdict(status, reason)))
            meant = meant or self.contract(group, result)
        if meant:
            return Choice(group, options[0] if self.unsafe else None, tuple(trials), "meaning-differs", self.unsafe)
        if self.unsafe:
            for rewrite in (r for r in options if r.applicability == "unsafe"):
                result = self.bench.run((rewrite,), watch=True)
                if result.ended and not self.still_there(group, result):
                    return Choice(group, rewrite, tuple(trials), "meaning-differs", True)
        bare = "not-fixable" if group.barred else "no-rewrite"
        untried = group.kept_back(self.unsafe) or (group.alternatives and not trials)
        reason = "unsafe" if untried else "refuted" if trials else bare
        return Choice(group, None, tuple(trials), reason)

    def _holds(self, group: Group, rewrite: Rewrite, result: Result) -> bool:
        """Whether a rewrite alone, under copy-on-write, mends its group."""
        return result.equal and not self.still_there(group, result) and not self.refused_again(group, rewrite)

    def _cheapest(self, group: Group, rewrite: Rewrite, others: Sequence[Rewrite], result: Result) -> Rewrite:
        """`rewrite`, which holds, or one of `others` that holds and costs much less."""

        def run(other: Rewrite) -> Usage | None:
            tried = self.bench.run((other,), watch=True)
            return tried.usage if self._holds(group, other, tried) else None

        return self.bench.thrift.cheaper(rewrite, result.usage, others, run)

    def still_there(self, group: Group, result: Result) -> bool:
        """Whether one of a group's incidents is among those that a run left."""
        before = {shape(i, self.bench.current) for i in group.incidents if i.raised is None}
        if before & {shape(i, {**self.bench.current, **result.files}) for i in result.left}:
            return True
        left = Counter(_sort(i) for i in result.left)
        return any(left[key] >= self.met[key] for key in {_sort(i) for i in group.incidents})

    def refused_again(self, group: Group, rewrite: Rewrite) -> bool:
        """Whether autograd, asked without emulation, still refuses a write of the group: some are emulated unseen."""
        if all(i.raised is None for i in group.incidents):
            return False
        plain = self.bench.run((rewrite,), watch=False)
        failed = [i for i in plain.left if i.raised is not None and i.raised.stack]
        for incident in failed:
            place = incidents.written_at(incident)[0]
            file = plain.files.get(place.path) or self.bench.current.get(place.path)
            text = file.line(place.span.line).strip() if file is not None else ""
            edited = any(edit.new.strip() and edit.new.strip() in text for edit in rewrite.edits)
            if text and (edited or text in self._lines(group)):
                return True
        return False

    def _lines(self, group: Group) -> set[str]:
        """What the lines say at which a group's writes were refused."""
        found = set()
        for incident in group.incidents:
            for place in incidents.written_at(incident):
                if place.path in self.bench.current:
                    found.add(self.bench.current[place.path].line(place.span.line).strip())
        return found

    def contract(self, group: Group, result: Result) -> bool:
        """Whether a rewrite fails because callers no longer see their argument change.

        A function that returns something else and changes an argument on the way may mean it or not: the literal
        program and the one that was meant differ, and that is not ours to choose. One that returns nothing, or the
        argument itself, means it.
        """
        if result.equal or result.comparison is None or self.bench.oracle is None:
            return False
        functions = {f"{p.path}:{p.function}" for i in group.incidents for p in incidents.written_at(i)}
        changed = {d.name for d in result.comparison.soft if _ARGUMENT.fullmatch(d.label) and d.name in functions}
        records = [record for process in recordings(self.bench.oracle) for record in process]
        return any(changes_argument_aside(records, name) for name in changed)

    def _together(self, choices: list[Choice]) -> tuple[list[Choice], Result | None]:
        """Join what held alone; a rewrite that harms the others is taken out again."""
        rewrites = [c.rewrite for c in choices if c.rewrite is not None]
        if not rewrites:
            return choices, None
        result = self.bench.run(rewrites, watch=False)
        if result.equal:
            return choices, result
        watched = self.bench.run(rewrites, watch=True)
        if watched.equal or any(c.unproved for c in choices):
            return choices, result
        kept: list[Choice] = []
        for choice in choices:
            if choice.rewrite is None:
                kept.append(choice)
                continue
            trial = self.bench.run([*(c.rewrite for c in kept if c.rewrite), choice.rewrite], watch=True)
            if trial.equal:
                kept.append(choice)
            else:
                refuted = Trial(choice.rewrite, Verdict("refuted", f"together with the others: {trial.reason}"))
                kept.append(Choice(choice.group, None, (*choice.trials, refuted), "refuted"))
        rest = [c.rewrite for c in kept if c.rewrite is not None]
        return kept, self.bench.run(rest, watch=False) if rest else None


def _sort(incident: Incident) -> object:
    """What stays the same of an incident whatever its lines say: operators, functions, and the layer."""

    def spot(place: Place | None) -> object:
        return (place.path, place.function) if place is not None else None

    if incident.raised is not None:
        module = incident.raised.module
        place = next(iter(incident.raised.stack), None)
        return incident.raised.category, spot(place), module.name if module is not None else None
    conflict = incident.conflict
    assert conflict is not None
    module = conflict.write.module
    ends = spot(conflict.save.place), spot(conflict.write.place)
    return conflict.node, ends, conflict.write.op, module.name if module is not None else None


def shape(incident: Incident, sources: Mapping[str, Source]) -> object:
    """What stays the same of an incident when lines move: operators, functions, and what the two lines say."""

    def spot(place: Place | None) -> object:
        if place is None:
            return None
        source = sources.get(place.path)
        text = source.line(place.span.line).strip() if source is not None else str(place.span.line)
        return place.path, place.function, text

    if incident.raised is not None:
        return "raised", incident.raised.category, spot(next(iter(incident.raised.stack), None))
    conflict = incident.conflict
    assert conflict is not None
    module = conflict.write.module
    return (
        conflict.node,
        spot(conflict.save.place),
        conflict.write.op,
        spot(conflict.write.place),
        module.name if module is not None else None,
    )
