"""Programs that leave things to chance: what can be fixed is fixed, and what cannot be compared is never judged."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from deinplace.verify.trial import orders_by_address

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
    y = torch.exp(w * chance * (time.time() % 1))
    y += 1
    y.sum().backward()
    optimizer.step()
"""


SET_OF_PARAMETERS = """
import torch
from torch import nn

torch.manual_seed(0)
layers = {nn.Linear(n, n) for n in range(2, 8)}           # by the addresses of the layers
weights = list({p for layer in layers for p in layer.parameters()})
optimizer = torch.optim.SGD(weights, lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    loss = torch.zeros(())
    for layer in layers:
        y = torch.sigmoid(layer(nn.functional.dropout(torch.ones(layer.in_features))))
        y += torch.rand(())
        loss = loss + y.sum()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_an_order_that_hangs_on_addresses_refutes_nothing(tmp_path: Path) -> None:
    outcome = fix(tmp_path, SET_OF_PARAMETERS)
    statuses = {trial.verdict.status for finding in outcome.findings for trial in finding.trials}
    assert "refuted" not in statuses
    if outcome.verdict is None:  # else memory came out alike each time
        assert all("vary from run to run by themselves" in finding.advice for finding in outcome.findings)


def test_what_orders_by_address_is_known() -> None:
    for code in ("x = {a, b}", "x = {a for a in b}", "x = set(a)", "x = weakref.WeakSet()", "x = id(a) % 7"):
        assert orders_by_address(ast.parse(code)), code
    assert not orders_by_address(ast.parse("x = {a: b}\ny = offset(a)\nz = [a]"))


@pytest.mark.slow
def test_every_source_that_has_a_seed_is_seeded(tmp_path: Path) -> None:
    outcome = fix(tmp_path, SEEDED_FOR_THEM)
    assert [line.partition("#")[0] for line in lines(outcome)] == [
        'z = z + (len(words[0]) + words.index("word 3") + numpy.random.rand())'
    ]
    verdict = outcome.verdict
    assert verdict is not None and (verdict.status, verdict.max_abs_error) == ("confirmed", 0)


@pytest.mark.slow
def test_gradients_that_vary_by_themselves_are_not_judged(tmp_path: Path) -> None:
    outcome = fix(tmp_path, UNSTEADY)
    assert outcome.changes == () and outcome.verdict is None
    (finding,) = outcome.findings
    assert "vary from run to run by themselves" in finding.advice
    statuses = {trial.verdict.status for trial in finding.trials}
    assert "refuted" not in statuses
