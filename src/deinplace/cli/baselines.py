"""Findings that a repository lives with: listed in a baseline file, or silenced by comments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deinplace import baseline
from deinplace.errors import DeinplaceError
from deinplace.model import Finding, Outcome
from deinplace.report.view import View
from deinplace.writing import Write, tree_of, write_all

if TYPE_CHECKING:
    from deinplace.analysis.source import Source

_LEFT = ("fixable", "unsafe", "rolled-back", "advised")


def silenced(outcome: Outcome, file: str | None, root: str, seen: View) -> Outcome:
    """The outcome with the findings that the baseline lists marked as suppressed.

    Raises:
        DeinplaceError: the file is no baseline.
    """
    if not file:
        return outcome
    path = Path(root, file)
    known = baseline.read(path)
    # what `fix` can mend is mended: a baseline is what a repository lives with, not what it clings to
    states = tuple(state for state in _LEFT if outcome.command != "fix" or state != "fixable")
    marks = baseline.fingerprints(outcome.findings, seen.line, _names(path))
    findings = tuple(
        replace(f, state="suppressed", reason="baseline") if mark in known and f.state in states else f
        for f, mark in zip(outcome.findings, marks, strict=True)
    )
    return replace(outcome, findings=findings)


def chosen(findings: Iterable[Finding], codes: frozenset[str] | None) -> tuple[Finding, ...]:
    """The findings of the rules that the settings choose, and those of other rules that something is done about."""
    done = ("fixed", "fixable")
    return tuple(f for f in findings if codes is None or f.rule in codes or f.state in done or f.rule == "DIP000")


def commented(outcome: Outcome, sources: Mapping[str, Source]) -> Outcome:
    """The outcome with the findings that a comment in their file, or the settings, silence marked as suppressed."""
    from deinplace.analysis import suppress
    from deinplace.verify.wording import UNKNOWN

    comments = {
        path: suppress.read(source)[0]
        for path, source in sources.items()
        if any(f.path == path for f in outcome.findings)
    }

    def covered(finding: Finding) -> bool:
        # a fault that no rule made an offer for has no rule of its own: any rule that is named there speaks of it
        names = [(finding.rule, finding.name)]
        for comment in comments.get(finding.path, ()):
            if finding.rule == UNKNOWN[0]:
                names += [(rule, rule) for rule in comment.rules]
            if any(comment.silences(code, name, finding.span) for code, name in names):
                return True
        return False

    findings = tuple(
        replace(f, state="suppressed", reason="comment") if f.state in _LEFT[1:] and covered(f) else f
        for f in outcome.findings
    )
    findings = tuple(_by_settings(f, sources.get(f.path)) if f.state in _LEFT[1:] else f for f in findings)
    return replace(outcome, findings=findings)


def _by_settings(finding: Finding, source: Source | None) -> Finding:
    """A finding, marked as suppressed where the settings silence its rule in its file.

    One that no rule made an offer for counts as that of a silenced rule whose site is there.
    """
    from deinplace.analysis import suppress
    from deinplace.rules import sites
    from deinplace.verify.wording import UNKNOWN

    if source is None or not source.silent or finding.rule != UNKNOWN[0]:
        return suppress.by_settings(source, finding) if source is not None else finding
    span = finding.span
    near = (s for s in sites(source) if s.span.line <= span.end_line and span.line <= s.span.end_line)
    if any(site.rule in source.silent for site in near):
        return replace(finding, state="suppressed", reason="per-file-ignores")
    return finding


def write(outcome: Outcome, file: Path, seen: View) -> int:
    """Write the findings that are left to a baseline file; how many there are.

    Raises:
        DeinplaceError: the file cannot be written.
    """
    name = _names(file)
    pairs = zip(outcome.findings, baseline.fingerprints(outcome.findings, seen.line, name), strict=True)
    left = [(f, mark) for f, mark in pairs if f.state in _LEFT]
    text = baseline.render([f for f, _ in left], [mark for _, mark in left], name)
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise DeinplaceError(f"{file}: the baseline cannot be written: {error.strerror}") from None
    return len(left)


def comment(outcome: Outcome, sources: Mapping[str, Source], given: list[str]) -> Outcome:
    """The outcome once a comment stands beside each finding that is left."""
    from deinplace import ignores

    left: list[Finding] = [f for f in outcome.findings if f.state in _LEFT]
    changes, problems = ignores.add(sources, left)
    writes = [Write(c.path, sources[c.path].on_disk, sources[c.path].written(c.after)) for c in changes]
    write_all(writes, tree_of(given))
    blamed = {(p.path, p.line) for p in problems} | {(p.path, 0) for p in problems if not p.line}
    findings = tuple(
        replace(f, state="suppressed", reason="comment")
        if f in left and not {(f.path, f.span.line), (f.path, 0)} & blamed and not f.rule.startswith("DIP9")
        else f
        for f in outcome.findings
    )
    return replace(outcome, findings=findings, problems=(*outcome.problems, *problems))


def cleared(outcome: Outcome, sources: Mapping[str, Source], given: list[str]) -> Outcome:
    """The outcome once the comments that silence nothing are out of the files."""
    from deinplace import ignores

    spare = [f for f in outcome.findings if f.rule == "DIP901" and f.state != "suppressed"]
    changes = ignores.remove_unused(sources, spare)
    writes = [Write(c.path, sources[c.path].on_disk, sources[c.path].written(c.after)) for c in changes]
    write_all(writes, tree_of(given))
    gone = {c.path for c in changes}
    findings = tuple(replace(f, state="fixed") if f in spare and f.path in gone else f for f in outcome.findings)
    return replace(outcome, findings=findings, written=outcome.written or bool(changes))


def _names(file: Path) -> Callable[[str], str]:
    """Names of files as a baseline has them: relative to its own folder, so that it counts from anywhere."""
    return View(str(file.absolute().parent)).path
