"""Which functions get an abstract run of their own: no-ops first, each with the reason why nothing can break."""

from __future__ import annotations

import pytest

from deinplace.analysis.index import Index
from deinplace.analysis.source import Source
from deinplace.analysis.wanted import worth_running

HEAD = "import torch\nimport torch.nn as nn\nfrom torch.nn import init\nimport torch.nn.functional as F\n"


def worth(text: str) -> set[str]:
    source = Source.parse("/t.py", (HEAD + text).encode())
    return {name for _, name in worth_running(Index({"/t.py": source}))} - {"<module>"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("n = 0\n    n += 1\n    return torch.relu(x), n", id="a number"),
        pytest.param("n = len(x)\n    n *= 2\n    return torch.relu(x)", id="a length"),
        pytest.param("out = []\n    out += [torch.relu(x)]\n    return out", id="a list"),
        pytest.param("out = ()\n    out += (torch.relu(x),)\n    return out", id="a tuple"),
        pytest.param("d = {}\n    d[x] = torch.relu(x)\n    return d", id="a dictionary"),
        pytest.param("x.d['k'] = torch.relu(x)", id="a key that is text"),
        pytest.param("for k, v in x.items():\n        x[k] = torch.relu(v)", id="something with items"),
        pytest.param("init.normal_(x)\n    return torch.relu(x)", id="initialisation"),
        pytest.param(
            "b = torch.zeros(3)\n    b[0] = x\n    return torch.exp(b)", id="a new buffer, read when it is full"
        ),
        pytest.param("s = ''\n    s += str(torch.relu(x))\n    return s", id="text"),
        pytest.param("d = {}\n    d['n'] += 1\n    return torch.relu(x)", id="a counter in a dictionary"),
    ],
)
def test_not_worth_it(body: str) -> None:
    assert worth(f"def f(x):\n    {body}\n") == set()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("y = torch.exp(x)\n    y += 1\n    return y", id="a result"),
        pytest.param("n = 0\n    for t in x:\n        n += torch.relu(t)\n    return n", id="a sum"),
        pytest.param("y = F.relu(x)\n    y[0] = 1\n    return y", id="a part"),
        pytest.param("y = torch.relu(x)\n    return y.mul_(2)", id="a method"),
        pytest.param("b = torch.zeros(3)\n    y = b * x\n    b[0] = 1\n    return y", id="a new buffer, read before"),
        pytest.param(
            "b = torch.zeros(3)\n    for i in x:\n        b[0] = i\n        y = torch.exp(b)\n    return y",
            id="a new buffer, read in a loop",
        ),
        pytest.param("b = torch.ones(3)\n    b *= x\n    b *= x\n    return b", id="a product that is kept"),
        pytest.param("return F.relu(torch.exp(x), inplace=True)", id="a flag"),
        pytest.param("return nn.ReLU(inplace=True)(torch.exp(x))", id="a flag of what is called at once"),
        pytest.param("d = {'a': torch.exp(x)}\n    d['a'] += x\n    return d", id="an element of a dictionary"),
        pytest.param("y = torch.exp(x)\n    torch.add(y, 1, out=y)\n    return y", id="an output argument"),
    ],
)  # fmt: skip
def test_worth_it(body: str) -> None:
    assert worth(f"def f(x):\n    {body}\n") == {"f"}


def test_a_module_that_builds_flags_is_run_where_they_show() -> None:
    init = "    def __init__(self):\n        self.a = nn.ReLU(inplace=True)\n"
    forward = "    def forward(self, x):\n        return self.a(torch.exp(x))\n"
    assert worth("class N(nn.Module):\n" + init + forward) == {"N.forward"}


def test_callers_that_hand_something_to_a_writer() -> None:
    writer = "def w(x):\n    x += 1\n    return torch.abs(x)\n"
    assert worth(writer + "def f(x):\n    d = {}\n    d[0] = 1\n    return w(torch.exp(x))\n") == {"w", "f"}
