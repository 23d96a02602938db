"""Which writes are hazards, and which are not."""
# ruff: noqa: E501  (programs are data: a line each)

from __future__ import annotations

import pytest

from deinplace.analysis.check import check
from tests.analysis.programs import function, parse

SILENT = {
    "add-saves-nothing": function("y = x + 1\ny += 1\nreturn y"),
    "linear-then-relu-in-place": "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.a = nn.Linear(2, 2)\n        self.b = nn.ReLU(inplace=True)\n    def forward(self, x):\n"
    "        return self.b(self.a(x))\n",
    "fresh-buffer-filled": function("out = torch.zeros(3)\nfor i in range(3):\n    out[i] = x[i] * 2\nreturn out"),
    "own-gate": function("x = x + 0\nx *= torch.sigmoid(x)\nreturn x"),
    "maximum-subtracted": function("y = x * 2\ny -= y.max()\nreturn y"),
    "result-only-looked-at": function(
        "y = torch.exp(x)\nprint(y.mean().item())\nz = x + y.detach()\ny.detach_()\nreturn z"
    ),
    "under-no-grad": function("with torch.no_grad():\n    y = torch.sigmoid(x)\n    y += 1\nreturn y"),
    "decorated-no-grad": "@torch.no_grad()\n" + function("y = torch.sigmoid(x)\ny += 1\nreturn y"),
    "initialisation": "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.a = nn.Linear(2, 2)\n        nn.init.zeros_(self.a.weight)\n",
    "data-write": "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.a = nn.Linear(2, 2)\n        self.a.weight.data.mul_(2)\n",
    "values-of-several-results": function("v, i = nn.Linear(4, 4)(x).topk(2)\nv /= v.sum()\nreturn v"),
    "best-of-each-row": function("v = nn.Linear(4, 4)(x).max(1)[0]\nv += 1\nreturn v"),
    "values-by-name": function("v = torch.max(nn.Linear(4, 4)(x), dim=1).values\nv += 1\nreturn v"),
    "sorted": function("v, i = torch.sort(nn.Linear(4, 4)(x))\nv += 1\nreturn v"),
    "mean-and-variance": function("v, m = torch.var_mean(nn.Linear(4, 4)(x), 1)\nm += 1\nv += 1e-5\nreturn v, m"),
    "pooled-with-indices": function(
        "v, i = F.max_pool2d(nn.Conv2d(1, 1, 1)(x), 2, return_indices=True)\nv += 1\nreturn v"
    ),
    "state-of-a-network": function("out, (h, c) = nn.LSTM(4, 4)(x)\nh += 1\nreturn out, h"),
    "only-indices-leave": function("v, i = nn.Linear(4, 4)(x).exp().max(1)\nv += 1\nreturn i"),
    "gradients-switched-off-by-assignment": function(
        "w = nn.Linear(2, 2).weight\nw.requires_grad = False\nw.copy_(x)\nreturn w"
    ),
    "list-grows": function("ys = []\nys += [torch.sigmoid(x)]\nreturn ys"),
    "written-in-inference-mode": "with torch.inference_mode():\n    y = torch.ones(2) * 2\n    y += 1\nz = y.clone()\nz += 1\n",
    "cloned-after-inference": "@torch.inference_mode()\ndef f():\n    return torch.ones(2) * 2\ny = f().clone()\ny += 1\n",
    "whole-numbers": "n = torch.arange(4)\nn *= 2\nn //= 2\nn.div_(2, rounding_mode='trunc')\n",
    "row-of-an-expansion": "e = torch.ones(3).expand(2, 3)\ne[0] += 1\n",
    "matmul-binds-anew": function("y = torch.exp(nn.Linear(2, 2)(x))\ny @= torch.ones(2, 2)\nreturn y"),
    "number": function("n = 0\nn += x.shape[0]\nreturn x * n"),
    "backward-came-first": "w = torch.ones(2, requires_grad=True)\ny = torch.exp(w)\ny.sum().backward()\ny += 1\n",
    "dropout-off-in-evaluation": "net = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Dropout(0.5, True)).eval()\n"
    "net(torch.ones(1, 2)).sum().backward()\n",
}
HAZARDS = {
    "sigmoid-then-add": (function("y = torch.sigmoid(nn.Linear(2, 2)(x))\ny += 1\nreturn y"), "DIP102", "sigmoid"),
    "exp-then-method": (function("y = nn.Linear(2, 2)(x).exp()\ny.mul_(2)\nreturn y"), "DIP103", "exp"),
    "softmax-then-slice": (function("y = nn.Linear(2, 2)(x).softmax(-1)\ny[:, 0] = 0\nreturn y"), "DIP105", "softmax"),
    "product-then-write": (
        "w = torch.ones(2, requires_grad=True)\nx = torch.ones(2)\ny = w * x\nx += 1\ny.sum().backward()\n",
        "DIP102",
        "mul",
    ),
    "indices-that-are-kept": (function("v, i = nn.Linear(4, 4)(x).topk(2)\ni += 1\nreturn v"), "DIP102", "topk"),
    "indices-by-name": (
        function("r = torch.sort(nn.Linear(4, 4)(x))\nr.indices.add_(1)\nreturn r.values"),
        "DIP103",
        "sort",
    ),
    "singular-values": (function("u, s, v = torch.svd(nn.Linear(4, 4)(x))\ns += 1\nreturn u"), "DIP102", "svd"),
    "rows-of-one-result": (function("a, b = nn.Linear(4, 4)(x)\na += 1\nreturn a"), "DIP204", "views"),
    "gradients-switched-on-by-assignment": (
        function("w = torch.zeros(2)\nw.requires_grad = True\nw.copy_(x)\nreturn w"),
        "DIP203",
        "leaf",
    ),
    "in-a-helper-that-a-method-calls": (
        (
            "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(2, 2)\n"
            "    def forward(self, x):\n        h = torch.tanh(self.a(x))\n        self.bump(h)\n        return h\n"
            "    def bump(self, h):\n        h += 1\n"
        ),
        "DIP102",
        "tanh",
    ),
    "functional-flag": (
        function("y = torch.tanh(nn.Linear(2, 2)(x))\nF.relu(y, inplace=True)\nreturn y"),
        "DIP101",
        "tanh",
    ),
    "underscore-function": (
        function("y = torch.tanh(nn.Linear(2, 2)(x))\ntorch.relu_(y)\nreturn y"),
        "DIP104",
        "tanh",
    ),
    "out-argument": (
        function("y = torch.tanh(nn.Linear(2, 2)(x))\nwith torch.no_grad():\n    torch.add(y, 1, out=y)\nreturn y"),
        "DIP106",
        "tanh",
    ),
    "through-a-view": (
        function("y = torch.tanh(nn.Linear(2, 2)(x))\nz = y.view(-1)\nz += 1\nreturn y"),
        "DIP102",
        "tanh",
    ),
    "through-a-detached-alias": (
        function("y = torch.tanh(nn.Linear(2, 2)(x))\ny.detach().clamp_(0, 1)\nreturn y"),
        "DIP103",
        "tanh",
    ),
    "module-in-sequential": (
        (
            "net = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.ReLU(inplace=True))\n"
            "net(torch.ones(1, 2)).sum().backward()\n"
        ),
        "DIP101",
        "sigmoid",
    ),
    "flag-from-a-partial": (
        (
            "import functools\nact = functools.partial(nn.ReLU, inplace=True)\n"
            "net = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), act())\nnet(torch.ones(1, 2)).sum().backward()\n"
        ),
        "DIP101",
        "sigmoid",
    ),
    "class-given-as-an-argument": (
        (
            "class B(nn.Module):\n    def __init__(self, act=nn.ReLU):\n        super().__init__()\n"
            "        self.l = nn.Linear(2, 2)\n        self.a = act(inplace=True)\n    def forward(self, x):\n"
            "        return self.a(torch.sigmoid(self.l(x)))\n"
        ),
        "DIP101",
        "sigmoid",
    ),
    "flag-set-in-a-loop": (
        (
            "net = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.ReLU())\nfor m in net.modules():\n"
            "    if isinstance(m, nn.ReLU):\n        m.inplace = True\nnet(torch.ones(1, 2)).sum().backward()\n"
        ),
        "DIP101",
        "sigmoid",
    ),
    "carried-through-a-loop": (
        (
            "w = nn.Linear(2, 2)\nacc = None\nfor i in range(3):\n    h = torch.relu(w(torch.ones(2)))\n"
            "    if i == 0:\n        acc = h\n    else:\n        acc += h\nacc.sum().backward()\n"
        ),
        "DIP102",
        "relu",
    ),
    "buffer-between-two-forwards": (
        (
            "class S(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.l = nn.Linear(2, 2)\n"
            "        self.register_buffer('s', torch.ones(2))\n    def forward(self, x):\n        h = self.l(x)\n"
            "        self.s.mul_(0.9)\n        return h / self.s\nnet = S()\na, b = net(torch.ones(2)), net(torch.ones(2))\n"
            "(a - b).sum().backward()\n"
        ),
        "DIP103",
        "div",
    ),
    "step-between-forward-and-backward": (
        (
            "net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))\nopt = torch.optim.SGD(net.parameters(), lr=1)\n"
            "a = net(torch.ones(1, 2)).sum()\na.backward(retain_graph=True)\nopt.step()\na.backward()\n"
        ),
        "DIP201",
        "linear",
    ),
    "leaf": ("w = torch.ones(2, requires_grad=True)\nw *= 2\n", "DIP203", "leaf"),
    "made-in-inference-mode": (
        "with torch.inference_mode():\n    y = torch.ones(2) * 2\ny += 1\n",
        "DIP203",
        "inference",
    ),
    "whole-numbers-halved": ("n = torch.arange(4)\nn //= 2\nn /= 2\n", "DIP203", "fractions"),
    "expanded": ("e = torch.ones(3).expand(2, 3)\ne.mul_(2)\n", "DIP204", "expanded"),
    "output-of-chunk": (function("a, b = nn.Linear(2, 2)(x).chunk(2)\na += 1\nreturn a * b"), "DIP204", "views"),
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_says_nothing(text: str) -> None:
    assert [f.message for f in check(parse(text)) if f.severity == "error"] == []


@pytest.mark.parametrize(("text", "rule", "word"), HAZARDS.values(), ids=HAZARDS)
def test_names_the_fault(text: str, rule: str, word: str) -> None:
    found = [f for f in check(parse(text)) if f.severity == "error" and f.rule == rule]
    assert found and all(word in f.message for f in found)


def test_says_which_lines() -> None:
    text = function("y = torch.relu(nn.Linear(2, 2)(x))\ny += 1\nreturn y")
    (finding,) = check(parse(text))
    assert (
        finding.message == "relu saved its output at line 7; `add` at line 8 overwrites it before backward has used it"
    )
    assert (finding.span.line, finding.evidence.hazard, finding.evidence.origin) == (8, "hazard", "fresh")


def test_possible_where_only_one_path_saves() -> None:
    text = function(
        "y = nn.Linear(2, 2)(x)\nif flag:\n    z = torch.exp(y * 1)\n    y = z\ny += 1\nreturn y", "x, flag"
    )
    assert [f.severity for f in check(parse(text))] == ["warning"]


def test_follows_helpers_into_other_files() -> None:
    helper = "def shift(h):\n    h += 1\n"
    main = (
        "from helper import shift\ny = torch.exp(torch.ones(2, requires_grad=True) * 1)\nshift(y)\ny.sum().backward()\n"
    )
    found = [f for f in check(parse(main, helper=helper)) if f.severity == "error"]
    assert [(f.path, f.span.line) for f in found] == [("/p/helper.py", 7)]


def test_a_local_package_that_looks_like_torch_is_not_torch() -> None:
    nn_py = "class ReLU:\n    def __init__(self, inplace=False):\n        self.inplace = inplace\n    def __call__(self, x):\n        return x\n"
    main = "import mynn as nn\ny = torch.exp(torch.ones(2, requires_grad=True))\nnn.ReLU(inplace=True)(y)\ny.sum().backward()\n"
    assert [f for f in check(parse(main, mynn=nn_py)) if f.severity == "error"] == []


def test_all_sites_lists_harmless_tensor_writes() -> None:
    text = function("y = x + 1\ny += 1\nreturn y")
    assert check(parse(text)) == ()
    (finding,) = check(parse(text), all_sites=True)
    assert (finding.severity, finding.evidence.hazard) == ("note", "harmless")


def test_selects_and_ignores_rules() -> None:
    text = function("y = torch.relu(nn.Linear(2, 2)(x))\ny += 1\nreturn y")
    assert check(parse(text), select=["inplace-method"]) == ()
    assert check(parse(text), ignore=["DIP102"]) == ()
