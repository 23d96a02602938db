"""Random programs that write in place: every form of write, views, aliases, loops, branches, containers, grad modes.

A program is a function or a module, a caller that may read its arguments again, and a backward. Every tensor is double
precision; shapes are tracked, so that most programs run, some fail as autograd refuses, and none is ill-formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import random_scenes as scenes

Shape = tuple[int, ...]
FULL: Shape = (3, 4)

_SAME = (
    "torch.sigmoid({})", "torch.tanh({})", "{}.exp()", "torch.relu({})", "({} * {}).sqrt()", "torch.softmax({}, -1)",
    "{}.clone()", "{} * 2", "{} + 1", "{} * {}", "F.softplus({})", "F.gelu({})", "F.leaky_relu({})", "{} ** 2",
    "{}.abs()", "torch.clamp({}, -1, 1)", "{}.detach()", "{}.contiguous()", "{}.view_as({})", "{}.double()",
    "{}.cumsum(0)",
    "torch.where({} > 0, {}, 2 * {})", "F.dropout({}, 0.5)", "({})", "torch.zeros_like({})", "torch.ones_like({})",
    "{}.norm() * {}", "{}.pow(3)", "{}.expand_as({})", "F.relu({}, inplace=True)", "F.elu({}, inplace=True)",
    "{}.relu_()",
    "{}.mul_(2)", "{}.add(1).exp_()", "{}.data", "torch.sin({}).cos_()", "F.hardtanh({}, inplace=True)",
    "{}.sigmoid().mul_({})",
)  # fmt: skip
_PAIR = ("{} + {}", "{} * {}", "{} - {}", "torch.maximum({}, {})", "{} / (1 + {} ** 2)", "torch.add({}, {})")
_WRITES = (
    "{x} += {y}", "{x} -= {y}", "{x} *= {y}", "{x} /= 2", "{x} **= 2", "{x} += 1", "{x} *= 0.5 + {y}",
    "{x} -= {x} * {y}",
    "{x}.add_({y})", "{x}.mul_({y}).add_(1)", "{x}.sub_({y}, alpha=2)", "{x}.clamp_(min=0)", "{x}.zero_()",
    "{x}.fill_(3)",
    "{x}.masked_fill_({x} > 0, 0.5)", "{x}.copy_({y})", "{x}.exp_()", "{x}.sigmoid_()", "{x}.neg_()",
    "torch.relu_({x})",
    "F.relu({x}, inplace=True)", "F.elu_({x})", "F.threshold({x}, 0, 1, inplace=True)", "{x}.pow_(2)",
    "{x}.addcmul_({y}, {y})",
    "torch.mul({x}, {y}, out={x})", "{x}.lerp_({y}, 0.3)", "{x}.tanh_()", "{x}[...] = {y}", "{x}[{x} > 0] = 0.25",
    "{x}[{x} < 0] *= 2", "{x}.data.mul_(2)", "{x}.detach().add_(1)", "{x}.abs_().add_({y})", "{x}.set_({y} * 1)",
    "setattr(box, 'value', {x}); box.value += {y}", "{x}.requires_grad_()", "{x}.div_(1 + {y} ** 2)", "{x}.sqrt_()",
)  # fmt: skip
_FULL_WRITES = (
    "{x}[0] = 1.5", "{x}[:, 1] += 2", "{x}[1] *= {y}[0]", "{x}[0, 0] = {y}[1, 1]", "{x}[:, :2] = {y}[:, 2:]",
    "{x}[1:] -= 1",
    "{x}[-1].mul_(3)", "{x}[:, 0].add_(1).neg_()", "{x}.index_fill_(0, torch.tensor([1]), 2.0)", "{x}[[0, 2]] += 1",
    "{x}.index_add_(0, torch.tensor([0]), {y}[1:2])", "{x}.scatter_(1, torch.tensor([[0], [1], [2]]), 4.0)",
    "{x}[0] += {x}[1]", "{x}[0], {x}[1] = {y}[1], {y}[0]", "{x}.t()[0] += 1", "{x}.view(-1)[2:5].zero_()",
    "{x}[i % 3] = {y}[0] * i", "{x}.unbind(0)[0].mul_(2)", "{x}.flatten()[:3].copy_({y}[0, :3])",
    "{x}.select(0, 1).exp_()",
)  # fmt: skip
_FORMS = ("function", "module", "method", "function", "module", "method", "train")


@dataclass
class _Writer:
    """Lines of one function, with the names that hold tensors of the full shape."""

    random: Random
    module: bool
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=lambda: ["x", "y"])
    depth: int = 1
    count: int = 0
    tags: set[str] = field(default_factory=set)
    """What the program is made of, for the account of a run."""

    def say(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self) -> str:
        """A name, the latest ones more often."""
        return self.names[-1 - min(int(self.random.expovariate(0.8)), len(self.names) - 1)]

    def expression(self) -> str:
        """A tensor of the full shape."""
        if self.random.random() < 0.3:
            return self.random.choice(_PAIR).format(self.pick(), self.pick())
        if self.module and self.random.random() < 0.3:
            name = self.random.choice(("self.act", "self.drop", "self.linear", "self.norm", "self.seq"))
            return f"{name}({self.pick()})"
        template = self.random.choice(_SAME)
        name = self.pick()
        return template.replace("{}", name)

    def assign(self) -> None:
        """One more name, or another value for an old one."""
        value = self.expression()
        name = self.fresh() if self.random.random() < 0.7 else self.pick()
        self.say(f"{name} = {value}")
        if name not in self.names:
            self.names.append(name)

    def write(self) -> None:
        """One write in place."""
        if self.module and self.random.random() < 0.15:
            choice = self.random.choice(
                ("self.act({x})", "self.seen += 1", "self.total.add_({x}.detach().sum())", "self.running.mul_(0.9)",
                 "self.running += {x}.detach()", "self.last = {x}", "self.last *= 2")
            )  # fmt: skip
            self.say(choice.format(x=self.pick()))
            return
        template = self.random.choice(_WRITES if self.random.random() < 0.65 else _FULL_WRITES)
        self.say(template.format(x=self.pick(), y=self.pick()))

    def view(self) -> None:
        """A write through a view, an alias or an element of a container."""
        x, y, new = self.pick(), self.pick(), self.fresh()
        choice = self.random.randrange(12)
        shapes: tuple[tuple[str, ...], ...] = (
            (f"{new} = {x}[0]", f"{new} += 1"),
            (f"{new} = {x}.view(4, 3)", f"{new}[1] *= 2"),
            (f"{new}a, {new}b = {x}.chunk(2, dim=1)", f"{new}a *= {new}b"),
            (f"for {new} in {x}:", f"    {new} *= 2"),
            (f"for {new} in [{x}, {y}]:", f"    {new} += 1"),
            (f"{new}d = {{'a': {x}, 'b': {y}}}", f"for {new} in {new}d.values():", f"    {new} *= 0.5"),
            (f"{new} = [{x}, {y}]", f"{new}[0] += {y}", f"{new}[1] *= 2"),
            (f"{new} = {x}", f"{new} += 1"),
            (f"{new} = {x}.t()", f"{new}.add_({y}.t())"),
            (f"{new} = {x}.reshape(-1)", f"{new}[::2] = 0"),
            (f"{new} = []", f"{new}.append({x})", f"{x} += 1", f"{new}.append({x})"),
            (f"{new} = {x}.split(1)", f"{new}[0].zero_()"),
        )
        for line in shapes[choice]:
            self.say(line)
        if choice in (7,):
            self.names.append(new)

    def scene(self) -> None:
        """A few lines that belong together."""
        family = self.random.choice(list(scenes.SCENES))
        found = [lines for lines in scenes.SCENES[family] if self.module or "self." not in "".join(lines)]
        x, y, new = self.pick(), self.pick(), self.fresh()
        self.tags.add(family)
        for line in self.random.choice(found):
            self.say(line.format(x=x, y=y, v=new))
        self.names.append(new)

    def check(self) -> None:
        """A statement that may end the call."""
        self.tags.add("ends early")
        name = self.pick()
        self.say(
            self.random.choice(
                (f"if {name}.sum() > 4: raise ValueError('large')", f"assert {name}.isfinite().all()",
                 f"if {name}.mean() > 1: return {name}", f"if not flag: return {self.pick()}, {name}")
            )
        )  # fmt: skip

    def block(self) -> None:
        """Statements inside a branch, a loop, a grad mode or a nested function."""
        if self.depth > 2:
            self.write()
            return
        known = list(self.names)
        heads = (
            "if flag:",
            "for i in range(3):",
            self.random.choice(scenes.MODES),
            "if x.sum() > 0:",
            "while i < 2:",
            "for _ in (0, 1):",
            "try:",
            "def",
        )
        head = self.random.choice(heads)
        self.tags.add(head.split()[0].rstrip(":"))
        if head == "def":
            self._nested()
            return
        if head == "while i < 2:":
            self.say("i = 0")
        self.say(head)
        self.depth += 1
        self.body(self.random.randint(1, 3))
        if head == "while i < 2:":
            self.say("i += 1")
        self.depth -= 1
        if head == "try:":
            self.say(self.random.choice(("finally:", "except ValueError:")))
            self.say("    i += 1")
        elif head.startswith("if") and self.random.random() < 0.4:
            self.say("else:")
            self.depth += 1
            self.names = list(known)
            self.body(1)
            self.depth -= 1
        self.names = known

    def _nested(self) -> None:
        name, inner = self.fresh(), self.pick()
        write = self.random.choice(_WRITES[:10]).format(x="t", y=inner)
        self.say(f"def {name}f(t):")
        self.say(f"    {write}")
        self.say("    return t" if self.random.random() < 0.7 else "    return t * 2")
        argument = self.random.choice((inner, f"{inner} * 1", f"torch.exp({inner})"))
        self.say(f"{name} = {name}f({argument})")
        self.names.append(name)

    def body(self, count: int) -> None:
        kinds: tuple[tuple[Callable[[], None], int], ...] = (
            (self.assign, 10), (self.write, 10), (self.view, 4), (self.block, 4), (self.scene, 6), (self.check, 1),
        )  # fmt: skip
        for _ in range(count):
            chosen = self.random.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
            self.tags.add(chosen.__name__)
            chosen()

    def result(self) -> None:
        a, b = self.pick(), self.pick()
        self.say(self.random.choice((f"return {a}", f"return {a}", f"return {a}, {b}", f"return [{a} * {b}]")))


_MODULE = """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU({flag})
        self.drop = nn.Dropout(0.5, inplace={flag2})
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.1, inplace=True), nn.Sigmoid())
        self.register_buffer("running", torch.ones(3, 4))
        self.register_buffer("total", torch.zeros(()))
        self.seen = 0
        self.last = torch.ones(3, 4)

    def forward(self, x, y, flag=True):
        i = 1
"""
_MAIN = """

def main():
    torch.manual_seed(0)
{make}
    p = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
    q = torch.linspace(2, 0.5, 12).view(3, 4).requires_grad_()
    x = {first}
    y = {second}
    out = {call}
{after}
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    loss = sum((o * w).sum() for w, o in enumerate(outs, 1))
    if loss.requires_grad:
        loss.backward()
    return {{"outs": outs, "args": [x, y], "grads": [p.grad, q.grad], "state": {state}}}


if __name__ == "__main__":
    print(main())
"""


_HEAD = """import collections

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_default_dtype(torch.float64)


class Box:
    value = None


box = Box()


"""
_FIRST = ("p * 1", "p * 1", "torch.sigmoid(p)", "torch.relu(p)", "p.exp()", "p.clone()", "p")
_SECOND = ("q * 1", "q * 1", "q.exp()", "q.detach()", "torch.ones(3, 4)", "x")
_AFTER = (
    "",
    "",
    "    out = torch.stack([o.sum() for o in (out if isinstance(out, (tuple, list)) else [out])]) * x.sum()",
)
_STATE = """{
        **dict(block.state_dict()), "seen": block.seen, "last": block.last, "g": [v.grad for v in block.parameters()],
    }"""


def described(random: Random) -> tuple[str, frozenset[str]]:
    """The text of one program, and what it is made of; `main()` returns what its caller can see."""
    form = random.choice(_FORMS)
    module = form != "function"
    writer = _Writer(random, module, depth=2 if module else 1)
    writer.body(random.randint(2, 7))
    writer.tags.add(form)
    head = _HEAD + scenes.helpers("\n".join(writer.lines))
    if module:
        text = head + _MODULE.format(flag=random.choice(("True", "False", "inplace=True")), flag2=random.random() < 0.5)
    else:
        text = head + "def f(x, y, flag=True):\n    i = 1\n"
    if form == "train":
        writer.say(f"return {writer.pick()}")
        return text + "\n".join(writer.lines) + "\n" + scenes.train(random), frozenset(writer.tags)
    writer.result()
    text += "\n".join(writer.lines) + "\n"
    text += _MAIN.format(
        make="    block = Block()" if module else "    block = None",
        first=random.choice(_FIRST),
        second=random.choice(_SECOND),
        call={"function": "f(x, y)", "module": "block(x, y)", "method": "block.forward(x, y, False)"}[form],
        after=random.choice(_AFTER),
        state=_STATE if module else "{}",
    )
    return text, frozenset(writer.tags)


def program(random: Random) -> str:
    """The text alone."""
    return described(random)[0]
