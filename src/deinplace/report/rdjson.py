"""Reviewdog's diagnostic format: each rewrite is a suggestion that a reviewer applies with one click.

Reviewdog places a suggestion only where its lines are those of the diagnostic, so a diagnostic with a suggestion stands
at the lines that the rewrite changes; where the tensor was saved and overwritten are related locations. Columns count
bytes of UTF-8, suggestions are whole lines.
"""

from __future__ import annotations

import json
from typing import Any

from deinplace.model import Finding, Outcome, Place, Problem
from deinplace.report import parts
from deinplace.report.view import View

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}
Json = dict[str, Any]


def render(outcome: Outcome, view: View) -> str:
    """One DiagnosticResult."""
    diagnostics = [_finding(finding, view) for finding in parts.left(outcome)]
    diagnostics += [_problem(problem, view) for problem in outcome.problems if problem.path]
    document = {"source": {"name": "deinplace"}, "diagnostics": diagnostics}
    return json.dumps(document, indent=2) + "\n"


def _finding(finding: Finding, view: View) -> Json:
    diagnostic: Json = {
        "message": parts.text(finding, view),
        "location": _location(Place(finding.path, finding.span), view),
        "severity": _SEVERITIES[finding.severity],
        "code": {"value": finding.rule},
    }
    # what was refuted must not be one click away
    offered = finding.rewrite if finding.state in ("fixable", "unsafe") else None
    change = parts.replacement(offered, view) if offered else None
    if change:
        lines = {"start": {"line": change.first}, "end": {"line": change.last}}
        diagnostic["location"] = {"path": view.path(change.path), "range": lines}
        diagnostic["suggestions"] = [{"range": lines, "text": change.after}]
    related = [{"message": label, "location": _location(place, view)} for label, place in parts.related(finding, view)]
    if related:
        diagnostic["related_locations"] = related
    return diagnostic


def _location(place: Place, view: View) -> Json:
    span = place.span
    # a span counts bytes from 0, as reviewdog does from 1
    start, end = {"line": span.line, "column": span.col + 1}, {"line": span.end_line, "column": span.end_col + 1}
    return {"path": view.path(place.path), "range": {"start": start, "end": end}}


def _problem(problem: Problem, view: View) -> Json:
    start = {"range": {"start": {"line": problem.line}}} if problem.line else {}
    return {
        "message": problem.message,
        "location": {"path": view.path(problem.path), **start},
        "severity": "ERROR",
        "code": {"value": problem.code or "problem"},
    }
