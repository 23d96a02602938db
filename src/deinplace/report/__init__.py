"""Reports: one module a format, each a pure function of an outcome and a view."""

from __future__ import annotations

from deinplace.model import Outcome
from deinplace.report.view import View


def render(kind: str, outcome: Outcome, view: View) -> str:
    """The whole report in the format `kind`: full, concise or json."""
    if kind == "json":
        from deinplace.report import as_json

        return as_json.render(outcome, view)
    if kind == "concise":
        from deinplace.report import concise

        return concise.render(outcome, view)
    from deinplace.report import full

    return full.render(outcome, view)
