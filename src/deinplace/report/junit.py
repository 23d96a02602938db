"""JUnit XML: a suite for each file, a failed case for each finding that is left."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from deinplace.model import Finding, Outcome, Problem
from deinplace.report import parts, words
from deinplace.report.view import View

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(outcome: Outcome, view: View) -> str:
    """The whole document; where nothing was found, one case that passed, as a report without any counts as broken."""
    suites: dict[str, list[ET.Element]] = {}
    for finding in outcome.findings:
        suites.setdefault(view.path(finding.path), []).append(_case(finding, view))
    for problem in outcome.problems:
        suites.setdefault(view.path(problem.path) or "deinplace", []).append(_problem(problem, view))
    if not suites:
        suites["deinplace"] = [ET.Element("testcase", name="no in-place faults", classname="deinplace", time="0")]
    root = ET.Element("testsuites", name="deinplace")
    for name, cases in suites.items():
        suite = ET.SubElement(root, "testsuite", {"name": _clean(name), **_counts(cases), "time": "0"})
        suite.extend(cases)
    for key, value in _counts(list(root.iter("testcase"))).items():
        if key != "skipped":
            root.set(key, value)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(cases: list[ET.Element]) -> dict[str, str]:
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {name: sum(case.find(tag) is not None for case in cases) for name, tag in kinds.items()}
    return {"tests": str(len(cases)), **{name: str(number) for name, number in counts.items()}}


def _case(finding: Finding, view: View) -> ET.Element:
    where = parts.region(finding.path, finding.span, view)
    name = f"{finding.rule} {finding.name} at line {where.line}, column {where.column}"
    case = ET.Element("testcase", name=_clean(name), classname=_clean(view.path(finding.path)), time="0")
    text = _clean(parts.text(finding, view))
    if finding.state == "suppressed":
        ET.SubElement(case, "skipped", message=_clean(finding.advice or "suppressed"))
    elif finding.state == "fixed":
        ET.SubElement(case, "system-out").text = text
    else:
        failure = ET.SubElement(case, "failure", type=finding.severity, message=_clean(words.message(finding, view)))
        places = [f"{view.at(place)}: {label}" for label, place in parts.related(finding, view)]
        failure.text = "\n".join([text, *map(_clean, places)])
    return case


def _problem(problem: Problem, view: View) -> ET.Element:
    where = f" at line {problem.line}" if problem.line else ""
    name = f"{problem.code or 'problem'}{where}"
    case = ET.Element("testcase", name=_clean(name), classname=_clean(view.path(problem.path)), time="0")
    ET.SubElement(case, "error", type=problem.code or "problem", message=_clean(problem.message))
    return case


def _clean(text: str) -> str:
    """`text` without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
