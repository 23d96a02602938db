"""The program as an abstract run sees it, and trials of one more rewrite on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deinplace.analysis import safety
from deinplace.analysis.index import Index
from deinplace.analysis.report import Refine, Report, Unit
from deinplace.analysis.run import analyse
from deinplace.analysis.safety import Safety
from deinplace.analysis.session import Session, merged
from deinplace.analysis.source import Source
from deinplace.analysis.terms import Terms
from deinplace.analysis.wanted import suspects, worth_running
from deinplace.model import Edit, Rewrite
from deinplace.rewrite.apply import CheckError, OverlapError, patched

OUT_OF_SIGHT = Safety(False, "not-followed", "others import its file, whose top level it stands at: too many to follow")


class Trials:
    """The program as it is and as the rewrites taken so far make it, and what some units do after more of them."""

    session: Session
    before: Report
    current: Report
    taken: list[Rewrite]
    refine: Refine | None

    def refined(self, report: Report) -> Report:
        """The report with what type checkers say."""
        return report if self.refine is None else self.refine(report)

    def part(self, rewrites: Sequence[Rewrite], sources: Mapping[str, Source]) -> Report | None:
        """What those units do that enter a rewritten function, once the files say `sources`.

        None where only a run of the whole project can tell.
        """
        units = self.session.entering([e for r in rewrites for e in r.edits])
        if units is None:
            return None
        edits = [e for r in dict.fromkeys((*self.taken, *rewrites)) for e in r.edits]
        if (first := self.session.first(edits, units)) is not None:
            first = self.refined(first)
            self.before, self.current = merged(self.before, first), merged(self.current, first)
        part = self.session.rerun(sources, edits, units)
        return None if part is None else self.refined(part)


@dataclass
class AbstractBench(Trials):
    """Trials of one more rewrite."""

    sources: Mapping[str, Source]
    lenient: bool
    allowed: frozenset[str] | None = None
    refine: Refine | None = None
    terms: Terms = field(default_factory=Terms)
    taken: list[Rewrite] = field(default_factory=list)

    def __post_init__(self) -> None:
        index = Index(self.sources)
        wanted = suspects(index, worth_running(index)) if index.large else None
        self.session = Session(self.sources, self.terms, self.lenient, wanted, index=index, large=index.large)
        self.files: dict[tuple[Edit, ...], Source] = {}
        """Files by the edits that made them."""
        self.wanted, self.whole = wanted, False
        self.before = self.refined(self.session.report)
        self.current = self.before

    def run(self, sources: Mapping[str, Source]) -> Report:
        """An abstract run of everything."""
        return self.refined(analyse(sources, self.terms, self.lenient, wanted=self.wanted))

    def proves(
        self, rewrite: Rewrite, gone: Callable[[Report], bool], units: Iterable[Unit]
    ) -> tuple[Safety, Report | None]:
        """Whether one more rewrite mends its fault and changes nothing else."""
        try:
            sources = patched(self.sources, [*self.taken, rewrite], self.files)
        except (OverlapError, CheckError) as error:
            return Safety(False, "not-editable", str(error)), None
        part = None if self.whole else self.part([rewrite], sources)
        if part is None and self.session.large:
            return OUT_OF_SIGHT, None
        after = merged(self.current, part) if part is not None else self.run(sources)
        if not gone(after):
            return Safety(False, "not-mended", "the same fault would remain"), None
        if overwritten(after, sure=True) - overwritten(self.current, sure=True):
            return Safety(False, "not-mended", "another fault would take its place"), None
        return safety.compare(self.before, after, units), after

    def take(self, rewrite: Rewrite, after: Report) -> None:
        """Keep a rewrite that was tried."""
        self.whole = self.whole or self.session.entering(rewrite.edits) is None
        self.taken.append(rewrite)
        self.current = after


def overwritten(report: Report, sure: bool) -> set[safety.Key]:
    """Statements that overwrite, or unless `sure` may, what they themselves have saved: `x[1] = x[1] * y`."""
    return {
        safety.key(hit)
        for hit in report.hits
        if (hit.sure or not sure)
        and hit.save.place.path == hit.write.place.path
        and hit.save.place.span.line == hit.write.place.span.line
    }
