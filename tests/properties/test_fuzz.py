"""A short seeded run of the differential fuzzer, and the programs that it once found wrong."""

from __future__ import annotations

import textwrap
from random import Random

import equivalence
import pytest
import random_programs
from hypothesis import given, settings
from hypothesis import strategies as st

BAD = ("miscompiled", "crashed")
ONCE_WRONG = {
    "an item multiplied by what requires grad": """
        def f(x, y):
            y = torch.ones(3, 4)
            y[1] *= x[0]
            return y * y
    """,
    "an item to a power that requires grad": """
        def f(x, y):
            x[0] **= y[0]
            return x
    """,
    "a tensor multiplied by itself": """
        def f(x, y):
            x *= x
            return x
    """,
    "a square, then another value": """
        def f(x, y):
            z = x * x
            x += 1
            return z
    """,
    "a cast to what the default type is": """
        def f(x, y):
            z = x.double()
            z -= z * z
            return x, z
    """,
    "elements of a list that are one tensor": """
        def f(x, y):
            z = y ** 2
            v = [z, z]
            v[0] += z
            v[1] *= 2
            return z * x
    """,
    "a write past autograd beside one that it sees": """
        def f(x, y):
            z = y * y
            y.data.mul_(2)
            s = torch.softmax(x, -1)
            s[1] *= 2
            return s * z
    """,
    "a tuple of views has no clone and takes no items": """
        def f(x, y):
            z = x.abs()
            v = z.split(1)
            v[0].zero_()
            return z * y
    """,
    "rows that are read on after one was written": """
        def f(x, y):
            z = x * y
            for v in z:
                v *= 2
            u = z * z
            for v in z:
                v *= 2
            return u * y
    """,
    "a write past autograd of what is handed out in a list": """
        def f(x, y):
            z = torch.sigmoid(y)
            with torch.no_grad():
                torch.neg(z, out=z)
            w = z * x
            return w, [z * y]
    """,
    "a type that is spelled out where the default is another": """
        def f(x, y):
            z = torch.zeros(3, 4)
            z[1:] = x[1:]
            w = torch.zeros(3, 4, dtype=torch.float32)
            w += z
            return w.double() * y
    """,
    "an item multiplied by what may require grad": """
        def f(x, y):
            x[1] *= y[0]
            y = y * y
            y = torch.nn.functional.hardtanh(y, inplace=True)
            return x + y, y * y
    """,
    "two items of one tensor": """
        def f(x, y):
            x[0] *= x[1]
            return x
    """,
}  # fmt: skip
FRAME = """
import torch

torch.set_default_dtype(torch.float64)

{function}

def main():
    p = torch.linspace(1, 2, 12).view(3, 4).requires_grad_()
    q = torch.linspace(1, 3, 12).view(3, 4).requires_grad_()
    x, y = p * 1, q * 1
    out = f(x, y)
    out = tuple(o[0] if isinstance(o, list) else o for o in out) if isinstance(out, tuple) else (out,)
    sum(o.sum() for o in out).backward()
    return {{"outs": out, "args": [x, y], "grads": [p.grad, q.grad]}}


if __name__ == "__main__":
    print(main())
"""


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_random_programs_keep_their_meaning(seed: int, all_sites: bool) -> None:
    verdict, detail, after = equivalence.judged(random_programs.program(Random(seed)), all_sites)
    assert verdict not in BAD, f"{detail}\n{after}"


@pytest.mark.parametrize("all_sites", [False, True], ids=["default", "all"])
@pytest.mark.parametrize("function", ONCE_WRONG.values(), ids=ONCE_WRONG.keys())
def test_what_was_once_wrong(function: str, all_sites: bool) -> None:
    text = FRAME.format(function=textwrap.dedent(function))
    verdict, detail, after = equivalence.judged(text, all_sites)
    assert verdict not in BAD, f"{detail}\n{after}"
    plain = equivalence.run(compile(text, "p.py", "exec"))
    if plain.fault:
        assert verdict in ("rewritten, equal", "left alone", "refused at once, now runs"), (verdict, detail)


def test_programs_are_of_every_kind() -> None:
    """The generator reaches failing programs, working ones, and rewrites of several rules."""
    seen, rules = set(), set()
    for seed in range(40):
        verdict, detail, _ = equivalence.judged(random_programs.program(Random(seed)), True)
        seen.add(verdict)
        rules.update(detail.split(", ") if verdict == "rewritten, equal" else ())
    assert {"left alone", "rewritten, equal"} <= seen
    assert len(rules) >= 3, rules


def test_a_wrong_rewrite_is_seen() -> None:
    text = random_programs.program(Random(4))
    other = text.replace("p = torch.linspace(-1, 1", "p = torch.linspace(-1, 2")
    assert equivalence.compared(text, other)[0] in ("miscompiled", "still refused", "refused at once, now runs")
    assert equivalence.compared(text, text)[0] == "left alone"


def test_an_item_to_a_power_is_computed_from_a_clone() -> None:
    text = FRAME.format(function=textwrap.dedent(ONCE_WRONG["an item to a power that requires grad"]))
    verdict, _, after = equivalence.judged(text, False)
    assert verdict == "rewritten, equal"
    assert "x[0] = x[0].clone() ** y[0]" in after


def test_a_flag_through_parameters_of_the_programs_own() -> None:
    function = """
        class Act(torch.nn.Module):
            def __init__(self, inplace):
                super().__init__()
                self.act = torch.nn.ReLU(inplace=inplace)

            def forward(self, x):
                self.act(x)
                return x * 2


        class Pass(torch.nn.Module):
            def __init__(self, act_inplace: bool = True):
                super().__init__()
                self.one, self.two = Act(act_inplace), Act(inplace=True)

            def forward(self, x):
                return self.two(self.one(torch.sigmoid(x)) + 1)


        def f(x, y):
            return Pass()(x * y)
    """
    verdict, _, after = equivalence.judged(FRAME.format(function=textwrap.dedent(function)), False)
    assert verdict == "rewritten, equal"
    assert "torch.nn.ReLU(inplace=False)" in after
    assert "x = self.act(x)" in after


ONE_OR_OTHER = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12, bias=False)
        self.bias = nn.Parameter(torch.zeros(12))

    def forward(self, x):
        if x.shape[0] == 1:
            qkv = self.qkv(x)
        else:
            qkv = self.qkv(x)
            qkv += self.bias
        q, k, v = qkv.chunk(3, dim=-1)
        return q * k * v
"""


def test_parts_of_one_tensor_or_of_another_are_both_looked_at() -> None:
    """Under autocast the layer gives half precision, which `+=` keeps and `+` does not."""
    from deinplace.analysis.source import Source
    from deinplace.verify.static import plan

    source = Source.parse("/tree/attention.py", ONE_OR_OTHER.encode())
    assert plan({source.path: source}, all_sites=True) == []


HANDED_OUT = """
import torch
from elsewhere import external


def f(x: torch.Tensor, y: torch.Tensor):
    z = y * 2
    with torch.no_grad():
        z.mul_(3)
    {use}
"""


@pytest.mark.parametrize("use", ["external(z)", "external([z, x])", "x.kept = z", "yield z", "external.kept = (z,)"])
def test_what_others_get_keeps_its_gradients(use: str) -> None:
    """`z = z.mul(3)` under no_grad would hand out the same values without a graph."""
    from deinplace.analysis.source import Source
    from deinplace.verify.static import plan

    source = Source.parse("/tree/handed.py", HANDED_OUT.format(use=use).encode())
    assert plan({source.path: source}, all_sites=True) == []
