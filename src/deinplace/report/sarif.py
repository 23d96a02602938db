"""SARIF 2.1.0, for code scanning: results for what is left, notifications for what was fixed or could not be read."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

import deinplace
from deinplace.model import Finding, Outcome, Place, Problem, Rewrite
from deinplace.report import as_json, parts, words
from deinplace.report.view import View

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "SRCROOT"
Json = dict[str, Any]


def render(outcome: Outcome, view: View) -> str:
    """One log with one run."""
    shown = [f for f in outcome.findings if f.state != "fixed"]
    rules = _rules(shown)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    marks = parts.fingerprints(shown, view)
    run: Json = {
        "tool": {
            "driver": {
                "name": "deinplace",
                "version": deinplace.__version__,
                "semanticVersion": deinplace.__version__,
                "rules": rules,
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The folder that deinplace was run in."}}},
        "invocations": [
            {
                "executionSuccessful": not (outcome.problems and not outcome.files),
                "toolExecutionNotifications": _notifications(outcome, view),
            }
        ],
        "results": [_result(f, index[f.rule], mark, view) for f, mark in zip(shown, marks, strict=True)],
        "properties": {"command": outcome.command, "summary": words.summary(outcome)},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"


def _rules(findings: list[Finding]) -> list[Json]:
    """A descriptor for each rule that a finding names, with the rule's page where there is one."""
    from deinplace.rules import all_rules

    pages = {rule.code: inspect.cleandoc(type(rule).__doc__ or "") for rule in all_rules()}
    out = []
    for code, name in sorted({f.rule: f.name for f in findings}.items()):
        page = pages.get(code, "")
        rule: Json = {"id": code, "name": name.title().replace("-", "") or code}
        if page:
            short = " ".join(page.split("\n\n", 1)[0].split())
            rule |= {"shortDescription": {"text": short}, "fullDescription": {"text": short}}
            rule["help"] = {"text": page, "markdown": page}
        out.append(rule)
    return out


def _result(finding: Finding, rule: int, mark: str, view: View) -> Json:
    levels = {"error": "error", "warning": "warning", "note": "note"}
    result: Json = {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": levels[finding.severity],
        "message": {"text": _literal(parts.text(finding, view))},
        "locations": [_location(Place(finding.path, finding.span), view)],
        "partialFingerprints": {"deinplace/v1": mark},
        "properties": {
            "state": finding.state,
            "reason": finding.reason,
            "verification": as_json.verification(finding.verdict),
        },
    }
    places = list(parts.related(finding, view))
    if places:
        steps = [_location(place, view) | {"message": {"text": label}} for label, place in places]
        result["relatedLocations"] = [step | {"id": number} for number, step in enumerate(steps)]
        result["codeFlows"] = [{"threadFlows": [{"locations": [{"location": step} for step in steps]}]}]
    if finding.rewrite and finding.state in ("fixable", "unsafe") and finding.rewrite.edits:
        result["fixes"] = [_fix(finding.rewrite, view)]
    if finding.state == "suppressed":
        result["suppressions"] = [_suppression(finding)]
    return result


def _literal(text: str) -> str:
    """`text` without what SARIF would take for a placeholder, such as `{0}`, or for a link, such as `[a](b)`."""
    return re.sub(r"\{(\d+)\}", r"{{\1}}", text).replace("](", "\\](")


def _suppression(finding: Finding) -> Json:
    kind = "inSource" if finding.reason == "comment" else "external"
    return {"kind": kind} | ({"justification": finding.advice} if finding.advice else {})


def _fix(rewrite: Rewrite, view: View) -> Json:
    changes: dict[str, list[Json]] = {}
    for edit in rewrite.edits:
        replaced = {"deletedRegion": _region(parts.edit_region(edit, view)), "insertedContent": {"text": edit.new}}
        changes.setdefault(edit.path, []).append(replaced)
    return {
        "description": {"text": rewrite.title},
        "artifactChanges": [
            {"artifactLocation": _artifact(path, view), "replacements": replacements}
            for path, replacements in changes.items()
        ],
    }


def _location(place: Place, view: View) -> Json:
    span = parts.region(place.path, place.span, view)
    physical = {"artifactLocation": _artifact(place.path, view), "region": _region(span)}
    location: Json = {"physicalLocation": physical}
    if place.function != "<module>":
        location["logicalLocations"] = [{"fullyQualifiedName": place.function, "kind": "function"}]
    return location


def _region(where: parts.Region) -> Json:
    return {
        "startLine": where.line,
        "startColumn": where.column,
        "endLine": where.end_line,
        "endColumn": where.end_column,
    }


def _artifact(path: str, view: View) -> Json:
    """A relative reference below the working folder, or a file URI."""
    name = view.path(path)
    if PurePath(name).is_absolute():
        return {"uri": PurePath(name).as_uri()}
    return {"uri": quote(name), "uriBaseId": _ROOT}


def _notifications(outcome: Outcome, view: View) -> list[Json]:
    out = [_problem(problem, view) for problem in outcome.problems]
    out += [{"level": "note", "message": {"text": text}} for text in outcome.notes]
    for finding in outcome.findings:
        if finding.state == "fixed":
            note: Json = {"level": "note", "message": {"text": parts.text(finding, view)}}
            note["locations"] = [_location(Place(finding.path, finding.span), view)]
            out.append(note)
    return out


def _problem(problem: Problem, view: View) -> Json:
    note: Json = {"level": "error", "message": {"text": problem.message}}
    if problem.path:
        physical: Json = {"artifactLocation": _artifact(problem.path, view)}
        if problem.line:
            physical["region"] = {"startLine": problem.line}
        note["locations"] = [{"physicalLocation": physical}]
    return note
