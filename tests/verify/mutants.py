"""For each rule a failing program, its right rewrite, and wrong ones by what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HEAD = """\
import torch
from torch import nn
torch.manual_seed(0)
a, b = nn.Linear(4, 4), nn.Linear(4, 4)
parameters = [*a.parameters(), *b.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
"""
LOOP = """\
for step in range(2):
    optimizer.zero_grad()
    x = torch.rand(3, 4)
{body}
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Program:
    """`text` with one place, `<HERE>`, for the failing code, the right code or a wrong one, indented as it stands."""

    text: str
    before: str
    right: str
    wrong: Mapping[str, str] = field(default_factory=dict)
    intent: str = ""
    """What a refused write at that place means."""

    def filled(self, code: str) -> str:
        """The whole program with `code` in the place."""
        line = next(line for line in self.text.splitlines() if "<HERE>" in line)
        indent = line[: line.index("<HERE>")]
        return self.text.replace(line, "\n".join(indent + part for part in code.splitlines()))

    @property
    def line(self) -> int:
        """The line of the place, from 1."""
        return next(i for i, line in enumerate(self.text.splitlines(), 1) if "<HERE>" in line)


def looped(*lines: str) -> str:
    return HEAD + LOOP.format(body="\n".join(f"    {line}" for line in lines))


PROGRAMS = {
    "DIP101": Program(
        HEAD + "act = <HERE>\n" + LOOP.format(body="    loss = (act(b(a(x).sigmoid())) * act(a(x).tanh())).sum()"),
        "nn.ReLU(inplace=True)",
        "nn.ReLU(inplace=False)",
        {
            "another layer": "nn.LeakyReLU(0.2)",
            "no layer": "nn.Identity()",
            "detach": "lambda v: nn.functional.relu(v.detach()) + 0 * v",
            "drop a term": "lambda v: nn.functional.relu(v) * 0 + v.relu().detach()",
            "a clone that writes the original": "lambda v: (v.data.relu_(), v.clone())[1]",
        },
    ),
    "DIP102": Program(
        looped("y = a(x).sigmoid()", "r = b(x)", "s = b(x * x)", "<HERE>", "loss = (y * y).sum()"),
        "y -= r * s + 1",
        "y = y - (r * s + 1)",
        {
            "precedence": "y = y - r * s + 1",
            "drop a term": "y = y - r * s",
            "drop the other term": "y = y - 1",
            "drop the target": "y = -(r * s + 1)",
            "swap operands": "y = (r * s + 1) - y",
            "detach": "y = y - (r * s + 1).detach()",
            "detach the target": "y = y.detach() - (r * s + 1)",
            "detach a factor": "y = y - (r.detach() * s + 1)",
            "sign": "y = y + (r * s + 1)",
            "another operator": "y = y / (r * s + 1)",
            "another name": "y = y - (r * r + 1)",
            "twice": "y = y - (r * s + 1) - (r * s + 1)",
            "not at all": "pass",
            "past autograd": "y.data -= r * s + 1",
            "no gradient": "with torch.no_grad():\n    y = y - (r * s + 1)",
        },
    ),
    "DIP103": Program(
        looped("y = a(x).exp()", "r = b(x)", "<HERE>", "loss = (y * y + y).sum()"),
        "y.mul_(r).sub_(x)",
        "y = y.mul(r).sub(x)",
        {
            "change order": "y = y.sub(x).mul(r)",
            "drop the last call": "y = y.mul(r)",
            "drop the first call": "y = y.sub(x)",
            "result thrown away": "y.mul(r).sub(x)",
            "swap operands": "y = x.sub(y.mul(r))",
            "detach": "y = y.mul(r.detach()).sub(x)",
            "another method": "y = y.div(r).sub(x)",
            "alpha": "y = y.mul(r).sub(x, alpha=2)",
        },
    ),
    "DIP104": Program(
        looped("y = a(x).sigmoid()", "z = b(y)", "<HERE>", "loss = (y * z).sum()"),
        "torch.relu_(y.sub_(0.5))",
        "y = torch.relu(y.sub(0.5))",
        {
            "another function": "y = torch.sigmoid(y.sub(0.5))",
            "drop the inner call": "y = torch.relu(y)",
            "drop the outer call": "y = y.sub(0.5)",
            "change order": "y = torch.relu(y).sub(0.5)",
            "detach": "y = torch.relu(y.detach().sub(0.5))",
            "result thrown away": "torch.relu(y.sub(0.5))",
            "bound to another name": "z = torch.relu(y.sub(0.5))",
        },
    ),
    "DIP105": Program(
        looped("y = a(x).tanh()", "r = b(x)", "<HERE>", "loss = (y * y).sum()"),
        "y[:, 1] *= r[:, 2]",
        "y = y.clone()\ny[:, 1] *= r[:, 2]",
        {
            "wrong index": "y = y.clone()\ny[:, 2] *= r[:, 2]",
            "wrong index on the right": "y = y.clone()\ny[:, 1] *= r[:, 1]",
            "wrong axis": "y = y.clone()\ny[1, :3] *= r[:, 2]",
            "one more column": "y = y.clone()\ny[:, 1:3] *= r[:, 2:3]",
            "detached clone": "y = y.detach().clone()\ny[:, 1] *= r[:, 2]",
            "clone under another name": "z = y.clone()\nz[:, 1] *= r[:, 2]",
            "assigned instead": "y = y.clone()\ny[:, 1] = r[:, 2]",
            "detach": "y = y.clone()\ny[:, 1] *= r[:, 2].detach()",
            "zeros instead of a clone": "y = torch.zeros_like(y)\ny[:, 1] *= r[:, 2]",
        },
    ),
    "DIP106": Program(
        looped("y = a(x).sigmoid()", "z = torch.empty(3, 4)", "r = b(x)", "<HERE>", "loss = (z * z + y).sum()"),
        "torch.sub(y, r, out=z)",
        "z = torch.sub(y, r)",
        {
            "swap operands": "z = torch.sub(r, y)",
            "another function": "z = torch.add(y, r)",
            "detach": "z = torch.sub(y, r.detach())",
            "bound to another name": "z = y\ny = torch.sub(y, r)",
            "copied past autograd": "z.data.copy_(torch.sub(y, r))",
        },
        "functional",
    ),
    "DIP107": Program(
        looped("y = a(x) * 2", "<HERE>", "y += b(x)", "loss = (s + y).sum()"),
        "s = y * y",
        "s = y.clone() * y.clone()",
        {
            "detached clone": "s = y.detach().clone() * y.clone()",
            "clone of another tensor": "s = x.clone() * y.clone()",
            "clone of a part": "s = y[:1].clone() * y.clone()",
            "empty clone": "s = torch.empty_like(y).fill_(1) * y.clone()",
            "clone after the write": "y += b(x)\ns = y.clone() * y.clone()\ny -= b(x)",
        },
    ),
    "DIP201": Program(
        HEAD
        + "first = torch.optim.SGD(a.parameters(), lr=0.1)\nsecond = torch.optim.SGD(b.parameters(), lr=0.1)\n"
        + "for step in range(2):\n    x = torch.rand(3, 4)\n    y = b(a(x).tanh())\n"
        + "    loss_b, loss_a = b(a(x).tanh().detach()).pow(2).sum(), -y.tanh().sum()\n    <HERE>\n",
        "second.zero_grad()\nloss_b.backward()\nsecond.step()\nfirst.zero_grad()\nloss_a.backward()\nfirst.step()",
        "second.zero_grad()\nloss_b.backward(inputs=list(b.parameters()))\nfirst.zero_grad()\n"
        "loss_a.backward(inputs=list(a.parameters()))\nsecond.step()\nfirst.step()",
        {
            "gradients mixed": "second.zero_grad()\nfirst.zero_grad()\nloss_b.backward()\nloss_a.backward()\n"
            "second.step()\nfirst.step()",
            "a step left out": "second.zero_grad()\nloss_b.backward()\nfirst.zero_grad()\nloss_a.backward()\n"
            "first.step()",
            "detach": "second.zero_grad()\nloss_b.backward()\nsecond.step()\nfirst.zero_grad()\n"
            "b(a(x).detach().tanh()).sum().backward()\nfirst.step()",
            "forward again, after the step": "second.zero_grad()\nloss_b.backward()\nsecond.step()\nfirst.zero_grad()\n"
            "(-b(a(x).tanh()).tanh().sum()).backward()\nfirst.step()",
            "one zero_grad left out": "second.zero_grad()\nloss_b.backward(inputs=list(b.parameters()))\n"
            "loss_a.backward(inputs=list(a.parameters()))\nsecond.step()\nfirst.step()",
        },
    ),
    "DIP203": Program(
        "import torch\ntorch.manual_seed(0)\nw = torch.ones(3, requires_grad=True)\nfor step in range(3):\n"
        "    x = torch.rand(3)\n    loss = (w * w * x).sum()\n    loss.backward()\n    <HERE>\n    w.grad = None\n",
        "w -= 0.1 * w.grad",
        "with torch.no_grad():\n    w -= 0.1 * w.grad",
        {
            "another leaf each time": "w = (w - 0.2 * w.grad).detach().requires_grad_()",
            "drop a term": "with torch.no_grad():\n    w -= w.grad",
            "sign": "with torch.no_grad():\n    w += 0.1 * w.grad",
            "left out": "pass",
            "on a copy": "with torch.no_grad():\n    w.clone().sub_(0.1 * w.grad)",
            "twice": "with torch.no_grad():\n    w -= 0.1 * w.grad\n    w -= 0.1 * w.grad",
        },
        "no_grad",
    ),
    "DIP204": Program(
        looped("y = a(x)", "u, v = y.chunk(2, 1)", "<HERE>", "loss = (u * v).sum() + y.pow(2).sum()"),
        "u *= 3\nv -= u",
        "y = y.clone()\nu, v = y.narrow(1, 0, 2), y.narrow(1, 2, 2)\nu *= 3\nv -= u",
        {
            "the base keeps its value": "u = u * 3\nv = v - u",
            "one part left out": "y = y.clone()\nu, v = y.narrow(1, 0, 2), y.narrow(1, 2, 2)\nv -= u",
            "change order": "y = y.clone()\nu, v = y.narrow(1, 0, 2), y.narrow(1, 2, 2)\nv -= u\nu *= 3",
            "wrong index": "y = y.clone()\nu, v = y.narrow(1, 0, 2), y.narrow(1, 1, 2)\nu *= 3\nv -= u",
            "swap operands": "y = y.clone()\nv, u = y.narrow(1, 0, 2), y.narrow(1, 2, 2)\nu *= 3\nv -= u",
            "detach": "y = y.detach().clone()\nu, v = y.narrow(1, 0, 2), y.narrow(1, 2, 2)\nu *= 3\nv -= u",
        },
    ),
    "DIP205": Program(
        looped("h = torch.zeros(4, 3, 4)", "<HERE>", "loss = h.pow(2).sum()"),
        "for t in range(1, 4):\n    h[t] = (a(h[t - 1]) + b(x)).tanh()",
        "rows = [h[0]]\nfor t in range(1, 4):\n    rows.append((a(rows[t - 1]) + b(x)).tanh())\nh = torch.stack(rows)",
        {
            "wrong index": "rows = [h[0]]\nfor t in range(1, 4):\n    rows.append((a(rows[t - 2]) + b(x)).tanh())\n"
            "h = torch.stack(rows)",
            "one round less": "rows = [h[0]]\nfor t in range(1, 3):\n    rows.append((a(rows[t - 1]) + b(x)).tanh())\n"
            "h = torch.stack([*rows, h[3]])",
            "change order": "rows = [h[0]]\nfor t in range(1, 4):\n    rows.append((a(rows[t - 1]) + b(x)).tanh())\n"
            "h = torch.stack(rows) * torch.tensor([1.0, 2, 1, 1]).view(4, 1, 1)",
            "detach": "rows = [h[0]]\nfor t in range(1, 4):\n    rows.append((a(rows[t - 1].detach()) + b(x)).tanh())\n"
            "h = torch.stack(rows)",
            "drop a term": "rows = [h[0]]\nfor t in range(1, 4):\n    rows.append(a(rows[t - 1]).tanh())\n"
            "h = torch.stack(rows)",
            "stacked along another axis": "rows = [h[0]]\nfor t in range(1, 4):\n"
            "    rows.append((a(rows[t - 1]) + b(x)).tanh())\nh = torch.stack(rows[:3] + rows[:1])",
        },
    ),
}
