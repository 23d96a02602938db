"""One line a finding, `path:line:col: CODE [*] message`, for editors and grep; `[*]` marks what `fix` mends."""

from __future__ import annotations

import re

from deinplace.model import Finding, Outcome, Problem
from deinplace.report import words
from deinplace.report.view import View


def render(outcome: Outcome, view: View) -> str:
    """The findings in order of place, then the problems, notes and the summary."""
    shown = [f for f in outcome.findings if f.state != "suppressed" or view.verbose]
    shown.sort(key=lambda f: (_order(view.path(f.path)), f.span))
    lines = [line(finding, view) for finding in shown]
    lines += [problem(p, view) for p in outcome.problems]
    if not view.quiet:
        lines += [f"note: {text}" for text in outcome.notes]
        lines += [text for text in (words.summary(outcome), words.verdict_line(outcome)) if text]
    return "".join(f"{text}\n" for text in lines)


def _order(path: str) -> list[tuple[int, str]]:
    """Paths by their letters, and numbers in them by their size: cell 9 comes before cell 10."""
    parts = re.split(r"(?<=:cell )(\d+)", path)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def line(finding: Finding, view: View) -> str:
    """One finding on one line."""
    column = view.column(finding.path, finding.span.line, finding.span.col)
    where = view.paint(f"{view.path(finding.path)}:{finding.span.line}:{column}", "bold")
    return f"{where}: {mark(finding, view)} {words.message(finding, view)}"


def mark(finding: Finding, view: View) -> str:
    """`DIP102 [*]`, with what became of it where that is not plain."""
    star = " " + view.paint("[*]", "cyan") if finding.state == "fixable" else ""
    state = f" [{finding.state}]" if finding.state in ("fixed", "rolled-back", "suppressed") else ""
    return view.paint(finding.rule, "red") + star + state


def problem(found: Problem, view: View) -> str:
    """`path:line: what kept it from being handled`."""
    where = view.path(found.path) + (f":{found.line}" if found.line else "")
    return f"{view.paint(where, 'bold')}: {found.message}" if where else found.message
