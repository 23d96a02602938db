"""Programs that leave things to chance: what can be fixed is fixed, and what cannot be compared is never judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_mend import fix, lines

SEEDED_FOR_THEM = """
import random, time
import numpy, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

started = time.time()
words = list({f"word {i}" for i in range(9)})     # by the hash of strings
net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.from_numpy(numpy.random.rand(8, 4).astype("float32")))

if __name__ == "__main__":
    for (x,) in DataLoader(data, batch_size=4, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        y = torch.sigmoid(net(x)) * random.random()
        z = torch.exp(y)
        z += len(words[0]) + words.index("word 3") + numpy.random.rand()
        z.sum().backward()
        optimizer.step()
    took = time.time() - started
"""

UNSTEADY = """
import os, time, torch

w = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
chance = torch.tensor(list(os.urandom(3))) / 255
for step in range(2):
    optimizer.zero_grad()
    y = torch.exp(w * {source})
    y += 1
    y.sum().backward()
    optimizer.step()
"""


def test_every_source_that_has_a_seed_is_seeded(tmp_path: Path) -> None:
    outcome = fix(tmp_path, SEEDED_FOR_THEM)
    assert [line.partition("#")[0] for line in lines(outcome)] == [
        'z = z + (len(words[0]) + words.index("word 3") + numpy.random.rand())'
    ]
    verdict = outcome.verdict
    assert verdict is not None and (verdict.status, verdict.max_abs_error) == ("confirmed", 0)


@pytest.mark.parametrize("source", ["chance", "(time.time() % 1)"])
def test_gradients_that_vary_by_themselves_are_not_judged(tmp_path: Path, source: str) -> None:
    outcome = fix(tmp_path, UNSTEADY.replace("{source}", source))
    assert outcome.changes == () and outcome.verdict is None
    (finding,) = outcome.findings
    assert "vary from run to run by themselves" in finding.advice
    statuses = {trial.verdict.status for trial in finding.trials}
    assert "refuted" not in statuses
