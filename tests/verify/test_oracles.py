"""Which oracle a verdict names: two that agree are said so, one that disagrees is a finding."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deinplace.verify import Options, incidents
from deinplace.verify.attest import CHECKED, CLONED, FORWARD, Attested, Witnesses
from deinplace.verify.drivers import Driver, Laboratory, Settings
from deinplace.verify.recording import Comparison

from .programs import LEAF_ACTIVATION, RESIDUAL
from .test_mend import fix, lines

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


@pytest.mark.slow
def test_for_a_leaf_three_oracles_agree(tmp_path: Path) -> None:
    outcome = fix(tmp_path, LEAF_ACTIVATION)
    assert lines(outcome) == ["x = x - 0.5"]
    assert outcome.verdict is not None and outcome.notes == ()
    assert outcome.verdict.oracle == f"copy-on-write, refused writes emulated, and {CHECKED} and {CLONED}: all agree"


def asked(folder: Path, line: str) -> Attested:
    """What the oracles say of the leaf's program with another line in place of the one that is refused."""
    path = folder / "train.py"
    path.write_text(LEAF_ACTIVATION)
    with Laboratory() as lab:
        driver = Driver((sys.executable, "train.py"), str(folder), timeout=120)
        refused = incidents.raised(lab.run(driver, Settings(watch=True, record=True)))
        texts = {str(path): LEAF_ACTIVATION.replace("x -= 0.5", line).encode()}
        return Witnesses(lab, driver, refused, Comparison()).ask(texts, {str(path): ("centred",)})


def test_each_oracle_refutes_what_is_wrong(tmp_path: Path) -> None:
    found = asked(tmp_path, "x = x.detach() * x - 0.4")
    assert not found.proves and found.agree == ()
    values, gradients = found.against
    assert values.startswith(f"{FORWARD} the original computes something else: backward: backward roots[0]: values")
    assert gradients.startswith("gradcheck in float64, train.py:centred: Jacobian mismatch")


NOT_EMULATED = LEAF_ACTIVATION.replace(
    "loss.backward()",
    "from torch.overrides import _get_current_function_mode_stack as modes\n"
    "assert not modes(), 'somebody looks on'\nloss.backward()",
)


@pytest.mark.slow
def test_a_program_that_cannot_be_emulated_is_proved_by_the_others(tmp_path: Path) -> None:
    outcome = fix(tmp_path, NOT_EMULATED)
    assert lines(outcome) == ["x = x - 0.5"]
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert outcome.verdict.oracle == f"{CHECKED}, and {CLONED}: both agree"
