"""Small programs that the command is run on."""

from __future__ import annotations

FAILING = """\
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
batch = torch.ones(2, 4)


def forward(x):
    y = torch.relu(net(x))
    y += x  # overwrites what relu kept
    return y


for step in range(2):
    loss = forward(batch).sum()
    net.zero_grad()
    loss.backward()
    print("step", step)
print("done")
"""
"""No optimizer: making one imports PyTorch's compiler, which takes longer than all the rest of these programs."""

TRAINING = (
    FAILING.replace("batch = torch.ones(2, 4)", "opt = torch.optim.SGD(net.parameters(), lr=0.1)")
    .replace("batch", "torch.ones(2, 4)")
    .replace("    print(", "    opt.step()\n    print(")
)

FIXED_LINE = "    y = y + x  # overwrites what relu kept\n"

CLEAN = """\
import sys
import torch

w = torch.ones(3, requires_grad=True)
(w * 2).sum().backward()
print("arguments", sys.argv[1:], "stdin", sys.stdin.read())
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""

OTHER_ERROR = """\
import torch

w = torch.ones(3, requires_grad=True)


def broken():
    raise KeyError("no such sample")


(w * 2).sum().backward()
broken()
"""

NO_BACKWARD = """\
import torch

x = torch.ones(3)
x += 1
print(x.sum())
"""

ENDLESS = """\
import time
import torch

w = torch.ones(3, requires_grad=True)
while True:
    y = w.exp()
    y += 1
    y.sum().backward()
    open("started", "w").close()
    time.sleep(0.05)
"""

NET = """\
import torch


def forward(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    y += x
    return y


x = torch.ones(3, requires_grad=True)
forward(x).sum().backward()
"""
"""A file that the source alone mends: a saved output is overwritten, and nobody else sees the write."""
NET_FIXED = NET.replace("y += x", "y = y + x")
