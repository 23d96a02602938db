"""What the formats for other programs share: which findings count, how grave they are, and the places they speak of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deinplace import baseline
from deinplace.model import Edit, Event, Finding, Outcome, Place, Rewrite, Span
from deinplace.report import words
from deinplace.report.view import View

LEFT = ("fixable", "unsafe", "rolled-back", "advised")
"""States of a finding that is still in the files."""


@dataclass(frozen=True)
class Region:
    """A stretch of a file: 1-based lines, 1-based columns in code points, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Replacement:
    """Whole lines `first` to `last` of a file, and what stands there after a rewrite, without the last line end."""

    path: str
    first: int
    last: int
    before: str
    after: str


def left(outcome: Outcome) -> list[Finding]:
    """The findings that are still in the files, in order of place."""
    return [finding for finding in outcome.findings if finding.state in LEFT]


def region(path: str, span: Span, view: View) -> Region:
    """A span as other programs count."""
    start = view.column(path, span.line, span.col)
    end = view.column(path, span.end_line, span.end_col)
    return Region(span.line, start, span.end_line, end)


def edit_region(edit: Edit, view: View) -> Region:
    """The stretch that an edit replaces."""
    return Region(*view.position(edit.path, edit.start), *view.position(edit.path, edit.end))


def text(finding: Finding, view: View) -> str:
    """The finding's sentence, and what was or can be done about it, a line each."""
    lines = [words.message(finding, view)]
    rewrite = finding.rewrite
    if rewrite and finding.state in ("fixed", "fixable", "unsafe", "rolled-back"):
        proof = f" ({words.verdict(finding.verdict)})" if finding.verdict else ""
        lines.append(f"{finding.state}: {rewrite.title}{proof}")
    elif rewrite and finding.reason == words.DIAGNOSED:
        lines.append(f"try: {rewrite.title}")
    if finding.advice:
        lines.append(f"help: {finding.advice}")
    return "\n".join(lines)


def related(finding: Finding, view: View) -> Iterator[tuple[str, Place]]:
    """The places where the tensor was saved, overwritten and needed, in the order of time, and a label for each."""
    conflict = finding.conflict
    if conflict is None:
        if finding.raised and finding.raised.stack:
            yield words.refusal(finding.raised), finding.raised.stack[0]
        return
    if conflict.save.place:
        yield saved_label(conflict.save, conflict.node), conflict.save.place
    for number, write in enumerate(conflict.writes):
        if write.place:
            yield ("overwritten again here" if number else "overwritten here"), write.place
    if conflict.backward:
        yield "backward runs here", conflict.backward[0]


def saved_label(save: Event, node: str) -> str:
    """`saved here for ReluBackward0: float32 (2, 8)`."""
    return f"saved here for {node}" + (f": {words.tensor(save.tensor)}" if save.tensor else "")


def fingerprints(findings: list[Finding], view: View) -> list[str]:
    """For each finding what it is known by from run to run."""
    return baseline.fingerprints(findings, view.line, view.path)


def replacement(rewrite: Rewrite, view: View) -> Replacement | None:
    """A rewrite as a change of whole lines of one file, or None where it touches several files or an unknown one."""
    paths = {edit.path for edit in rewrite.edits}
    if len(paths) != 1:
        return None
    (path,) = paths
    known = view.texts.get(path)
    if known is None:
        return None
    edits = sorted(rewrite.edits, key=lambda edit: (edit.start, edit.end))
    begin, end = edits[0].start, edits[-1].end
    first = view.position(path, begin)[0]
    last, column = view.position(path, end)
    if column == 1 and end > begin:  # the last line end is part of the edit: the line after it is not
        last -= 1
    start, stop = view.bounds(path, first, last)
    after, at = "", start
    for edit in edits:
        after += known[at : edit.start] + edit.new
        at = edit.end
    after += known[at : max(at, stop)]
    return Replacement(path, first, last, known[start:stop], after.removesuffix("\n").removesuffix("\r"))
