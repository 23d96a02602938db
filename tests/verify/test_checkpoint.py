"""`fix` where a module under a checkpoint writes its input: backward computes it again from what was saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import deinplace

from .test_mend import fix, lines, runs

PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = torch.sigmoid(x)
        x *= 2
        return self.fc(y + x)


def main():
    torch.manual_seed(0)
    first, block = nn.Linear(4, 4), Block(4)
    optimizer = torch.optim.SGD([*first.parameters(), *block.parameters()], lr=0.1)
    for _ in range(2):
        x = torch.exp(first(torch.randn(2, 4)))
        loss = checkpoint(block, x, use_reentrant=REENTRANT).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""


@pytest.mark.parametrize(
    ("reentrant", "oracle"),
    [
        pytest.param(False, "copy-on-write", id="plain", marks=pytest.mark.slow),
        pytest.param(True, "the original on cloned inputs", id="reentrant"),
    ],
)
def test_what_a_checkpoint_computes_again_is_mended_and_confirmed(tmp_path: Path, reentrant: bool, oracle: str) -> None:
    outcome = fix(tmp_path, PROGRAM.replace("REENTRANT", str(reentrant)))
    assert lines(outcome) == ["x = x * 2"]
    assert {f.state for f in outcome.findings} == {"fixable"}
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert oracle in outcome.verdict.oracle
    runs(tmp_path, outcome)


SILENT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.sigmoid(self.a(x))
        y += x
        return self.b(y)


def main():
    torch.manual_seed(0)
    block = Block()
    x = torch.randn(3, 4, requires_grad=True)
    with set_checkpoint_early_stop(EARLY):
        out = checkpoint(block, x, use_reentrant=False)
    out.sum().backward()
    print(float(x.grad.sum()))


main()
"""


@pytest.mark.parametrize("early", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_is_overwritten_while_it_is_computed_again_is_found_though_nothing_raises(
    tmp_path: Path, early: bool
) -> None:
    """A checkpoint keeps what it computed again without a version: torch gives wrong gradients without a word."""
    outcome = fix(tmp_path, SILENT.replace("EARLY", str(early)))
    (finding,) = outcome.findings
    assert "gradients are silently wrong" in finding.message and "SigmoidBackward0 saved its output" in finding.message
    assert lines(outcome) == ["y = y + x"] and finding.state == "fixable"
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert outcome.verdict.oracle == "copy-on-write"
    runs(tmp_path, outcome)


def _block(x: torch.Tensor) -> torch.Tensor:
    y = torch.sigmoid(x)
    y += 1
    return y * x


def test_watch_tells_what_a_checkpoint_keeps_quiet() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    (wrong,) = torch.autograd.grad(checkpoint(_block, x, use_reentrant=False).sum(), x)
    right = torch.sigmoid(x) * (1 - torch.sigmoid(x)) * x + torch.sigmoid(x) + 1
    assert not torch.allclose(wrong, right), "torch says nothing"
    with pytest.raises(deinplace.InPlaceError, match="overw"), deinplace.watch():
        checkpoint(_block, x, use_reentrant=False).sum().backward()
