"""A confirmed patch under autocast, checkpointing, a compiler, in float64, and on another device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from deinplace import config
from deinplace.analysis.source import Source
from deinplace.verify import Options
from deinplace.verify.drivers import Driver, Laboratory, Settings
from deinplace.verify.modes import MODES, Changed, modes
from deinplace.verify.recording import Comparison
from deinplace.verify.trial import Bench

from .programs import RESIDUAL
from .test_mend import fix, lines


def test_the_names_are_those_of_the_settings() -> None:
    assert tuple(MODES) == config.MODES


def test_a_patch_is_compared_in_the_modes_asked_for(tmp_path: Path) -> None:
    outcome = fix(tmp_path, RESIDUAL, Options(modes=("amp", "compile")))
    assert lines(outcome) == ["y = y + x"]
    assert outcome.verdict is not None and outcome.runs == 3 + 2 + 2 + 1
    assert {mode.name: (mode.status, mode.reason[:11]) for mode in outcome.verdict.modes} == {
        "autocast to bfloat16": ("confirmed", "max |error|"),
        "autocast to float16, GradScaler": ("confirmed", "max |error|"),
        "torch.compile (aot_eager)": ("confirmed", "max |error|"),
    }


DEPENDS_ON_THE_MODE = """
import torch
from torch import nn

class Block(nn.Module):
    def forward(self, x):
        y = torch.exp(x)
        y += x
        return y.sum()

w = nn.Parameter(torch.ones(3))
block = Block()
for step in range(2):
    w.grad = None
    loss = block(torch.ones(3) @ (w * torch.eye(3)))
    assert loss.dtype == torch.float32, "not meant for others"
    loss.backward()
"""


def compared(folder: Path, program: str, new: str, names: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """What came of a change of the writing line, by mode."""
    path = folder / "train.py"
    path.write_text(program)
    source = Source.parse(str(path), path.read_bytes())
    with Laboratory() as lab:
        driver = Driver((sys.executable, "train.py"), str(folder), timeout=120)
        oracle = lab.run(driver, Settings(watch=True, record=True))
        bench = Bench(lab, driver, {str(path): source}, oracle, Comparison(), {})
        changed = Changed({str(path): source.text.replace("y += x", new).encode()})
        return {m.name: (m.status, m.reason) for m in modes(bench, changed, names, None, lambda _: None)}


@pytest.mark.slow
def test_checkpoints_of_both_kinds(tmp_path: Path) -> None:
    found = compared(tmp_path, DEPENDS_ON_THE_MODE, "y = y + x", ("checkpoint",))
    assert found == {
        "checkpoint": ("confirmed", "max |error| 0"),
        "checkpoint, reentrant": ("confirmed", "max |error| 0"),
    }


@pytest.mark.slow
def test_a_program_that_cannot_run_so_is_said_to(tmp_path: Path) -> None:
    ((status, reason),) = compared(tmp_path, DEPENDS_ON_THE_MODE, "y = y + x", ("float64",)).values()
    assert status == "unconfirmed"
    assert reason.startswith("the program cannot run so: AssertionError: not meant for others")


@pytest.mark.slow
def test_a_wrong_patch_is_refuted_in_a_mode(tmp_path: Path) -> None:
    program = DEPENDS_ON_THE_MODE.replace("assert", "keep =")
    ((status, reason),) = compared(tmp_path, program, "y = y + x.detach()", ("float64",)).values()
    assert status == "refuted"
    assert reason.startswith("gradients: backward leaf (3,) torch.float64[0]: values differ")


TINY = """
import torch

class Block(torch.nn.Module):
    def forward(self, x):
        y = torch.exp(x)
        y += x
        return y

torch.manual_seed(0)
w = torch.nn.Parameter(torch.randn(4, 4) / 4)
block = Block()
for step in range(2):
    hidden = block(torch.rand(4096, 4) @ w)
    loss = hidden.mean() * 3.3e-4  # 2e-8 for each element: that is zero in float16, but for a scale
    loss.backward()
"""


@pytest.mark.parametrize(
    ("new", "status"),
    [
        pytest.param("y = y + x", "confirmed", id="right", marks=pytest.mark.slow),
        pytest.param("y = y + x.detach()", "refuted", id="wrong"),
    ],
)
def test_float16_trains_with_a_scaler(tmp_path: Path, new: str, status: str) -> None:
    _, half = compared(tmp_path, TINY, new, ("amp",)).items()
    assert half[0] == "autocast to float16, GradScaler" and half[1][0] == status, half


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu(tmp_path: Path) -> None:
    outcome = fix(tmp_path, DEPENDS_ON_THE_MODE, Options(device="cuda"))
    assert outcome.verdict is not None
    assert [(mode.name, mode.status) for mode in outcome.verdict.modes] == [("on cuda", "confirmed")]
