"""Writes to leaves: updates stay updates, activations are left to the out-of-place rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from deinplace.model import Rewrite
from deinplace.rules.leaf_write import LeafWrite

RULE = LeafWrite()
Make = Callable[[str], Any]


def offers(before: Any) -> list[Rewrite]:
    """Run to the error and ask the rule."""
    incident = before.failure()
    site = RULE.claim(incident, before.project)
    return list(RULE.rewrites(site, before.project, incident)) if site is not None else []


def mended(before: Any) -> dict[str, Any]:
    """Globals of the program after the first rewrite."""
    rewrite = offers(before)[0]
    assert rewrite.applicability == "safe"
    result: dict[str, Any] = before.apply(rewrite).run()
    return result


TRAIN = """
import torch

torch.manual_seed(0)
x, y = torch.randn(6, 3), torch.randn(6)
w = torch.ones(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
lr = 0.1
for step in range(3):
    loss = (x @ w + b - y).pow(2).mean()
    loss.backward()
    {update}
"""


@pytest.mark.parametrize(
    "update",
    [
        "w -= lr * w.grad\n    b -= lr * b.grad\n    w.grad = b.grad = None",
        "w.sub_(lr * w.grad); b.sub_(lr * b.grad)\n    w.grad = b.grad = None",
        "for p in (w, b):\n        p.add_(p.grad, alpha=-lr)\n        p.grad = None",
        "for p in [w, b]:\n        if p.grad is not None:\n            p -= lr * p.grad\n            p.grad.zero_()",
        "for p in w, b:\n        g = p.grad\n        p -= lr * g\n        p.grad = None",
        "w[:] = w - lr * w.grad\n    b[:] = b - lr * b.grad\n    w.grad = b.grad = None",
        "w.copy_(w - lr * w.grad)\n    b.copy_(b - lr * b.grad)\n    w.grad, b.grad = None, None",
    ],
)
def test_hand_written_sgd(program: Make, update: str) -> None:
    before = program(TRAIN.format(update=update))
    for _ in range(3):
        rewrite = offers(before)
        if not rewrite:
            break
        before = before.apply(rewrite[0])
        try:
            before.run()
            break
        except RuntimeError:
            continue
    got = before.run()
    x, y, w, b = got["x"], got["y"], torch.ones(3), torch.zeros(1)
    for _ in range(3):
        error = 2 * (x @ w + b - y) / 6
        w, b = w - 0.1 * (x.T @ error), b - 0.1 * error.sum()
    torch.testing.assert_close(got["w"].detach(), w)
    torch.testing.assert_close(got["b"].detach(), b)
    assert got["w"].is_leaf
    assert got["w"].requires_grad


FIRST = "w -= lr * w.grad  # first\n    b -= lr * b.grad\n    w.grad = b.grad = None"


def test_one_with_around_both_updates(program: Make) -> None:
    before = program(TRAIN.format(update=FIRST))
    after = before.apply(offers(before)[0]).code
    assert (
        "    with torch.no_grad():\n        w -= lr * w.grad  # first\n        b -= lr * b.grad\n"
        "    w.grad = b.grad = None\n" in after
    )


MODEL = """
import torch
from torch import nn

net = nn.Linear(2, 2, bias=False)
holder = net.weight
{code}
"""


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("net.weight[0, 0] = 1\nnet.weight[0, 1] = 2\nnet.weight[1, 0] = 3\nnet.weight[1, 1] = 4", [[1, 2], [3, 4]]),
        ("net.weight.fill_(2.0)", [[2, 2], [2, 2]]),
        ("for p in net.parameters():\n    p.fill_(0.5)", [[0.5, 0.5], [0.5, 0.5]]),
        ("net.weight[:, 1] = torch.tensor([1.0, 2.0])\nnet.weight[:, 0] = 0", [[0, 1], [0, 2]]),
        ("def reset(table):\n    table[0] = 1\n    table[1] = 2\n\n\nreset(net.weight)", [[1, 1], [2, 2]]),
        ("def mystery(table):\n    table[0] = 1\n    table[1] = 2\n\n\nmystery(net.weight)", [[1, 1], [2, 2]]),
        ("net.weight.zero_().add_(1)", [[1, 1], [1, 1]]),
        ("w = net.weight\nw.index_fill_(0, torch.tensor([0, 1]), 3.0)", [[3, 3], [3, 3]]),
        ("for m in net.modules():\n    m.weight.clamp_(9, 9)", [[9, 9], [9, 9]]),
    ],
)
def test_initialisation_reaches_the_parameter(program: Make, code: str, want: list[list[float]]) -> None:
    got = mended(program(MODEL.format(code=code)))
    assert got["net"].weight is got["holder"]
    assert got["holder"].tolist() == want
    assert got["holder"].requires_grad


def test_a_closure_projects_what_its_owner_trains(program: Make) -> None:
    code = """
    import torch

    image = torch.full((2, 2), 3.0, requires_grad=True)
    same = image
    opt = torch.optim.SGD([image], lr=0.5)

    def closure():
        image.clamp_(0, 1)
        opt.zero_grad()
        loss = image.sum()
        loss.backward()
        return loss

    opt.step(closure)
    """
    got = mended(program(code))
    assert got["image"] is got["same"]
    assert got["image"].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_inside_a_constructor_with_an_alias_import(program: Make) -> None:
    code = """
    import torch as th
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(th.zeros(3))
            if True: self.scale[1] = 5.0

        def forward(self, x):
            return x * self.scale

    net = Net()
    """
    for text in (code, code.replace("if True: ", "")):
        before = program(text)
        assert "with th.no_grad():" in before.apply(offers(before)[0]).code
        assert mended(before)["net"].scale.tolist() == [0, 5, 0]


@pytest.mark.parametrize(
    "allocate",
    ["torch.zeros(4, 2, requires_grad=True)", "torch.zeros((4, 2), requires_grad=True, dtype=torch.float32)"],
)
def test_a_filled_buffer_loses_the_flag(program: Make, allocate: str) -> None:
    code = f"""
    import torch

    torch.manual_seed(0)
    a = torch.randn(4, 2, requires_grad=True)

    def encode():
        out = {allocate}
        for t in range(4):
            out[t] = a[t].sin()
        return out

    encode().pow(2).sum().backward()
    """
    before = program(code)
    (rewrite,) = offers(before)
    got = before.apply(rewrite).run()
    a = got["a"]
    torch.testing.assert_close(a.grad, (2 * a.sin() * a.cos()).detach())


def test_a_leaf_whose_gradient_is_read_keeps_the_flag(program: Make) -> None:
    code = """
    import torch

    x = torch.zeros(3, requires_grad=True)
    x[1] = 2.0
    x.pow(2).sum().backward()
    seen = x.grad.tolist()
    """
    assert mended(program(code))["seen"] == [0, 4, 0]


@pytest.mark.parametrize(
    "body",
    [
        "def forward(x):\n    x -= 0.5\n    return x * 2\n\n\nforward(leaf)",
        "def scale(loss):\n    loss *= 2\n    return loss / 4\n\n\nscale(leaf)",
        "import torch.nn.functional as F\n\nF.relu(leaf, inplace=True)",
        "torch.nn.ReLU(inplace=True)(leaf)",
    ],
)
def test_activations_are_left_to_the_other_rules(program: Make, body: str) -> None:
    assert offers(program(f"import torch\n\nleaf = torch.ones(3, requires_grad=True)\n{body}\n")) == []


INNER = """
import torch

torch.manual_seed(0)
meta = {{"a": torch.randn(3, requires_grad=True), "b": torch.randn(3, requires_grad=True)}}
x = torch.randn(3)


def loss_of(ws):
    return (ws["a"].pow(3) * x).sum() * ws["b"].exp().sum()


def inner(ws, lr):
    grads = torch.autograd.grad(loss_of(ws), list(ws.values()), create_graph=True)
{loop}
    return ws


fast = {{k: v.clone() for k, v in meta.items()}}
fast = inner(fast, 0.1)
loss_of(fast).backward()
"""
LOOPS = [
    "    for w, g in zip(ws.values(), grads):\n        w -= lr * g  # <- write",
    "    for (k, w), g in zip(ws.items(), grads):\n        w.sub_(lr * g)  # <- write",
]


@pytest.mark.parametrize("loop", LOOPS)
def test_inner_loop_keeps_the_outer_gradient(program: Make, loop: str) -> None:
    before = program(INNER.format(loop=loop))
    assert before.failure().raised.category == "version"
    incident = before.conflict("write", "write", "write", optimizer=None)
    site = RULE.claim(incident, before.project)
    (rewrite,) = RULE.rewrites(site, before.project, incident)
    assert rewrite.applicability == "safe"
    got = before.apply(rewrite).run()
    reference = INNER.format(loop="    ws = {k: w - lr * g for (k, w), g in zip(ws.items(), grads)}")
    want = program(reference).run()
    for name in "ab":
        torch.testing.assert_close(got["meta"][name].grad, want["meta"][name].grad, rtol=0, atol=0)


def test_inference_tensor(program: Make) -> None:
    code = """
    import torch

    def bank(x):
        with torch.inference_mode():
            feat = x * 2
        kept = feat
        feat /= feat.norm()
        return kept, feat

    kept, feat = bank(torch.tensor([3.0, 4.0]))
    """
    before = program(code)
    rewrites = offers(before)
    assert len(rewrites) == 2
    for rewrite in rewrites:
        got = before.apply(rewrite).run()
        torch.testing.assert_close(got["feat"], torch.tensor([0.6, 0.8]))
        torch.testing.assert_close(got["kept"], torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize(
    ("write", "want"), [("i *= 0.5", [0, 1, 1]), ("i /= 2", [0, 1, 1]), ("i *= 0.25", [0, 0, 0]), ("i /= 3", [0, 0, 1])]
)
def test_integers_stay_integers(program: Make, write: str, want: list[int]) -> None:
    got = mended(program(f"import torch\n\ni = torch.tensor([0, 2, 3])\nshared = i\n{write}\n"))
    assert got["shared"] is got["i"]
    assert got["i"].tolist() == want
    assert got["i"].dtype == torch.int64


def test_other_fractions_are_only_shown(program: Make) -> None:
    before = program("import torch\n\ni = torch.tensor([0, 2, 3])\ni *= 0.3\n")
    (rewrite,) = offers(before)
    assert rewrite.applicability == "display"


def test_a_right_side_that_needs_autograd_is_not_put_under_no_grad(program: Make) -> None:
    code = """
    import torch

    w = torch.ones(3, requires_grad=True)
    w -= 0.1 * torch.autograd.grad(w.pow(2).sum(), w)[0]
    """
    assert offers(program(code)) == []


def test_the_popular_cures_are_wrong(program: Make) -> None:
    """`w = w - lr * w.grad` gives a tensor that is no leaf: its next gradient is None."""
    code = "import torch\n\nw = torch.ones(2, requires_grad=True)\nw.sum().backward()\nw = w - 0.1 * w.grad\n"
    got = program(code + "w.sum().backward()\n").run()
    assert not got["w"].is_leaf
    with pytest.warns(UserWarning, match="not a leaf"):
        assert got["w"].grad is None
