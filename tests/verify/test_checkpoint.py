"""`fix` where a module under a checkpoint writes its input: backward computes it again from what was saved."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    [(False, "copy-on-write"), (True, "the original on cloned inputs")],
    ids=["plain", "reentrant"],
)
def test_what_a_checkpoint_computes_again_is_mended_and_confirmed(tmp_path: Path, reentrant: bool, oracle: str) -> None:
    outcome = fix(tmp_path, PROGRAM.replace("REENTRANT", str(reentrant)))
    assert lines(outcome) == ["x = x * 2"]
    assert {f.state for f in outcome.findings} == {"fixable"}
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert oracle in outcome.verdict.oracle
    runs(tmp_path, outcome)
