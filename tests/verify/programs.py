"""Small failing programs, each of one kind, with what has to come out."""

from __future__ import annotations

RESIDUAL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        y += x
        return y

torch.manual_seed(1)
net = nn.Sequential(Block(), Block(), nn.Flatten(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    total = torch.zeros(1)
    total += net(torch.randn(3, 2, 4)).pow(2).mean()
    total.backward()
    optimizer.step()
"""

VOID_HELPER = """
import torch

def add_position(h, table):
    h.add_(table)

w = torch.randn(3, requires_grad=True)
table = torch.randn(3, requires_grad=True)
h = torch.exp(w)
add_position(h, table)
loss = (h * h).sum()
loss.backward()
"""

ARGUMENT_CHANGED = """
import torch

def head(token, place):
    token += place
    return token.pow(2).sum()

w = torch.randn(3, requires_grad=True)
place = torch.randn(3)
token = torch.sigmoid(w)
loss = head(token, place) + head(token, place)
loss.backward()
"""

TWO_NAMES = """
import torch
a = torch.randn(3, requires_grad=True)
b = a * 2
d = b.exp_()
d *= 5
b.sum().backward()
"""

CONTAINER = """
import torch
w = torch.randn(2, 3, requires_grad=True)
heads = {name: torch.sigmoid(row * 2) for name, row in zip("ab", w)}
for value in heads.values():
    value /= value.sum()
loss = sum((v + 1).log().sum() for v in heads.values())
loss.backward()
"""

TWO_OPTIMIZERS = """
import torch
from torch import nn
torch.manual_seed(0)
gen, dis = nn.Linear(2, 2), nn.Linear(2, 1)
opt_g = torch.optim.SGD(gen.parameters(), lr=0.1)
opt_d = torch.optim.SGD(dis.parameters(), lr=0.1)
for step in range(2):
    fake = gen(torch.randn(4, 2))
    loss_d = dis(fake.detach()).pow(2).mean()
    loss_g = -torch.tanh(dis(fake)).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
"""

CLOCK = """
import time, torch
w = torch.randn(3, requires_grad=True)
started = time.time()
y = torch.relu(w * 2)
y += 1
y.sum().backward()
took = time.time() - started
noise = torch.full((3,), time.time() % 1)
"""

LEAF_UPDATE = """
import torch
w = torch.ones(3, requires_grad=True)
for step in range(2):
    loss = (w * w).sum()
    loss.backward()
    w -= 0.1 * w.grad
    w.grad = None
"""

LEAF_ACTIVATION = """
import torch

def centred(x):
    x -= 0.5
    return x * x

x = torch.rand(4, requires_grad=True)
loss = centred(x).sum()
loss.backward()
"""

SPLIT = """
import torch
w = torch.randn(2, 4, requires_grad=True)
gates = w * 2
value, gate = gates.chunk(2, dim=-1)
gate.sigmoid_()
loss = (value * gate).sum() + gates.abs().mean()
loss.backward()
"""
