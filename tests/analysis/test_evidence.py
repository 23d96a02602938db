"""What is believed of a place that looks like a write in place: a tensor, likely one, none, or nothing."""
# ruff: noqa: E501  (programs are data: a line each)

from __future__ import annotations

import textwrap

import pytest

from deinplace.analysis.census import survey
from tests.analysis.programs import parse

HEAD = "from typing import Dict, List, Optional, Tuple\nimport numpy as np\n"


def beliefs(text: str) -> dict[str, str]:
    """Beliefs by target."""
    return {site.target: belief for site, (belief, _) in survey(parse(HEAD + textwrap.dedent(text))).items()}


CASES = {
    "a-list-of-tensors": ("def f(xs: List[torch.Tensor]):\n    xs[0] = None\n    for x in xs:\n        x += 1\n", "x", "tensor"),
    "the-list-itself": ("def f(xs: List[torch.Tensor]):\n    xs += [1]\n    xs[0] = 3\n", "xs[0]", "not"),
    "a-dict-of-tensors": ("def f(d: Dict[str, torch.Tensor]):\n    for k, v in d.items():\n        v.mul_(2)\n", "v", "tensor"),
    "a-tuple": ("def f(p: Tuple[torch.Tensor, int]):\n    a, b = p\n    a += 1\n    b += 1\n", "b", "not"),
    "an-optional-tensor": (
        "def f(x: Optional[torch.Tensor] = None):\n    if x is not None:\n        x += 1\n    return x\n", "x", "tensor",
    ),
    "a-text-annotation": ("def f(x: 'torch.Tensor | None'):\n    x += 1\n", "x", "likely"),
    "an-array": ("def f(x: np.ndarray):\n    x += 1\n", "x", "not"),
    "string-keys": ("def f(state):\n    state['step'] = 0\n", "state['step']", "not"),
    "string-keys-elsewhere": ("def f(group, k):\n    group[k] = 1\n    return group['lr']\n", "group[k]", "not"),
    "methods-of-containers": ("def f(xs, y):\n    xs[0] = y\n    xs.append(y)\n", "xs[0]", "not"),
    "methods-of-one-class-among-others": (
        "def f(x, m):\n    if isinstance(x, dict):\n        x.update(m)\n    else:\n        x[m] = 0\n", "x[m]", "unknown",
    ),
    "a-dict-whose-keys-are-tensors": (
        "def f(states, p: torch.Tensor):\n    state = states[p]\n    state['avg'] = torch.zeros(3)\n", "state['avg']", "not",
    ),
    "used-as-a-tensor-afterwards": ("def f(x, i):\n    x[i:] = 0\n    return torch.relu(x)\n", "x[i:]", "tensor"),
    "numbers-of-several-branches": (
        "def f(flag, n: int):\n    s = None\n    if flag:\n        s = 1\n    else:\n        s = n\n    s += 1\n    return s\n",
        "s", "not",
    ),
    "a-returned-annotation": (
        "def g(n) -> int:\n    return g(n - 1)\ndef f(n):\n    k = g(n)\n    k += 1\n    return k\n", "k", "not",
    ),
    "keyword-arguments": (
        "def f(**kwargs):\n    if 'depth' in kwargs:\n        kwargs['width'] = 3\n    return kwargs\n", "kwargs['width']", "not",
    ),
    "a-loop-over-who-knows-what": (
        "found = {}\nfor name in [n for n in dir(torch) if n.startswith('_')]:\n    found[name] = 1\n", "found[name]", "not",
    ),
    "a-branch-that-no-call-takes": (
        "def f(mode='a'):\n    y = torch.ones(3)\n    if mode == 'b':\n        y += 1\n    return y\nf()\n", "y", "tensor",
    ),
    "a-function-that-nobody-calls": (
        "def f():\n    y = torch.ones(3)\n    def g(n):\n        y.add_(n)\n    return g\n", "y", "tensor",
    ),
    "a-flag-handed-on": (
        "def make(act, **kw):\n    return act(**kw)\nclass N(nn.Module):\n    def __init__(self):\n        self.act = make(nn.ReLU, inplace=True)\n",
        "make", "tensor",
    ),
    "a-flag-that-means-something-else": (
        "def f(model):\n    torch.ao.quantization.prepare_qat(model, inplace=True)\n", "torch.ao.quantization.prepare_qat", "not",
    ),
    "out-of-numpy": ("def f(x):\n    np.rint(x, out=x)\n", "np.rint", "not"),
    "a-set": ("def f(s: set):\n    s |= {1}\n", "s", "not"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "target", "belief"), CASES.values(), ids=CASES.keys())
def test_belief(text: str, target: str, belief: str) -> None:
    assert beliefs(text)[target] == belief


def test_what_looks_like_a_write_and_is_none_is_no_candidate() -> None:
    text = """
    def f(x: torch.Tensor, act):
        x.requires_grad_(True)
        nn.init.zeros_(x)
        act(inplace=False)
        torch.add(x, 1, out=None)
        x.add_(1)
        F.relu_(x + 1)
    """
    assert beliefs(text) == {"x": "tensor", "x + 1": "tensor"}
