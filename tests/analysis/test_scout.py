"""The quick look before the abstract machine: it may keep too much, and never drops what the machine blames."""

from __future__ import annotations

import pytest

from deinplace.analysis.index import MANY, Index
from deinplace.analysis.run import analyse
from deinplace.analysis.scout.state import STEPS
from deinplace.analysis.source import Source
from deinplace.analysis.units import FUNCTION_STEPS
from deinplace.analysis.wanted import BRIEF, suspects
from deinplace.rules import all_rules

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
MODULE = "class M(nn.Module):\n    def __init__(self, act=nn.ReLU):\n        super().__init__()\n"


def kept(text: str) -> set[str]:
    """The functions of a file that the machine has to look at."""
    index = Index({"/t.py": Source.parse("/t.py", text.encode())})
    everything = {("/t.py", info.qualname) for info in index.modules["/t.py"].functions.values()}
    return {name for _, name in suspects(index, everything)}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("def f(x):\n    y = torch.add(x, 1)\n    y += 1\n    return y", id="nothing is saved"),
        pytest.param(
            "def f(x):\n    with torch.no_grad():\n        y = x.exp()\n        y += 1\n", id="gradients are off"
        ),
        pytest.param(
            "@torch.no_grad()\ndef f(x):\n    y = x.exp()\n    return y.mul_(2)", id="a decorator switches off"
        ),
        pytest.param("def f(x):\n    y = F.conv2d(x, x)\n    return F.relu(y, inplace=True)", id="an input is saved"),
        pytest.param(
            "def g(x):\n    x += 1\n    return x\ndef f(x):\n    return g(torch.add(x, 1)).exp()", id="a helper"
        ),
        pytest.param(
            "def f(x):\n    n = 0\n    for t in x:\n        n = n + 1\n    n += 1\n    return n", id="a number"
        ),
        pytest.param("def f(m):\n    m.weight.data.mul_(2)", id="past autograd"),
        pytest.param("@torch.inference_mode()\ndef f(x):\n    y = x * 2\n    y += 1\n    return y", id="inference"),
    ],
)
def test_what_breaks_nothing_is_dropped(text: str) -> None:
    assert kept(HEAD + text + "\n") == set()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("def f(x):\n    y = x.exp()\n    y += 1\n    return y", id="a result"),
        pytest.param("def f(x):\n    y = torch.add(x, 1)\n    z = y * y\n    y += 1\n    return z", id="an input"),
        pytest.param("def g(x):\n    x += 1\ndef f(x):\n    y = x.exp()\n    g(y)\n    return y", id="a helper writes"),
        pytest.param(
            "def g(x):\n    return x.exp()\ndef f(x):\n"
            "    y = g(x)\n    y += 1\n    return y",
            id="a helper saves",
        ),
        pytest.param("def f(x):\n    y = torch.exp(x)\n    o = [y]\n    o[0] += 1\n    return o", id="in a list"),
        pytest.param(
            "def f(x):\n    y = torch.exp(x)\n    v = y[0].view(-1)\n"
            "    v.add_(1)\n    return y",
            id="a view",
        ),
        pytest.param("def f(x):\n    h = lambda t: t.add_(1)\n    return h(torch.exp(x))", id="a lambda"),
        pytest.param(
            "def f(x):\n    y = torch.exp(x)\n    for _ in range(3):\n"
            "        y += 1\n    return y",
            id="a loop",
        ),
        pytest.param(
            MODULE + "        self.act = act(inplace=True)\n    def forward(self, x):\n"
            + "        return self.act(torch.exp(x))",
            id="a flag of a default",
        ),
        pytest.param(
            MODULE
            + "        self.net = nn.Sequential(nn.Sigmoid(), nn.ReLU(inplace=True))\n"
            + "    def forward(self, x):\n        return self.net(x)",
            id="a chain",
        ),
        pytest.param(
            MODULE
            + "        self.blocks = nn.ModuleList([B() for _ in range(3)])\n"
            + "    def forward(self, x):\n        for b in self.blocks:\n            x = b(x)\n        return x\n"
            + "class B(nn.Module):\n    def forward(self, x):\n"
            + "        y = torch.exp(x)\n        y += 1\n        return y",
            id="a block",
        ),
        pytest.param(
            MODULE + "        self.w = nn.Parameter(torch.ones(3))\n"
            + "    def forward(self, x):\n        self.w += 1\n        return x",
            id="a leaf",
        ),
        pytest.param(
            "@torch.inference_mode()\ndef g(x):\n    return x * 2\ndef f(x):\n    y = g(x)\n    y += 1\n    return y",
            id="outside inference mode",
        ),
        pytest.param(
            "class H(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.act = nn.Identity()\n"
            "    def forward(self, x):\n        return self.act(x)\n"
            "def f(x):\n    h = H()\n    h(torch.exp(x))\n    h.act = nn.ReLU(inplace=True)\n"
            "    return h(torch.exp(x))",
            id="an attribute that changed after a call",
        ),
        pytest.param(
            "def f(x):\n    a, b = torch.relu(x).chunk(2)\n"
            "    a += 1\n    return a, b",
            id="one of several views",
        ),
    ],
)  # fmt: skip
def test_what_may_break_is_kept(text: str) -> None:
    assert kept(HEAD + text + "\n")


def test_what_the_machine_finds_is_kept() -> None:
    """Every case of every rule: the function that shows the fault is among those that are kept."""
    seen = 0
    for rule in all_rules():
        for case in rule.cases:
            source = Source.parse("/t.py", case.before.encode())
            index = Index({"/t.py": source})
            units = {("/t.py", info.qualname) for info in index.modules["/t.py"].functions.values()}
            report = analyse({"/t.py": source}, lenient=True, wanted=units, index=index, every=True, traced=False)
            bad = {hit.unit for hit in report.hits if hit.unit[1] != "<module>"}
            assert bad <= suspects(index, units).keys(), (rule.code, case.id)
            seen += len(bad)
    assert seen


CALLS = """\
def broken(x):
    y = torch.exp(x)
    y += 1
    return y


def calls(x):
    return broken(x) * 2


def adds(x):
    x += 1
    return x


def hands_over(x):
    y = torch.exp(x)
    adds(y)
    return y


def one_more(x):
    z = torch.sigmoid(broken(x))
    z += 1
    return z


def goes_far(x):
    y = torch.exp(x)
{far}    y += 1
    return y


def far_off(x):
{far}    return x


def after_far(x):
    y = torch.exp(far_off(x))
    y += 1
    return y


def only_after_far(x):
    y = torch.add(far_off(x), 1)
    y += 1
    return y
"""


@pytest.mark.parametrize("files", [1, MANY])
def test_in_a_large_project_callers_show_no_fault_again(files: int) -> None:
    far = "".join(f"    if x.sum() > {n}:\n        x = torch.sin(x)\n" for n in range(STEPS // 8))
    texts = {"/p/t.py": HEAD + CALLS.replace("{far}", far)}
    texts |= {f"/p/other{n}.py": HEAD for n in range(files - 1)}
    index = Index({path: Source.parse(path, text.encode()) for path, text in texts.items()})
    names = ("broken", "calls", "adds", "hands_over", "one_more", "goes_far", "after_far", "only_after_far")
    steps = {name: taken for (_, name), taken in suspects(index, {("/p/t.py", name) for name in names}).items()}
    expected = dict.fromkeys(set(names) - {"adds"}, FUNCTION_STEPS)
    if files == MANY:
        del expected["calls"], expected["only_after_far"]
        expected["goes_far"] = BRIEF
    assert steps == expected
