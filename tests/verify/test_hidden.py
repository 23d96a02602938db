"""Writes that PyTorch does not notice, and loops that fill a buffer: found, mended and proved end to end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Outcome
from deinplace.verify import Driver, Options, mend

DATA = """
import torch
w = torch.ones(3, requires_grad=True)
x = w * 2
y = x * x
x.data.mul_(0.5)
y.sum().backward()
"""

CLIPPING = """
import torch
from torch import nn
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.RMSprop(critic.parameters(), lr=0.01)
for step in range(2):
    loss = critic(torch.randn(5, 3)).mean()
    for p in critic.parameters():
        p.data.clamp_(-0.1, 0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

AVERAGE = """
import torch
from torch import nn
torch.manual_seed(0)
net, slow = nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    x = torch.randn(4, 3)
    loss = (torch.tanh(slow(net(x))) - net(x)).pow(2).mean()
    for p, q in zip(net.parameters(), slow.parameters()):
        q.data.mul_(0.9).add_(p.data, alpha=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

BUFFER = """
import torch
from torch import nn
torch.manual_seed(0)

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean.data.copy_(0.9 * self.mean + 0.1 * x.detach().mean(0))
        return x * (self.scale * self.mean)

net = Norm()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    opt.zero_grad()
    loss = (net(torch.randn(4, 3)) + net(torch.randn(4, 3))).sum()
    loss.backward()
    opt.step()
"""

NUMPY = """
import torch
w = torch.ones(3, requires_grad=True)
x = w * 2
y = x.exp()
y.detach().numpy()[0] = 5.0
y.sum().backward()
"""

RECURRENCE = """
import torch
torch.manual_seed(0)
w = torch.randn(3, 3, requires_grad=True)
out = torch.zeros(2, 5, 3)
for t in range(1, 5):
    out[:, t] = torch.tanh(out[:, t - 1] @ w + 1)
loss = out.sum()
loss.backward()
"""


def fix(folder: Path, text: str, paranoid: bool = False) -> Outcome:
    path = folder / "train.py"
    path.write_text(text.lstrip(), encoding="utf-8")
    source = Source.parse(str(path), path.read_bytes())
    driver = Driver((sys.executable, "train.py"), str(folder), timeout=120, paranoid=paranoid)
    return mend(driver, {str(path): source}, Options(), lambda _: None)


HIDDEN = {
    "data": (DATA, "x = x.clone()\nx.data.mul_(0.5)", (4, 5)),
    "weight clipping": (CLIPPING, "p.data = p.data.clamp(-0.1, 0.1)", (7, 9)),
    "moving average": (AVERAGE, "q.data = q.data.mul(0.9).add(p.data, alpha=0.1)", (8, 10)),
    "buffer": (BUFFER, "self.mean = self.mean.clone()\n", (13, 12)),
}


ALIKE = ("moving average", "buffer")
"""Mended in the same way as others."""


@pytest.mark.parametrize(
    ("text", "expected", "ends"),
    [pytest.param(*c, id=i, marks=[pytest.mark.slow] if i in ALIKE else []) for i, c in HIDDEN.items()],
)
def test_a_write_through_data(tmp_path: Path, text: str, expected: str, ends: tuple[int, int]) -> None:
    outcome = fix(tmp_path, text)
    assert expected in outcome.changes[0].after
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    finding = outcome.findings[0]
    assert finding.conflict is not None and finding.conflict.kind == "hidden"
    places = (finding.conflict.save.place, finding.conflict.write.place)
    assert tuple(p.span.line for p in places if p is not None) == ends
    assert "PyTorch does not notice" in finding.message


def test_a_write_through_numpy_needs_a_paranoid_run(tmp_path: Path) -> None:
    assert fix(tmp_path, NUMPY).findings == ()
    outcome = fix(tmp_path, NUMPY, paranoid=True)
    assert "y = x.exp().clone()" in outcome.changes[0].after
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"


def test_a_buffer_that_a_loop_fills_becomes_a_list_of_rows(tmp_path: Path) -> None:
    outcome = fix(tmp_path, RECURRENCE)
    after = outcome.changes[0].after
    assert "out = list(torch.zeros(2, 5, 3).unbind(1))" in after and "out = torch.stack(out, dim=1)" in after
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
