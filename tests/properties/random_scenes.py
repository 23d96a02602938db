"""What random programs hold beside single writes: helpers, dtypes, containers, buffers, leaves, training steps."""

from __future__ import annotations

import re
from random import Random

HELPERS = {
    "bump": """def bump(t, by=1):
    t += by
    return t
""",
    "scaled": """def scaled(t, *parts, out=None):
    t.mul_(2)
    return t if out is None else out
""",
    "decay": """@torch.no_grad()
def decay(t):
    t.mul_(0.5)
""",
    "rows": """def rows(t):
    for row in t:
        yield row
""",
    "make": """def make(name, inplace=True):
    return nn.ReLU(inplace=inplace) if name == "relu" else nn.ELU(inplace=inplace)
""",
    "checkpointed": """def checkpointed(t, u):
    return checkpoint(lambda a, b: (a * b).relu_(), t, u, use_reentrant=False)
""",
    "Pair": """Pair = collections.namedtuple("Pair", "first second")
""",
}
"""Functions that lines call; a program holds those that it calls."""
DTYPES = (
    ("{v} = {x}.float()", "{v} += {y}", "{v} = {v}.double()"),
    ("{v} = {x}.float()", "{v}.mul_({y}.float())", "{v} = {v}.double()"),
    ("{v} = {x}.half()", "{v} *= 2.5", "{v} = {v}.double()"),
    ("{v} = torch.arange(12).view(3, 4)", "{v} += 2", "{v} = {v} * {x}"),
    ("{v} = torch.arange(12).view(3, 4)", "{v} //= 2", "{v} = {v} * {x}"),
    ("{v} = ({x} > 0)", "{v} |= {y} > 1", "{v} = {x}.masked_fill({v}, 0.5)"),
    ("{v} = ({x} > 0)", "{v} &= {y} > 1", "{v} = torch.where({v}, {x}, {y})"),
    ("{v} = {x}.to(torch.float32)", "{v}.copy_({y})", "{v} = {v}.to({x})"),
    ("{v} = torch.zeros(3, 4, dtype=torch.float32)", "{v} += {x}", "{v} = {v}.double()"),
    ("{v} = torch.complex({x}, {y})", "{v} *= 2j", "{v} = {v}.abs()"),
)
CONTAINERS = (
    ("{v} = ({x} * 1, {y} * 1)", "{v}[0].add_(1)", "{v} = {v}[0] * {v}[1]"),
    ("{v}p = Pair({x} * 1, {y})", "{v}p.first.exp_()", "{v} = {v}p.first + {v}p.second"),
    ("{v} = {{}}", "{v}.setdefault('k', {x} * 1).mul_(2)", "{v} = {v}['k'] * {y}"),
    ("{v}l = [t * 1 for t in ({x}, {y})]", "for t in {v}l: t += 1", "{v} = {v}l[0] * {v}l[1]"),
    ("{v}l = [t * 1 for t in ({x}, {y})]", "for n, t in enumerate({v}l): {v}l[n] = t.relu_()", "{v} = sum({v}l)"),
    ("{v}l = [{x} * 1, {y} * 1]", "for a, b in zip({v}l, {v}l[::-1]): a *= b", "{v} = {v}l[0]"),
    ("{v}l = list({x}.unbind(0))", "{v}l[1] = {v}l[1] * 2", "{v} = torch.stack({v}l)"),
    ("{v}l = []", "for t in rows({x}): {v}l.append(t * t)", "{v} = torch.stack({v}l)"),
    ("{v}, {v}o = {x}, {y}", "{v} += {v}o"),
    ("{v}d = dict(a={x} * 1)", "{v}d['a'] += {y}", "{v} = {v}d['a']"),
    ("box.value = {x} * 1", "box.value += {y}", "{v} = box.value.sigmoid()"),
    ("{v}l = [{x}]", "{v}l += [{y}]", "{v} = {v}l[0] * {v}l[-1]"),
)
CALLS = (
    ("{v} = bump({x} * 1)",),
    ("{v} = bump({x}, {y})",),
    ("bump({x})", "{v} = {x} * 2"),
    ("{v} = scaled({x}.exp(), {y})",),
    ("{v} = scaled({x} * 1, out={y})",),
    ("decay({x})", "{v} = {x} + 1"),
    ("{v} = (lambda t: t.mul_(2))({x} * 1)",),
    ("{v} = {x} if flag else bump({y})",),
    ("{v} = make('relu')({x} * {y})",),
    ("{v} = make('elu', True)(torch.sigmoid({x}))",),
    ("{v} = make('relu', inplace=flag)({x}.exp())",),
    ("{v} = nn.Dropout(0.5, True)({x} * 1)",),
    ("{v} = F.dropout({x}.tanh(), 0.5, True, True)",),
    ("{v} = nn.Sequential(nn.Tanh(), nn.Hardtanh(-1.0, 1.0, True))({x})",),
    ("({v} := {x} * 1).add_({y})",),
    ("{v} = checkpointed({x}, {y})",),
)
BUFFERS = (
    ("{v} = torch.zeros(3, 4)", "for i in range(3):", "    {v}[i] = {x}[i] * 2"),
    ("{v} = torch.zeros(3, 4)", "{v}[0] = {x}[0]", "for i in range(1, 3):", "    {v}[i] = {v}[i - 1] * {x}[i]"),
    ("{v} = torch.empty(3, 4)", "for i in range(3):", "    {v}[i] = {x}[i].sigmoid()", "    {v}[i] = {v}[i] * {y}[i]"),
    ("{v} = torch.zeros(3, 4)", "for i in range(4):", "    {v}[:, i] = {x}[:, i] + {v}[:, i - 1] ** 2"),
    ("{v} = {x}.new_zeros(3, 4)", "for i, row in enumerate({x}):", "    {v}[i] += row * row"),
    ("{v} = torch.zeros_like({x})", "{v}[:, 1:] = {x}[:, :-1]", "{v} += {y}"),
)  # fmt: skip
OUTS = (
    ("{v} = torch.empty(3, 4)", "torch.mul({x}.detach(), 2, out={v})", "{v} = {v} * {y}"),
    ("{v} = {x} * {x}", "with torch.no_grad():", "    torch.clamp({x}, max=1, out={x})"),
    ("torch.add({x}, {y}, out={x})", "{v} = {x}"),
    ("{v} = torch.sigmoid({x})", "with torch.no_grad():", "    torch.neg({v}, out={v})"),
)
FUNCTIONS = (
    ("{v} = torch.sigmoid({x})", "torch.sigmoid_({v})"),
    ("{v} = {x}.exp()", "F.leaky_relu_({v}, 0.2)"),
    ("{v} = torch.tanh({x})", "F.relu_({v})"),
    ("{v} = F.elu_({x} * 1)", "torch.sqrt_({v}.abs_())"),
    ("{v} = F.threshold_({x} * {y}, 0.1, 0.0)",),
    ("{v} = torch.celu_({x} ** 2)", "torch.neg_({v})"),
)
LEAVES = (
    ("self.linear.weight.data.mul_(0.9)", "{v} = self.linear({x})"),
    ("with torch.no_grad():", "    self.linear.weight *= 0.5", "{v} = self.linear({x})"),
    ("{v} = self.linear({x})", "with torch.no_grad():", "    self.linear.weight.add_(0.1)"),
    ("{v} = torch.ones(3, 4, requires_grad=True)", "{v} += {x}"),
    ("{v} = torch.zeros(3, 4, requires_grad=True)", "{v}[0] = 1.0"),
    ("{v} = nn.Parameter(torch.ones(3, 4))", "nn.init.uniform_({v})", "{v} = {v} * {x}"),
    ("self.linear.bias[0] = 0.5", "{v} = self.linear({x})"),
    ("{v} = nn.Parameter(torch.ones(3, 4))", "{v}.data.clamp_(max=0.5)", "{v} = {v} * {x}"),
)
MODES = (
    "with torch.no_grad():", "with torch.enable_grad():", "with torch.set_grad_enabled(flag):",
    "with torch.set_grad_enabled(not flag):", "with torch.autograd.set_grad_enabled(x.requires_grad):",
)  # fmt: skip
SCENES = {
    "dtypes": DTYPES, "containers": CONTAINERS, "calls": CALLS, "buffers": BUFFERS, "out": OUTS,
    "functions": FUNCTIONS, "leaves": LEAVES,
}  # fmt: skip
TRAIN = """

def main():
    torch.manual_seed(0)
    block, other = Block(), nn.Linear(4, 4)
    opt = torch.optim.SGD(block.parameters(), lr=0.1)
    opt_other = torch.optim.SGD(other.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, 12).view(3, 4)
    y = torch.linspace(2, 0.5, 12).view(3, 4)
    log = []
    h = x
    for step in range(2):
{steps}
    state = {{**block.state_dict(), **{{"o." + k: v for k, v in other.state_dict().items()}}}}
    return {{"outs": log, "args": [x, y], "state": state}}


if __name__ == "__main__":
    print(main())
"""
_STEPS = (
    ("out = block({h}, y)", "loss = out.square().mean()", "opt.zero_grad()", "loss.backward()", "opt.step()"),
    ("out = block({h}, y)", "loss = other(out).square().mean()", "opt.zero_grad()", "opt_other.zero_grad()",
     "loss.backward()", "opt.step()", "opt_other.step()"),
    ("out = block({h}, y)", "loss = out.square().mean()", "loss_other = other(out).square().mean()", "opt.zero_grad()",
     "loss.backward(retain_graph=True)", "opt.step()", "opt_other.zero_grad()", "loss_other.backward()",
     "opt_other.step()"),
    ("h = block(h, y)", "loss = h.square().mean()", "opt.zero_grad()", "loss.backward(retain_graph=True)",
     "opt.step()"),
    ("h = block(h, y).detach()", "loss = block(h, y).square().mean()", "opt.zero_grad()", "loss.backward()",
     "with torch.no_grad():", "    for p in block.parameters():", "        if p.grad is not None: p -= 0.1 * p.grad"),
    ("loss = block(x * 1, y).square().mean()", "loss.backward()", "for p in block.parameters():",
     "    if p.grad is not None: p.data -= 0.1 * p.grad"),
    ("loss = block(x * 1, y).square().mean()", "loss.backward()", "for p in block.parameters():",
     "    if p.grad is not None: p -= 0.1 * p.grad"),
)  # fmt: skip


def train(random: Random) -> str:
    """A loop that steps optimizers, some of them too early."""
    steps = [line.format(h=random.choice(("x", "x * 1", "h * 1"))) for line in random.choice(_STEPS)]
    steps = [re.sub(r"^(\w+)\.backward", r"if \1.requires_grad: \1.backward", line) for line in steps]
    steps.append("log.append(loss.detach())")
    return TRAIN.format(steps="\n".join(f"        {line}" for line in steps))


def helpers(text: str) -> str:
    """The functions that a text calls."""
    return "".join(f"{code}\n\n" for name, code in HELPERS.items() if f"{name}(" in text)
