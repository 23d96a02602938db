"""A driver that nobody named, once it has run: it mends what it shows, and judges what others propose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from deinplace.analysis.source import Source
from deinplace.model import Trial, Verdict
from deinplace.rules.base import Incident
from deinplace.verify import wording
from deinplace.verify.broad import Broad
from deinplace.verify.drivers import Driver, DriverError, Run
from deinplace.verify.harness.contain import Chamber
from deinplace.verify.harness.model import Harness
from deinplace.verify.harness.rest import Offer
from deinplace.verify.incidents import by_path, written_at
from deinplace.verify.lines import back
from deinplace.verify.mend import Mender, Options, Progress
from deinplace.verify.search import Choice
from deinplace.verify.trial import Bench


class Witness(Mender):
    """One harness and its runs."""

    def __init__(
        self,
        harness: Harness,
        lab: Chamber,
        driver: Driver,
        sources: Mapping[str, Source],
        options: Options,
        progress: Progress,
        start: Mapping[str, Source],
        only: frozenset[tuple[str, int]] | None = None,
    ) -> None:
        super().__init__(lab, driver, sources, replace(options, all_sites=False), progress, start)
        self.needs_backward = not options.all_sites
        self.harness = harness
        self.only = only
        """Files and lines of writes to mend: what code that was made up shows besides need not be a fault."""

    def _incidents(self, run: Run) -> tuple[Incident, ...]:
        found = super()._incidents(run)
        if self.only is None:
            return found
        return tuple(i for i in found if any((p.path, p.span.line) in self.only for p in written_at(i)))

    @property
    def able(self) -> bool:
        """True where there is a run to compare with."""
        return self.first is not None and self.first.exit_code == 0

    @cached_property
    def files(self) -> frozenset[str]:
        """The user's files that the runs loaded."""
        loaded = self.first.gather("files") if self.first is not None else []
        return frozenset((*loaded, *(path for path, _ in self.ran)))

    def loads(self, paths: Iterable[str]) -> bool:
        """Whether a run loaded one of some files."""
        return not self.files.isdisjoint(paths)

    def holds(self, sources: Mapping[str, Source]) -> bool:
        """Whether the program sees the same in these files."""
        if not self.able:
            return True
        try:
            bench = self.bench or self.compared({})
        except DriverError:  # ran once, but not a second time: it says nothing
            return True
        bench.current, bench.max_runs = dict(sources), self.lab.count + self.options.max_runs
        result = bench.run((), watch=False)
        return result.equal or (not result.ended and bench.run((), watch=True).equal)

    def judge(self, offers: Sequence[Offer], current: Mapping[str, Source]) -> list[Offer]:
        """The offers, each with what a run under it shows: confirmed, refuted, or as it was."""
        mine = [o for o in offers if o.held and self.loads(e.path for e in o.rewrite.edits)]
        if not mine or not self.able:
            return list(offers)
        try:
            bench = self.compared(_functions(mine))
        except DriverError:  # ran once, but not a second time: it says nothing
            return list(offers)
        bench.current, bench.max_runs = dict(current), self.lab.count + self.options.max_runs
        judged = self._judged(mine, bench)
        return [judged.get(id(o), o) for o in offers]

    def _judged(self, mine: Sequence[Offer], bench: Bench) -> dict[int, Offer]:
        whole = bench.run([o.rewrite for o in mine], watch=False)
        stops = not whole.equal and not bench.run((), watch=False).ended
        broad = Broad(bench, self._ran_now(bench), self.progress)
        choices, last = broad.confirm([(o.site, o.rewrite) for o in mine], watch=stops)
        proof = wording.verdict(last, bench, self.driver) if last is not None and last.equal else None
        return {id(offer): self._told(offer, choice, proof, stops) for offer, choice in zip(mine, choices, strict=True)}

    def _told(self, offer: Offer, choice: Choice, proof: Verdict | None, stops: bool) -> Offer:
        own: Trial = choice.trials[-1]
        if own.verdict.status == "refuted":
            told = replace(own.verdict, driver=self.driver.title)
            return replace(offer, held=False, reason="refuted", verdict=told, trial=replace(own, verdict=told))
        if own.verdict.status != "confirmed":  # its lines never ran, or there was no time to try
            return offer
        if stops:
            return replace(offer, held=False, reason="others-left")
        return replace(offer, verdict=proof, trial=own, memory=choice.memory) if proof is not None else offer

    def _ran_now(self, bench: Bench) -> frozenset[tuple[str, int]]:
        """Lines of the files as they are meanwhile that stem from lines which wrote."""
        move = back(self.sources, bench.current)
        return frozenset(
            (path, line)
            for path, source in bench.current.items()
            for line in range(1, len(source.line_starts) + 1)
            if (path, move(path, line)) in self.ran
        )


def _functions(offers: Iterable[Offer]) -> dict[str, tuple[str, ...]]:
    """Functions that rewrites touch, by path: those whose results and arguments are to be recorded."""
    return by_path(touched for offer in offers for touched in offer.rewrite.touches)
