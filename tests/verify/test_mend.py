"""`fix` with a driver, end to end on real programs: what is changed, what is left, and what is proved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Outcome
from deinplace.verify import Driver, DriverError, Options, mend

from . import programs

CARRIED = """
import torch
from torch import nn

torch.manual_seed(0)
cell = nn.RNN(2, 3, batch_first=True)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
h = torch.zeros(1, 2, 3)
for _ in range(3):
    out, h = cell(torch.randn(2, 3, 2), h)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
"""


CELL = """
import torch

torch.manual_seed(0)
wx, wh = torch.randn(2, 2, requires_grad=True), torch.randn(2, 2, requires_grad=True)
h = torch.zeros(1, 2)
for x in torch.randn(3, 1, 2):
    h = torch.tanh(x @ wx + h @ wh)
    h.sum().backward(retain_graph=True)
    with torch.no_grad():
        wh -= 0.1 * wh.grad
"""
"""A clone of `wh` would be proved right: gradients of all rounds so far, by the weights that each of them had."""
COUPLING = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(2, 4)


def coupling(x):
    a, b = x.chunk(2, dim=1)
    s, t = net(a).chunk(2, dim=1)
    s.tanh_()
    b *= s.exp()
    b += t
    return torch.cat([b, a], 1), s.sum(1)


z, scale = coupling(torch.randn(3, 4))
(z.pow(2).sum(1) - scale).mean().backward()
"""
"""Once `b` is written, autograd refuses its sibling `a`, which `cat` is given in a list."""


def fix(folder: Path, text: str, options: Options | None = None, command: tuple[str, ...] = ()) -> Outcome:
    """Mend `text` as train.py; the file itself must stay as it was."""
    path = folder / "train.py"
    path.write_text(text.lstrip(), encoding="utf-8")
    source = Source.parse(str(path), path.read_bytes())
    driver = Driver(command or (sys.executable, "train.py"), str(folder), timeout=120)
    outcome = mend(driver, {str(path): source}, options or Options(), lambda _: None)
    assert path.read_bytes() == source.data
    return outcome


def lines(outcome: Outcome) -> list[str]:
    """The new lines of a patch, stripped."""
    (change,) = outcome.changes
    before = change.before.splitlines()
    return [line.strip() for line in change.after.splitlines() if line not in before]


def runs(folder: Path, outcome: Outcome) -> None:
    """The patched program runs to its end by itself."""
    (folder / "patched.py").write_text(outcome.changes[0].after, encoding="utf-8")
    done = subprocess.run([sys.executable, "patched.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SUBCLASS = """
import torch

x = torch.ones(3, requires_grad=True)
class Sub(torch.Tensor): pass
y = x.exp()
y += 1
y.sum().backward()
"""
"""A name of the main module is a class of tensors: it has no storage, and asking it raises a TypeError."""
MENDED = {
    "class of tensors": (SUBCLASS, ["y = y + 1"]),
    "residual": (programs.RESIDUAL, ["y = y + x"]),
    "both names are rebound": (programs.TWO_NAMES, ["d = b = d * 5"]),
    "the clock is no difference": (programs.CLOCK, ["y = y + 1"]),
    "out of place on a leaf that is an input": (programs.LEAF_ACTIVATION, ["x = x - 0.5"]),
}


@pytest.mark.parametrize(("text", "expected"), MENDED.values(), ids=MENDED.keys())
def test_makes_the_smallest_change_and_proves_it(tmp_path: Path, text: str, expected: list[str]) -> None:
    outcome = fix(tmp_path, text)
    assert lines(outcome) == expected
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    assert outcome.verdict.max_abs_error == 0 and outcome.verdict.compared > 0
    runs(tmp_path, outcome)


PROVED = {
    "a helper that returns nothing": programs.VOID_HELPER,
    "a loop over a dict's values": programs.CONTAINER,
    "a step before a backward": programs.TWO_OPTIMIZERS,
    "an update of a leaf": programs.LEAF_UPDATE,
    "a part of a split tensor": programs.SPLIT,
    "parts of two tensors": COUPLING,
}


@pytest.mark.parametrize("text", PROVED.values(), ids=PROVED.keys())
def test_finds_a_rewrite_that_others_still_see(tmp_path: Path, text: str) -> None:
    outcome = fix(tmp_path, text)
    assert [f.state for f in outcome.findings] == ["fixable"] * len(outcome.findings)
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    runs(tmp_path, outcome)


def test_does_not_choose_where_meaning_and_intent_may_differ(tmp_path: Path) -> None:
    outcome = fix(tmp_path, programs.ARGUMENT_CHANGED)
    assert outcome.changes == ()
    assert {(f.state, f.reason) for f in outcome.findings} == {("advised", "meaning-differs")}
    assert {f.span.line for f in outcome.findings} == {4}


def test_unsafe_takes_the_intended_meaning(tmp_path: Path) -> None:
    outcome = fix(tmp_path, programs.ARGUMENT_CHANGED, Options(unsafe=True))
    assert lines(outcome) == ["token = token + place"]
    runs(tmp_path, outcome)


@pytest.mark.parametrize("text", [CARRIED, CELL], ids=["module", "leaves"])
def test_what_only_unsafe_tries_is_offered_where_all_else_is_refuted(tmp_path: Path, text: str) -> None:
    outcome = fix(tmp_path, text)
    (finding,) = outcome.findings
    assert (finding.state, finding.reason, outcome.changes) == ("unsafe", "changes-meaning", ())
    assert finding.rewrite is not None and any("h.detach()" in edit.new for edit in finding.rewrite.edits)
    assert finding.verdict is None and finding.rewrite not in [trial.rewrite for trial in finding.trials]


def test_a_clean_program_is_left_alone(tmp_path: Path) -> None:
    outcome = fix(tmp_path, programs.RESIDUAL.replace("y += x", "y = y + x"))
    assert (outcome.findings, outcome.changes) == ((), ())


def test_a_rule_that_is_not_selected_does_nothing(tmp_path: Path) -> None:
    outcome = fix(tmp_path, programs.RESIDUAL, Options(select=frozenset({"DIP106"})))
    assert outcome.changes == () and {f.state for f in outcome.findings} == {"advised"}


def test_the_run_budget_holds(tmp_path: Path) -> None:
    outcome = fix(tmp_path, programs.CONTAINER, Options(max_runs=2))
    assert outcome.runs == 2 and outcome.changes == ()


REFUSED = {
    "another reason": ("import torch\nraise KeyError('sample')\n", "another reason"),
    "no torch": ("print(1)\n", "never imports torch"),
    "no backward": ("import torch\nprint(torch.ones(1))\n", "never reaches a backward"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_program_that_cannot_prove_anything(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DriverError, match=words):
        fix(tmp_path, text)


def test_a_module_reached_through_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "block.py").write_text("import torch\n\ndef f(x):\n    y = torch.exp(x)\n    y += 1\n    return y\n")
    (tmp_path / "block.py").symlink_to(folder / "block.py")
    (tmp_path / "train.py").write_text(
        "import torch\nfrom block import f\nw = torch.ones(2, requires_grad=True)\nf(w).sum().backward()\n"
    )
    path = folder / "block.py"
    source = Source.parse(str(path), path.read_bytes())
    driver = Driver((sys.executable, "train.py"), str(tmp_path), timeout=120)
    outcome = mend(driver, {str(path): source}, Options(), lambda _: None)
    assert lines(outcome) == ["y = y + 1"]
