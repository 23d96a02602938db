"""The changes alone, as one patch that `git apply` takes."""

from __future__ import annotations

from deinplace.model import Outcome
from deinplace.report import diff
from deinplace.report.view import View


def render(outcome: Outcome, view: View) -> str:
    """The diff of every change; nothing where nothing changes."""
    return "".join(diff.unified(change, view) for change in outcome.changes)
