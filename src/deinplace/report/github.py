"""GitHub workflow commands: one annotation a finding, shown beside the lines of a pull request."""

from __future__ import annotations

from deinplace.model import Finding, Outcome, Problem
from deinplace.report import parts, words
from deinplace.report.view import View

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def render(outcome: Outcome, view: View) -> str:
    """The commands, and the summary as a plain line of the log."""
    shown = [f for f in outcome.findings if f.state in (*parts.LEFT, "fixed")]
    lines = [_finding(finding, view) for finding in shown]
    lines += [_problem(problem, view) for problem in outcome.problems]
    if not view.quiet:
        lines += [_command("notice", {"title": "deinplace"}, text) for text in outcome.notes]
        lines.append(words.summary(outcome))
    return "".join(f"{line}\n" for line in lines)


def _finding(finding: Finding, view: View) -> str:
    level = "notice" if finding.state == "fixed" else _LEVELS[finding.severity]
    where = parts.region(finding.path, finding.span, view)
    properties: dict[str, str | int] = {"file": view.path(finding.path), "line": where.line, "endLine": where.end_line}
    if where.line == where.end_line:  # the runner drops an annotation with columns on several lines
        properties |= {"col": where.column, "endColumn": where.end_column}
    properties["title"] = f"deinplace ({finding.rule} {finding.name})"
    return _command(level, properties, parts.text(finding, view))


def _problem(problem: Problem, view: View) -> str:
    properties: dict[str, str | int] = {"title": "deinplace"}
    if problem.path:
        properties["file"] = view.path(problem.path)
    if problem.line:
        properties["line"] = problem.line
    return _command("error", properties, problem.message)


def _command(level: str, properties: dict[str, str | int], message: str) -> str:
    """A command on one line, whatever the message holds."""
    listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{level} {listed}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
