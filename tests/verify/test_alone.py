"""Programs that behave otherwise while they are watched: nothing clean may be said of one that fails by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deinplace.cli.exits import of_findings
from deinplace.report.words import PROBE_DIFFERS, summary
from deinplace.verify import Options, alone, mend
from deinplace.verify.drivers import Driver, DriverError

from .test_mend import fix

ONLY_WATCHED = """
import os, torch
w = torch.ones(3, requires_grad=True)
if "DEINPLACE_PROBE" {} os.environ:
    raise ValueError("not so")
(w * w).sum().backward()
"""
SAID = {
    "not in": "fails (exit 1: ValueError: not so) when it runs by itself, and not while it is watched",
    "in": "runs to its end by itself, and fails while it is watched (ValueError: not so",
}


@pytest.mark.parametrize("test", SAID)
def test_no_clean_verdict(tmp_path: Path, test: str) -> None:
    outcome = fix(tmp_path, ONLY_WATCHED.format(test), Options(all_sites=test == "in"))
    (problem,) = outcome.problems
    assert problem.code == PROBE_DIFFERS == alone.CODE and SAID[test] in problem.message
    assert "\n" not in problem.message
    assert summary(outcome) == "Nothing can be said of in-place faults" and of_findings(outcome) == 1


def test_a_limit_of_steps_holds_for_that_run_as_well(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nw = torch.nn.Parameter(torch.ones(3))\noptimizer = torch.optim.SGD([w])\n"
        "while True:\n    (w * w).sum().backward()\n    optimizer.step()\n"
    )
    driver = Driver((sys.executable, "train.py"), str(tmp_path), timeout=120, max_steps=2)
    outcome = mend(driver, {}, Options(), lambda _: None)
    assert (outcome.problems, outcome.runs) == ((), 2)


def test_what_always_fails_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="fails for another reason"):
        fix(tmp_path, "import torch\nraise KeyError('sample')\n")
