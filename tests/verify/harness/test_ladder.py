"""`fix` without a command: what it finds to run, what it mends by it, and what it leaves alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Outcome
from deinplace.verify import Asked, Options, mend_unasked

TRAIN = """import torch

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
for step in range(2):
    y = torch.sigmoid(w)
    {write}
    loss = (y * y).sum()
    open("log.txt", "a").write(f"{{loss}}")
    loss.backward()
"""
NET = '''import torch
from torch import nn


class Net(nn.Module):
    """A net.

    >>> net = Net(4)
    >>> net(torch.randn(2, 4)).shape
    torch.Size([2, 4])
    """

    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = torch.sigmoid(self.fc(x))
        y += x
        return y
'''
TEST = """import torch
from net import Net


def test_net():
    out = Net(4)(torch.randn(2, 4))
    out.sum().backward()
"""


@pytest.fixture(autouse=True)
def _python_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def mended(folder: Path, options: Options | None = None, require: bool = False, **texts: str) -> Outcome:
    sources = {}
    for name, text in texts.items():
        path = folder / f"{name}.py"
        path.write_text(text)
        sources[str(path)] = Source.parse(str(path), text.encode())
    asked = Asked(str(folder), sys.executable, require=require)
    return mend_unasked(sources, options or Options(), asked, lambda _: None)


def test_a_program_that_fails_is_run_mended_and_confirmed(tmp_path: Path) -> None:
    outcome = mended(tmp_path, train=TRAIN.format(write="y += 1"))
    (change,) = outcome.changes
    assert (change.path, change.after) == (str(tmp_path / "train.py"), TRAIN.format(write="y = y + 1"))
    (finding,) = outcome.findings
    assert (finding.path, finding.span.line, finding.state) == (str(tmp_path / "train.py"), 7, "fixable")
    assert outcome.verdict is not None
    assert (outcome.verdict.status, outcome.verdict.driver) == ("confirmed", "python train.py")
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]


def test_a_program_that_works_is_left_alone(tmp_path: Path) -> None:
    outcome = mended(tmp_path, train=TRAIN.format(write="y = y + 1"))
    assert (outcome.changes, outcome.findings, outcome.notes) == ((), (), ())
    assert outcome.driver == "python train.py"


def test_all_sites_are_rewritten_as_far_as_the_program_sees_the_same(tmp_path: Path) -> None:
    text = TRAIN.format(write="y = y.clone()\n    y += 1")
    outcome = mended(tmp_path, Options(all_sites=True), train=text)
    (change,) = outcome.changes
    assert change.after == text.replace("y += 1", "y = y + 1")
    (finding,) = outcome.findings
    assert finding.verdict is not None
    assert (finding.severity, finding.verdict.status, finding.verdict.driver) == (
        "note",
        "confirmed",
        "python train.py",
    )
    assert finding.memory is not None and finding.memory.rewrites == 1
    assert finding.memory.bytes_after >= finding.memory.bytes_before > 0


def test_a_program_that_wants_arguments_gives_way_with_a_reason(tmp_path: Path) -> None:
    head = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('data')\nparser.parse_args()\n"
    text = head + TRAIN.format(write="y += 1")
    outcome = mended(tmp_path, train=text)
    (note,) = [n for n in outcome.notes if "python train.py" in n]
    assert note.startswith("harness python train.py: fails for another reason (exit 2): ")
    assert note.endswith("the following arguments are required: data")


def test_a_fault_that_no_program_reaches_is_shown_by_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_net.py").write_text(TEST)
    outcome = mended(tmp_path, net=NET)
    (change,) = outcome.changes
    assert change.after == NET.replace("y += x", "y = y + x")
    assert outcome.verdict is not None
    assert (outcome.verdict.status, outcome.verdict.driver) == ("confirmed", "pytest test_net.py")


FAILING = """
import pytest

@pytest.mark.parametrize("name", ["a - b", "c"])
def test_that_is_out_of_date(name):
    assert name == "c", "renamed"

def test_another():
    raise KeyError("gone")
"""


@pytest.mark.slow
def test_tests_that_fail_anyway_do_not_cost_the_others(tmp_path: Path) -> None:
    (tmp_path / "test_net.py").write_text(TEST + FAILING)
    outcome = mended(tmp_path, net=NET)
    (change,) = outcome.changes
    assert change.after == NET.replace("y += x", "y = y + x")
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert outcome.verdict.driver == "pytest test_net.py without 2 tests of it that fail anyway"


def test_a_fault_that_nothing_else_reaches_is_shown_by_an_example(tmp_path: Path) -> None:
    outcome = mended(tmp_path, net=NET, require=True)
    (change,) = outcome.changes
    assert change.after == NET.replace("y += x", "y = y + x")
    assert outcome.verdict is not None
    assert outcome.verdict.driver == "example in the docstring of Net, net.py"
    conflicts = [f.conflict for f in outcome.findings if f.conflict is not None]
    assert {p.path for c in conflicts for e in (c.save, *c.writes) for p in e.stack} == {str(tmp_path / "net.py")}
    assert [c.backward for c in conflicts] == [()]  # the harness itself is no file of the user's


def test_without_any_torch_the_source_alone_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (tmp_path / "bare").chmod(0o755)
    path = tmp_path / "net.py"
    sources = {str(path): Source.parse(str(path), NET.encode())}
    outcome = mend_unasked(sources, Options(), Asked(str(tmp_path), str(tmp_path / "bare")), lambda _: None)
    assert len(outcome.changes) == 1
    assert outcome.verdict is None
    assert f"no harness was run: {tmp_path / 'bare'} has no torch" in outcome.notes


PAIR = """import sys

import torch
from torch import nn


class Calm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.fc(x)
        y *= 3
        return y


class Moody(Calm):
    def forward(self, x):
        if hasattr(sys.modules["__main__"], "test_moody"):
            raise RuntimeError("not as a program")
        y = self.fc(x)
        y *= 2
        return y
"""


def test_a_call_that_fails_does_not_cost_those_of_the_same_text(tmp_path: Path) -> None:
    outcome = mended(tmp_path, Options(all_sites=True), nets=PAIR)
    states = {f.span.line: f.verdict.status for f in outcome.findings if f.verdict is not None}
    assert states == {14: "confirmed", 23: "unconfirmed"}
    (note,) = [n for n in outcome.notes if n.startswith("harness ")]
    assert note.startswith("harness nets.py: Moody: ") and "not as a program" in note


def test_an_analysis_that_takes_too_long_is_ended_and_told(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"nets{n}.py") for n in range(60)]  # one would be through before the alarm rings
    sources = {path: Source.parse(path, PAIR.encode()) for path in paths}
    asked = Asked(str(tmp_path), sys.executable, timeout=0.001)
    outcome = mend_unasked(sources, Options(all_sites=True), asked, lambda _: None)
    assert any(note.startswith("the analysis of the files was ended after 0.005 s") for note in outcome.notes)
    assert not outcome.changes
