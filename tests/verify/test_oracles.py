"""Which oracle a verdict names: two that agree are said so, one that disagrees is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from deinplace.verify import Options

from .programs import RESIDUAL
from .test_mend import fix

RUNS_BY_ITSELF = RESIDUAL.replace("y += x", "y = y + x")
HIDDEN = RESIDUAL.replace("y += x", "y.data += x")


@pytest.mark.slow
def test_an_original_that_runs_and_copy_on_write_agree(tmp_path: Path) -> None:
    outcome = fix(tmp_path, RUNS_BY_ITSELF, Options(all_sites=True))
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert outcome.verdict.oracle == "the original as it is, and copy-on-write: both agree"


def test_a_write_that_autograd_does_not_see_makes_them_disagree(tmp_path: Path) -> None:
    outcome = fix(tmp_path, HIDDEN)
    assert outcome.verdict is not None and outcome.verdict.oracle == "copy-on-write"
    assert {finding.conflict.kind for finding in outcome.findings if finding.conflict} == {"hidden"}
    assert any("a write is hidden from autograd" in note for note in outcome.notes)
