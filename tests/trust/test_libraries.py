"""The benchmark of whole libraries: what is equal, what differs, and what failed before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.verify.static import plan

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "libraries"
PLACE = "tinynets.blocks:"
NAMES = [PLACE + n for n in ("Residual", "Gate", "Normalised", "Squared")]


def run(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "libraries.py"), "tinynets", "--work", str(work), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FIXTURES), str(ROOT / "src")])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


def test_a_model_that_changed_is_told_from_those_that_did_not(tmp_path: Path) -> None:
    first = run(tmp_path, "--rewrite-only")
    assert first.returncode == 0, first.stderr
    assert "rewrites in 1 of 2 files" in first.stdout
    (copy,) = tmp_path.glob("tinynets-*/after-*/tinynets/blocks.py")
    text = copy.read_text()
    assert "y = y * 2" in text and "y = y.mul(3)" in text and "x -= x.mean()" in text
    assert (FIXTURES / "tinynets" / "blocks.py").read_text() != text
    copy.write_text(text.replace("y = y.mul(3)", "y = y.mul(3.5)"))
    result = run(tmp_path, "--json", str(tmp_path / "states.json"), "--only", *NAMES)
    assert result.returncode == 1, result.stderr
    states = json.loads((tmp_path / "states.json").read_text())["states"]
    assert states == dict(zip(NAMES, ("equal", "different", "equal", "mended"), strict=True))
    assert "models equal bit for bit: 2 / 3" in result.stdout
    assert (
        f"mended: {PLACE}Squared: RuntimeError: one of the variables needed for gradient computation" in result.stdout
    )


OPTIONAL_BIAS = """
import torch
from torch import Tensor, nn

class Scaled(nn.Module):
    def __init__(self, dim: int, biased: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        if biased:
            self.bias = nn.Parameter(torch.zeros(dim))
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return self.linear(x)
        y = self.linear(x)
        y += self.bias
        return y.sigmoid()
"""

ROUNDED_NUMBER = """
import torch

def repeats(total, depth, taken: int):
    left = round(total)
    left -= taken
    size = abs(depth)
    size += taken
    return left, size
"""

LIST_OF_PARAMETERS = """
import torch
from typing import List
from torch import Tensor

@torch.no_grad()
def step(params: List[Tensor], grads: List[Tensor]) -> None:
    for i, param in enumerate(params):
        grad = grads[i]
        update = torch.rand(3)
        scale = (torch.rand(3) * 2).clamp_(min=1.0)
        update.div_(scale)
        param.add_(update, alpha=-0.1)
"""


def freed(text: str) -> str:
    """The program after `fix --all`, proved from its source."""
    source = Source.parse("a.py", text.encode())
    edits = sorted((e for _, r, _ in plan({"a.py": source}, all_sites=True) for e in r.edits), key=lambda e: -e.start)
    for edit in edits:
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(OPTIONAL_BIAS, id="under autocast the bias that may be None has another type than the result"),
        pytest.param(ROUNDED_NUMBER, id="round and abs of who knows what may be numbers"),
    ],
)
def test_what_is_not_known_stays(text: str) -> None:
    assert freed(text) == text


def test_a_rewrite_that_frees_nothing_does_not_ride_with_one_that_does() -> None:
    text = freed(LIST_OF_PARAMETERS)
    assert "update = update.div(scale)" in text
    assert "in enumerate(params):" in text and "param.add_(update" in text


def test_a_write_to_a_part_does_not_become_another_write_to_it() -> None:
    text = freed(
        LIST_OF_PARAMETERS.replace(
            "        update.div_(scale)\n", "        update.div_(scale)\n        update[0] += 1\n"
        )
    )
    assert "update[0] += 1" in text


SUITE = """\
from numbers_of import blocks

def test_kept():
    assert blocks.one() == 1

def test_lost():
    assert blocks.two() == 2
"""


@pytest.mark.parametrize("broken", [False, True], ids=["same", "another-outcome"])
def test_a_librarys_own_tests_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: bool
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import library_suite

    package = tmp_path / "unpacked" / "src" / "numbers_of"
    (tmp_path / "unpacked" / "tests").mkdir(parents=True)
    package.mkdir(parents=True)
    (tmp_path / "unpacked" / "tests" / "test_numbers.py").write_text(SUITE)
    (package / "__init__.py").write_text("")
    (package / "blocks.py").write_text("def one():\n    return 1\n\n\ndef two():\n    return 2\n")

    def rewrite(where: Path) -> None:
        text = (where / "blocks.py").read_text()
        (where / "blocks.py").write_text(text.replace("return 2", "return 3" if broken else "return 1 + 1"))

    code = library_suite.compared(
        "numbers_of", tmp_path / "unpacked", sys.executable, ["tests"], rewrite, tmp_path / "work"
    )
    said = capsys.readouterr().out
    assert code == int(broken)
    assert "before: 2 passed" in said
    assert ("test_lost: passed became failed" in said) == broken
    assert "return 2" in (package / "blocks.py").read_text()
