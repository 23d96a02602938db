"""GitLab's code quality report: a JSON list that a merge request compares with its target branch."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from deinplace.model import Finding, Outcome, Problem
from deinplace.report import parts, words
from deinplace.report.view import View

_SEVERITIES = {"error": "major", "warning": "minor", "note": "info"}


def render(outcome: Outcome, view: View) -> str:
    """What is left in the files; a fault that was fixed, or is suppressed, is none for GitLab."""
    findings = parts.left(outcome)
    marks = parts.fingerprints(findings, view)
    entries = [_finding(f, mark, view) for f, mark in zip(findings, marks, strict=True)]
    entries += [_problem(problem, view) for problem in outcome.problems]
    return json.dumps(entries, indent=2) + "\n"


def _finding(finding: Finding, mark: str, view: View) -> dict[str, Any]:
    lines = {"begin": finding.span.line, "end": finding.span.end_line}
    return {
        "description": words.message(finding, view),
        "check_name": finding.rule,
        "fingerprint": mark,
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": view.path(finding.path), "lines": lines},
    }


def _problem(problem: Problem, view: View) -> dict[str, Any]:
    path = view.path(problem.path) or "."
    mark = hashlib.sha256(f"{problem.code}\0{path}\0{problem.message}".encode("utf-8", "replace")).hexdigest()
    return {
        "description": problem.message,
        "check_name": problem.code or "problem",
        "fingerprint": mark,
        "severity": "major",
        "location": {"path": path, "lines": {"begin": problem.line or 1}},
    }
