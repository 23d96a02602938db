"""Exit codes: 0 clean or all fixed, 1 findings left, 2 nothing could be done."""

from __future__ import annotations

from deinplace.model import Outcome

_LEFT = ("fixable", "unsafe", "rolled-back", "advised")


def of_findings(outcome: Outcome, exit_zero: bool = False, non_zero_on_fix: bool = False) -> int:
    """The exit code of `check` and `fix`.

    A file that could not be read counts as a finding; where not one file could be read, there was nothing to do.
    """
    if outcome.problems and not outcome.files:
        return 2
    if non_zero_on_fix and outcome.written:
        return 1
    left = any(f.state in _LEFT and f.severity != "note" for f in outcome.findings)
    return int((left or bool(outcome.problems)) and not exit_zero)


def of_comparison(outcome: Outcome) -> int:
    """The exit code of `verify`: 0 only where both states are known to compute the same."""
    return int(outcome.verdict is None or outcome.verdict.status != "confirmed")


def of_run(outcome: Outcome) -> int:
    """The program's own exit code where it failed (128 plus its signal), else 1 for findings, 0 for none."""
    code = outcome.driver_exit or 0
    if code:
        return code if code > 0 else 128 - code
    return int(bool(outcome.findings))
