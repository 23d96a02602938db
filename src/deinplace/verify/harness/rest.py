"""What the analysis finds by itself: faults that no harness has shown, and rewrites for harnesses to judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from deinplace.analysis.source import Source
from deinplace.model import Finding, Memory, Place, Rewrite, Site, Trial, Verdict
from deinplace.rules.base import Project
from deinplace.verify import static, wording
from deinplace.verify.groups import Group
from deinplace.verify.harness.clock import TooLongError, within
from deinplace.verify.harness.model import Target
from deinplace.verify.lines import back
from deinplace.verify.mend import Options
from deinplace.verify.search import Choice

if TYPE_CHECKING:
    from deinplace.verify.harness.witness import Witness

T = TypeVar("T")
_DECIDED = ("meaning-differs", "changes-meaning")
"""What a run says of a fault that the analysis may not overrule."""


@dataclass(frozen=True)
class Offer:
    """A rewrite that the analysis proves, and what harnesses make of it."""

    site: Site
    rewrite: Rewrite
    fault: static.Choice | None
    """The fault that it mends; None where there is none, and `--all` asks for it."""
    held: bool = True
    reason: str = ""
    verdict: Verdict | None = None
    trial: Trial | None = None
    memory: Memory | None = None
    """What it costs, together with those that were run with it."""

    @property
    def confirmed(self) -> bool:
        """True where a run with its lines saw the same."""
        return self.verdict is not None and self.verdict.status == "confirmed"


class Rest:
    """The analysis of the files as they are on disk, and later of what harnesses left."""

    def __init__(self, sources: Mapping[str, Source], options: Options, seconds: float = math.inf) -> None:
        self.sources, self.options = sources, options
        self.seconds = seconds
        """What one look at all the files may take; what it does not come to is not proposed."""
        self.cut = False
        self.made = self._choices(sources)
        self.open: list[static.Choice] = []
        self.more = self._everywhere(sources, self.made)

    def _choices(self, sources: Mapping[str, Source]) -> list[static.Choice]:
        unsafe, allowed, refine = self.options.unsafe, self.options.allows(), self.options.refine
        return self._timed(lambda: static.choices(sources, unsafe, allowed, refine))

    def _everywhere(self, sources: Mapping[str, Source], made: Iterable[static.Choice]) -> list[tuple[Site, Rewrite]]:
        if not self.options.all_sites:
            return []
        allowed, refine = self.options.allows(), self.options.refine
        taken = [c.rewrite for c in made if c.rewrite is not None]
        planned = self._timed(lambda: static.everywhere(sources, taken, refine))
        return [(site, r) for site, r, _ in planned if allowed is None or r.rule in allowed]

    def _timed(self, work: Callable[[], list[T]]) -> list[T]:
        """What the analysis finds in its time. Once it was cut, it is not asked again."""
        if self.cut:
            return []
        if self.seconds == math.inf:
            return work()
        try:
            with within(self.seconds):
                return work()
        except TooLongError:
            self.cut = True
            return []

    def places(self) -> frozenset[tuple[str, int]]:
        """Files and lines of the writes that are faults."""
        return frozenset((p.path, p.span.line) for p in map(_place, self.made) if p is not None)

    def unreached(self, witnesses: Iterable[Witness]) -> tuple[Target, ...]:
        """Functions with faults, or with rewrites to make, whose writes no harness has run."""
        ran = {line for w in witnesses for line in w.ran}
        places = [place for place in map(_place, self.made) if place is not None]
        found = [(p.path, p.function) for p in places if (p.path, p.span.line) not in ran]
        for site, _ in self.more:
            lines = range(site.statement.line, site.statement.end_line + 1)
            if not any((site.path, line) in ran for line in lines):
                found.append((site.path, site.function))
        return tuple(dict.fromkeys(found))

    def left(
        self, current: Mapping[str, Source], findings: Sequence[Finding], ran: Container[tuple[str, int]]
    ) -> list[Offer]:
        """Rewrites for the files as harnesses left them; what runs have decided stays decided.

        `ran` holds the lines that ran: a fault that was only possible, and did not show there, is none.
        """
        same = all(source.text == self.sources[path].text for path, source in current.items())
        made = self.made if same else self._choices(current)
        move = back(self.sources, current)
        told: dict[tuple[str, int], Finding] = {}
        for finding in findings:
            for written in _written(finding):
                told.setdefault((written.path, written.span.line), finding)
        offers: list[Offer] = []
        for choice in made:
            place = _place(choice)
            known = told.get((place.path, move(place.path, place.span.line))) if place is not None else None
            if choice.possible and place is not None and (place.path, move(place.path, place.span.line)) in ran:
                continue
            if known is not None and (known.reason in _DECIDED or choice.rewrite is None):
                continue
            self.open.append(choice)
            if choice.rewrite is not None and choice.site is not None:
                offers.append(Offer(choice.site, choice.rewrite, choice))
        more = self.more if same else self._everywhere(current, made)
        return offers + [Offer(site, rewrite, None) for site, rewrite in more]

    def findings(self, offers: Sequence[Offer], kept: Sequence[Offer], noted: bool) -> list[Finding]:
        """A finding for each fault that is left to report, and, if `noted`, for each rewrite that `--all` asked for."""
        by_fault = {id(o.fault): o for o in offers if o.fault is not None}
        out = [_finding(choice, by_fault.get(id(choice)), kept) for choice in self.open]
        project = Project(self.sources)
        for offer in offers:
            if offer.fault is None and noted:
                out += _noted(offer, offer in kept, project)
        return out


def _noted(offer: Offer, kept: bool, project: Project) -> Iterable[Finding]:
    unjudged = Trial(offer.rewrite, Verdict("unconfirmed", "proved from the source, not run", oracle="abstract run"))
    trial = offer.trial or unjudged
    choice = Choice(Group((), offer.site, (offer.rewrite,)), offer.rewrite if kept else None, (trial,), offer.reason)
    choice = replace(choice, memory=offer.memory)
    return wording.findings(choice, project, offer.verdict if offer.confirmed else None, kept, None)


def _finding(choice: static.Choice, offer: Offer | None, kept: Sequence[Offer]) -> Finding:
    finding = static.finding(choice, True)
    if offer is None:
        return finding
    if offer in kept:
        confirmed = offer.verdict is not None
        return replace(finding, verdict=offer.verdict, memory=offer.memory) if confirmed else finding
    if offer.reason == "refuted" and offer.trial is not None:
        advice = f"{offer.trial.verdict.driver} refutes the rewrite: {offer.trial.verdict.reason}"
        return replace(
            finding, state="rolled-back", reason="refuted", advice=advice, verdict=offer.verdict, trials=(offer.trial,)
        )
    advice = "no harness confirms it (--verify require)"
    if offer.reason == "others-left":
        advice = "with this rewrite the program still stops: other faults are left"
    return replace(finding, state="advised", reason=offer.reason or "unconfirmed", advice=advice, verdict=None)


def _place(choice: static.Choice) -> Place | None:
    """Where a fault's write stands."""
    if choice.hit is not None:
        return choice.hit.write.place
    raised = choice.incident.raised
    return raised.stack[0] if raised is not None and raised.stack else None


def _written(finding: Finding) -> list[Place]:
    """Where a finding's writes and its site stand."""
    places = [Place(finding.path, finding.span)]
    if finding.conflict is not None:
        places += [w.stack[0] for w in finding.conflict.writes if w.stack]
    if finding.raised is not None:
        places += finding.raised.stack[:1]
    return places
