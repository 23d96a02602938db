"""The program as an abstract run sees it, and trials of one more rewrite on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from deinplace.analysis import safety
from deinplace.analysis.index import Index
from deinplace.analysis.records import Write
from deinplace.analysis.run import MANY, Refine, Report, Unit, analyse
from deinplace.analysis.safety import Safety
from deinplace.analysis.session import Session, merged
from deinplace.analysis.source import Source
from deinplace.analysis.terms import Terms
from deinplace.analysis.wanted import suspects, worth_running
from deinplace.model import Edit, Rewrite
from deinplace.rewrite.apply import CheckError, OverlapError, patched

OUT_OF_SIGHT = Safety(False, "not-followed", "others import its file, whose top level it stands at: too many to follow")


@dataclass
class AbstractBench:
    """The program as it is, the rewrites taken so far, and trials of one more."""

    sources: Mapping[str, Source]
    lenient: bool
    allowed: frozenset[str] | None = None
    refine: Refine | None = None
    terms: Terms = field(default_factory=Terms)
    taken: list[Rewrite] = field(default_factory=list)

    def __post_init__(self) -> None:
        index = Index(self.sources)
        large = len(self.sources) >= MANY
        wanted = suspects(index, worth_running(index)) if large else None
        self.session = Session(self.sources, self.terms, self.lenient, wanted, index=index, large=large)
        self.files: dict[tuple[Edit, ...], Source] = {}
        """Files by the edits that made them."""
        self.wanted, self.whole = wanted, False
        self.before = self.refined(self.session.report)
        self.current = self.before

    def run(self, sources: Mapping[str, Source]) -> Report:
        """An abstract run of everything."""
        return self.refined(analyse(sources, self.terms, self.lenient, wanted=self.wanted))

    def refined(self, report: Report) -> Report:
        """The report with what type checkers say."""
        return report if self.refine is None else self.refine(report)

    def proves(
        self, rewrite: Rewrite, gone: Callable[[Report], bool], units: Iterable[Unit]
    ) -> tuple[Safety, Report | None]:
        """Whether one more rewrite mends its fault and changes nothing else."""
        try:
            sources = patched(self.sources, [*self.taken, rewrite], self.files)
        except (OverlapError, CheckError) as error:
            return Safety(False, "not-editable", str(error)), None
        part = None if self.whole else self._part(rewrite, sources)
        if part is None and self.session.large:
            return OUT_OF_SIGHT, None
        after = merged(self.current, part) if part is not None else self.run(sources)
        if not gone(after):
            return Safety(False, "not-mended", "the same fault would remain"), None
        if _own(after) - _own(self.current):
            return Safety(False, "not-mended", "another fault would take its place"), None
        return safety.compare(self.before, after, units), after

    def _part(self, rewrite: Rewrite, sources: Mapping[str, Source]) -> Report | None:
        """What those units do that enter a rewritten function; None where programs have to run again."""
        units = self.session.entering(rewrite.edits)
        if units is None:
            return None
        edits = [e for r in (*self.taken, rewrite) for e in r.edits]
        if (first := self.session.first(edits, units)) is not None:
            first = self.refined(first)
            self.before, self.current = merged(self.before, first), merged(self.current, first)
        part = self.session.rerun(sources, edits, units)
        return None if part is None else self.refined(part)

    def take(self, rewrite: Rewrite, after: Report) -> None:
        """Keep a rewrite that was tried."""
        self.whole = self.whole or self.session.entering(rewrite.edits) is None
        self.taken.append(rewrite)
        self.current = after


def _own(report: Report) -> set[safety.Key]:
    """Faults of statements that overwrite what they themselves have saved."""
    return {
        safety.key(hit)
        for hit in report.hits
        if hit.sure and (hit.save.place.path, hit.save.place.span.line) == _line(hit.write)
    }


def _line(write: Write) -> tuple[str, int]:
    return write.place.path, write.place.span.line
