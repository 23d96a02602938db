"""`fix --all` with a program that proves it: what is refused on the spot, programs that look at themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Outcome
from deinplace.verify import Driver, Options, mend

INFERENCE = """
import torch
bank, w = {}, torch.tensor([2.0, 4.0], requires_grad=True)
with torch.inference_mode():
    y = w * 3
    z = w * 5
bank["y"] = y
bank["z"] = z
y /= y.norm()
z.mul_(w.detach())
norm = bank["y"].norm().item() + bank["z"].sum().item()
"""

DEFAULTS = """
import torch

def smooth(x, *, rate=0.5, state=torch.zeros(3)):
    state *= 1 - rate
    state += rate * x
    return state.sum().item()

outputs = [smooth(torch.ones(3)) for _ in range(2)]
kept = smooth.__kwdefaults__["state"]
"""

OWN_CODE = """
import torch

def scale(x):
    y = torch.zeros(3)
    y += 1.0
    return y * 2

size = scale.__code__.co_argcount + scale.__code__.co_nlocals
assert size == 3, size
total = scale(torch.ones(3))
"""

NO_TORCH = """
counts = [0]
counts[0] += 1
print(counts)
"""


def fix(folder: Path, text: str) -> Outcome:
    path = folder / "train.py"
    path.write_text(text.lstrip(), encoding="utf-8")
    source = Source.parse(str(path), path.read_bytes())
    driver = Driver((sys.executable, "train.py"), str(folder), timeout=120)
    return mend(driver, {str(path): source}, Options(all_sites=True), lambda _: None)


def test_an_inference_tensor_is_written_in_inference_mode_for_all_who_hold_it(tmp_path: Path) -> None:
    outcome = fix(tmp_path, INFERENCE)
    after = outcome.changes[0].after
    assert "with torch.inference_mode():\n    y /= y.norm()" in after
    assert "with torch.inference_mode():\n    z.mul_(w.detach())" in after
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"


@pytest.mark.parametrize("text", [DEFAULTS, OWN_CODE], ids=["defaults", "code"])
def test_a_program_may_look_at_the_functions_that_are_recorded(tmp_path: Path, text: str) -> None:
    outcome = fix(tmp_path, text)
    assert all(f.state != "advised" for f in outcome.findings)
    assert "state +=" in text or "y = y + 1.0" in outcome.changes[0].after


def test_a_program_without_torch_has_nothing_to_rewrite(tmp_path: Path) -> None:
    outcome = fix(tmp_path, NO_TORCH)
    assert (outcome.changes, outcome.findings) == ((), ())
    assert any("torch" in note for note in outcome.notes)
