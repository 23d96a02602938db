"""What rewrites cost: counted by the probe, and the cheaper of two that hold."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from deinplace.model import Edit, Memory, Rewrite
from deinplace.verify.cost import ALTERNATIVES, LEAST, Thrift, Usage, memory, usage
from deinplace.verify.drivers import Driver, Laboratory, Settings

from .test_mend import fix, lines

MIB = 1 << 20

CHAIN = """
    import torch
    x = torch.zeros(512, 512, requires_grad=True)  # 1 MiB
    for step in range(2):
        x.grad = None
        y = x.exp()
        y = y.exp()                                # both results are kept, one of them by the graph alone
        loss = y.sum()
        del y
        loss.backward()
"""


@pytest.mark.parametrize("watch", [False, True])
def test_peak_and_what_the_graph_keeps_are_exact(tmp_path: Path, watch: bool) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(CHAIN))
    with Laboratory() as lab:
        driver = Driver((sys.executable, "program.py"), str(tmp_path), timeout=120)
        found = usage(lab.run(driver, Settings(watch=watch, record=True)))
    assert found is not None
    assert (found.kept, found.watched, found.seconds) == (2 * MIB, watch, None)
    # x, both results, and the product of the last one with the gradient; a few bytes for the loss and its gradient
    assert 4 * MIB <= found.peak <= 4 * MIB + 64


BIG_WRITE = """
import torch
from torch import nn

torch.manual_seed(0)
scale = nn.Parameter(torch.randn(512))
optimizer = torch.optim.SGD([scale], lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    buffer = torch.zeros(4096, 512)
    used = buffer[0] * scale
    buffer[1] = 1.0
    loss = used.sum() + buffer.sum()
    loss.backward()
    optimizer.step()
    del buffer, used, loss
"""


def test_the_cheaper_of_two_that_hold_is_chosen(tmp_path: Path) -> None:
    outcome = fix(tmp_path, BIG_WRITE)
    assert lines(outcome) == ["used = buffer[0].clone() * scale"]
    assert outcome.memory is not None and outcome.memory.rewrites == 1
    assert all(finding.memory is not None for finding in outcome.findings)
    assert outcome.memory.bytes_after - outcome.memory.bytes_before < MIB, "a row is copied, not the whole buffer"
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"


def rewrite(title: str, costly: bool = False) -> Rewrite:
    return Rewrite("DIP101", title, (Edit("a.py", 0, 1, title),), "safe", 1, "a.py", costly=costly)


PLAIN, CHEAP, CHEAPEST, SLOW = (rewrite(t, t == "slow") for t in ("plain", "cheap", "cheapest", "slow"))
PEAKS = {PLAIN: 30 * MIB, CHEAP: 22 * MIB, CHEAPEST: 20 * MIB, SLOW: 20 * MIB}


def used(peak: int) -> Usage:
    return Usage(peak, 0, None, False)


@pytest.mark.parametrize(
    ("others", "before", "best", "runs"),
    [
        ((CHEAP, CHEAPEST), 20, CHEAPEST, 2),
        ((SLOW,), 20, PLAIN, 0),
        ((CHEAP,), 29.5, PLAIN, 0),
        ((CHEAPEST, CHEAP), 20, CHEAPEST, 1),
        ((CHEAP,) * 9, 2, CHEAP, ALTERNATIVES),
        ((), 20, PLAIN, 0),
    ],
)
def test_alternatives_are_tried_only_where_much_is_at_stake(
    others: tuple[Rewrite, ...], before: float, best: Rewrite, runs: int
) -> None:
    tried: list[Rewrite] = []

    def run(other: Rewrite) -> Usage | None:
        tried.append(other)
        return used(PEAKS[other])

    thrift = Thrift(used(int(before * MIB)))
    assert thrift.cheaper(PLAIN, used(PEAKS[PLAIN]), others, run) == best
    assert len(tried) == runs


def test_an_alternative_that_does_not_hold_is_not_chosen() -> None:
    assert Thrift(used(MIB)).cheaper(PLAIN, used(PEAKS[PLAIN]), (CHEAP,), lambda _: None) == PLAIN
    assert Thrift(None).cheaper(PLAIN, used(PEAKS[PLAIN]), (CHEAP,), lambda r: used(PEAKS[r])) == PLAIN


def test_times_are_compared_only_where_both_runs_were_alike() -> None:
    slow, fast = Usage(2 * LEAST, 1, 0.5, True), Usage(3 * LEAST, 2, 0.1, False)
    assert memory(slow, fast) == Memory(2 * LEAST, 3 * LEAST, 1, 2)
    assert memory(slow, slow, 2) == Memory(2 * LEAST, 2 * LEAST, 1, 1, 2, 0.5, 0.5)
    assert memory(None, fast) is None
