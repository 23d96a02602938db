"""State carried over steps: the cut is where it changes nothing within a round, and says that it changes gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from deinplace.model import Rewrite
from deinplace.rules.carried_state import CarriedState

RULE = CarriedState()
Make = Callable[[str], Any]

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
xs, ys = torch.randn(4, 5, 3), torch.randn(4, 5, 2)


class Net(nn.Module):
    def __init__(self, cell=nn.RNNCell):
        super().__init__()
        self.cell = cell(3, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.out(h[0] if isinstance(h, tuple) else h), h


"""
RNN = (
    HEAD
    + """
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
h = torch.zeros(5, 4)
for x, y in zip(xs, ys):
    out, h = net(x, h)  # <- save
    loss = F.mse_loss(out, y)
    opt.zero_grad()
    loss.backward(KEEP)  # <- backward
    opt.step()  # <- write
    log = loss.item()
"""
)
LSTM = (
    HEAD
    + """
net = Net(nn.LSTMCell)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
h = (torch.zeros(5, 4), torch.zeros(5, 4))
for x, y in zip(xs, ys):
    out, h = net(x, h)
    loss = F.mse_loss(out, y)
    opt.zero_grad()
    loss.backward(KEEP)
    opt.step()
"""
)
PAIR = LSTM.replace("out, h = net(x, h)", "out, (h, c) = net(x, (h, c))").replace(
    "h = (torch.zeros(5, 4), torch.zeros(5, 4))", "h = torch.zeros(5, 4)\nc = torch.zeros(5, 4)"
)
PREVIOUS = (
    HEAD
    + """
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
last = None
for x, y in zip(xs, ys):
    out = net(x).tanh()
    loss = F.mse_loss(out, y)
    if last is not None:
        loss = loss + (out - last).pow(2).mean()
    opt.zero_grad()
    loss.backward(KEEP)
    opt.step()
    last = out
"""
)
EVERY_SECOND = (
    HEAD
    + """
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
h, loss = torch.zeros(5, 4), 0
for i, (x, y) in enumerate(zip(xs, ys)):
    out, h = net(x, h)
    loss = loss + F.mse_loss(out, y)
    if i % 2 == 1:
        opt.zero_grad()
        loss.backward(KEEP)
        opt.step()
        loss = 0
"""
)
HELPER = (
    HEAD
    + """
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def learn(loss):
    opt.zero_grad()
    loss.backward(KEEP)
    opt.step()


h = None
for x, y in zip(xs, ys):
    out, h = net(x, h)
    learn(F.mse_loss(out, y))
"""
)
ATTRIBUTE = (
    HEAD
    + """
class Keeper(Net):
    def __init__(self):
        super().__init__()
        self.h = None

    def forward(self, x):
        out, self.h = super().forward(x, self.h)
        return out


net = Keeper()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in zip(xs, ys):
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward(KEEP)
    opt.step()
"""
)
SUM = (
    HEAD
    + """
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
total = torch.zeros(())
for x, y in zip(xs, ys):
    opt.zero_grad()
    loss = F.mse_loss(net(x).tanh(), y)
    total += loss
    total.backward(KEEP)
    opt.step()
"""
)
CUTS = {
    "hidden": (RNN, "opt.step()  # <- write\n", "opt.step()\n    h = h.detach()\n"),
    "lstm-state": (LSTM, "opt.step()\n", "opt.step()\n    h = tuple(t.detach() for t in h)\n"),
    "two-names": (PAIR, "opt.step()\n", "opt.step()\n    h, c = h.detach(), c.detach()\n"),
    "previous-output": (PREVIOUS, "last = out\n", "last = out.detach()\n"),
    "every-second-round": (EVERY_SECOND, "opt.step()\n", "opt.step()\n        h = h.detach()\n"),
    "backward-in-a-helper": (HELPER, "learn(F.mse_loss(out, y))\n", "learn(F.mse_loss(out, y))\n    h = h.detach()\n"),
    "attribute": (
        ATTRIBUTE,
        "        return out\n\n\nnet",
        "        self.h = self.h.detach()\n        return out\n\n\nnet",
    ),
    "running-loss": (SUM, "total += loss\n", "total = total.detach() + loss\n"),
}


def offers(before: Any, incident: Any) -> list[Rewrite]:
    site = RULE.claim(incident, before.project)
    assert site is not None
    assert f"line {site.span.line} keeps `{site.target}`" in RULE.advice(site, before.project, incident)
    return list(RULE.rewrites(site, before.project, incident))


@pytest.mark.parametrize("name", CUTS)
def test_second_time_through_a_graph(program: Make, name: str) -> None:
    code, old, new = CUTS[name]
    before = program(code.replace("KEEP", ""))
    incident = before.failure()
    assert incident.raised.category == "second-backward"
    rewrite = offers(before, incident)[0]
    assert rewrite.applicability == "unsafe"
    assert "changes gradients on purpose" in rewrite.note
    wanted = program(code.replace("KEEP", "").replace(old, new, 1) if old in code else "")
    torch.testing.assert_close(before.apply(rewrite).steps(), wanted.steps(), rtol=0, atol=0)


def test_retained_graph_is_let_go(program: Make) -> None:
    before = program(RNN.replace("KEEP", "retain_graph=True"))
    assert before.failure().raised.category == "version"
    (rewrite,) = offers(before, before.conflict("save", "write", "backward"))
    after = before.apply(rewrite)
    assert "loss.backward()  # <- backward" in after.code
    wanted = program(RNN.replace("KEEP", "").replace("opt.step()  # <- write\n", "opt.step()\n    h = h.detach()\n"))
    torch.testing.assert_close(after.steps(), wanted.steps(), rtol=0, atol=0)


def test_two_losses_of_one_round_share_a_graph(program: Make) -> None:
    """Nothing is carried: keeping the graph is what the code means, and is safe."""
    code = (
        HEAD
        + """
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in zip(xs, ys):
    opt.zero_grad()
    out = net(x)
    F.mse_loss(out, y).backward()
    out.pow(2).mean().backward()
    opt.step()
"""
    )
    before = program(code)
    rewrite = offers(before, before.failure())[0]
    assert rewrite.applicability == "safe"
    wanted = program(code.replace("F.mse_loss(out, y).backward()", "F.mse_loss(out, y).backward(retain_graph=True)"))
    torch.testing.assert_close(before.apply(rewrite).steps(), wanted.steps(), rtol=0, atol=0)


def belongs_into_the_loop(program: Make, code: str, line: str) -> None:
    """A line is offered inside the loop in front of which it stands, and cut off; both change gradients."""
    before = program(code)
    inside, cut = offers(before, before.failure())
    assert {inside.applicability, cut.applicability} == {"unsafe"}
    moved = code.replace(line, "").replace("    loss = F", f"    {line}    loss = F")
    torch.testing.assert_close(before.apply(inside).steps(), program(moved).steps(), rtol=0, atol=0)
    before.apply(cut).run()


def test_a_graph_built_once_in_front_of_the_loop(program: Make) -> None:
    code = (
        HEAD
        + """
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
head = nn.Linear(4, 2)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
features = net(xs[0])
for y in ys:
    loss = F.mse_loss(head(features), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    )
    belongs_into_the_loop(program, code, "features = net(xs[0])\n")


BY_HAND = """
import torch

torch.manual_seed(0)
wx = torch.randn(2, 2, requires_grad=True)
wh = torch.randn(2, 2, requires_grad=True)
h = torch.zeros(1, 2)
for x in torch.randn(3, 1, 2):
    h = torch.tanh(x @ wx + h @ wh)  # <- save
    loss = h.pow(2).sum()
    loss.backward(KEEP)  # <- backward
    with torch.no_grad():
        for w in (wx, wh):
            w -= 0.1 * w.grad  # <- write
            w.grad = None
"""


@pytest.mark.parametrize("keep", ["", "retain_graph=True"])
def test_a_cell_of_bare_leaves_that_are_updated_by_hand(program: Make, keep: str) -> None:
    before = program(BY_HAND.replace("KEEP", keep))
    failure = before.failure()
    incident = before.conflict("save", "write", "backward") if keep else failure
    (rewrite,) = offers(before, incident)
    assert (rewrite.applicability, "detach `h`" in rewrite.title) == ("unsafe", True)
    after = before.apply(rewrite)
    wanted = BY_HAND.replace("KEEP", "").replace(
        "loss.backward()  # <- backward\n", "loss.backward()\n    h = h.detach()\n"
    )
    for name in ("wx", "wh"):
        torch.testing.assert_close(after.run()[name], program(wanted).run()[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    "built", ["0.1 * (net.weight ** 2).sum()", "sum(p.pow(2).sum() for p in net.parameters()) * 0.1"]
)
def test_a_penalty_computed_once_in_front_of_the_loop(program: Make, built: str) -> None:
    code = (
        HEAD
        + f"""
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
penalty = {built}
for x, y in zip(xs, ys):
    loss = F.mse_loss(net(x), y) + penalty
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    )
    belongs_into_the_loop(program, code, f"penalty = {built}\n")


def test_silent_on_errors_of_other_kinds(program: Make) -> None:
    before = program("import torch\n\nw = torch.ones(2, requires_grad=True)\nw += 1\n")
    assert RULE.claim(before.failure(), before.project) is None


def test_static_find(program: Make) -> None:
    assert [s.target for s in RULE.find(program(RNN.replace("KEEP", "retain_graph=True")).source)] == ["h"]
    assert list(RULE.find(program(RNN.replace("KEEP", "")).source)) == []
