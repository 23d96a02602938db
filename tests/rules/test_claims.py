"""What the pages of `explain` say of popular claims: each is reproduced here, by running it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from deinplace.rules import rule

PAGES = {
    "DIP101": (
        "corrupts `running_mean` in eval mode",
        "F.sigmoid(x, inplace=True)",
        "in-place GELU",
        "every flag has to go",
    ),
    "DIP102": ("x = x / a + b", "w = w - lr * w.grad"),
    "DIP103": ("`.data` mends the error",),
    "DIP105": ("become `torch.where`",),
    "DIP107": ("in-place writes after `clone()` give silently wrong gradients",),
    "DIP201": ("all backward() first, then all step()",),
    "DIP202": ("`retain_graph=True` mends",),
}
MODIFIED = "modified by an inplace operation"


@pytest.mark.parametrize(("code", "claims"), PAGES.items())
def test_the_page_names_the_claim_as_wrong(code: str, claims: tuple[str, ...]) -> None:
    page = " ".join((inspect.getdoc(type(rule(code))) or "").split())
    wrong = page.split(", and wrong:", 1)[1]
    assert [c for c in claims if c not in wrong] == []


def test_running_mean_stays_in_eval_mode() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU(inplace=True)).eval()
    before = net[0].running_mean.clone()
    net(torch.randn(4, 3)).sum().backward()
    assert torch.equal(net[0].running_mean, before)


def test_sigmoid_refuses_the_flag() -> None:
    with pytest.raises(TypeError, match="inplace"):
        nn.functional.sigmoid(torch.ones(1), inplace=True)  # type: ignore[call-arg]


def test_gelu_takes_no_flag() -> None:
    with pytest.raises(TypeError, match="inplace"):
        nn.GELU(inplace=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="inplace"):
        nn.functional.gelu(torch.ones(1), inplace=True)
    assert not hasattr(torch.Tensor, "gelu_")


@pytest.mark.parametrize(
    "layer", [nn.Linear(3, 3), nn.Conv1d(2, 3, 1), nn.BatchNorm1d(2)], ids=lambda m: type(m).__name__
)
def test_a_flag_behind_a_layer_that_saves_inputs_is_harmless(layer: nn.Module) -> None:
    x = torch.randn(4, 2, 3)
    grads = []
    for inplace in (True, False):
        layer.zero_grad()
        nn.Sequential(layer, nn.ReLU(inplace=inplace))(x).pow(2).sum().backward()
        grads.append([p.grad.clone() for p in layer.parameters() if p.grad is not None])
    assert grads[0] and all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_writes_after_clone_give_right_gradients() -> None:
    w = torch.randn(3, requires_grad=True)
    y = torch.sigmoid(w)
    z = y.clone()
    z.mul_(3).add_(1)
    z.sum().backward()
    s = torch.sigmoid(w.detach())
    torch.testing.assert_close(w.grad, 3 * s * (1 - s))


def test_data_hides_the_write_and_the_gradient_is_wrong() -> None:
    w = torch.full((2,), 3.0, requires_grad=True)
    x = w * 1
    y = x * x
    x.data.mul_(2)
    y.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [12.0, 12.0]  # 6 is right


def test_where_turns_a_branch_not_taken_into_nan() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    torch.where(x > 0, x.sqrt(), torch.zeros(())).sum().backward()
    assert x.grad is not None and x.grad[0].isnan()
    x.grad = None
    y = x * 1
    y = y.masked_fill(x <= 0, 1.0)
    (y.sqrt() * (x > 0)).sum().backward()
    assert x.grad.tolist() == [0.0, 0.25]


def test_the_right_side_needs_its_parentheses() -> None:
    x, a, b = torch.tensor(12.0), 2.0, 4.0
    meant = x.clone()
    meant /= a + b
    assert (meant.item(), (x / a + b).item()) == (2.0, 10.0)


def test_an_out_of_place_step_is_no_leaf() -> None:
    w = torch.ones(2, requires_grad=True)
    (w * w).sum().backward()
    w = w - 0.1 * w.grad
    assert not w.is_leaf
    (w * w).sum().backward()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert w.grad is None


def _two_losses(folk: bool) -> list[torch.Tensor]:
    """Gradients that the first optimizer consumes; the second loss reaches its parameters, too."""
    torch.manual_seed(0)
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    steps = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]
    h = first(torch.ones(3, 2))
    losses = (h.pow(2).mean(), torch.tanh(second(h)).mean())
    for each in steps:
        each.zero_grad()
    losses[0].backward(retain_graph=True)
    if folk:
        losses[1].backward()
    return [p.grad.clone() for p in first.parameters() if p.grad is not None]


def test_all_backwards_first_mixes_gradients() -> None:
    literal, folk = _two_losses(folk=False), _two_losses(folk=True)
    assert not any(torch.allclose(a, b) for a, b in zip(literal, folk, strict=True))


def test_retain_graph_turns_one_error_into_the_other() -> None:
    def train(retain: bool) -> None:
        torch.manual_seed(0)
        cell = nn.RNNCell(2, 2)
        opt = torch.optim.SGD(cell.parameters(), lr=0.1)
        h = torch.zeros(1, 2)
        for _ in range(3):
            h = cell(torch.ones(1, 2), h)
            opt.zero_grad()
            h.sum().backward(retain_graph=retain)
            opt.step()

    with pytest.raises(RuntimeError, match="second time"):
        train(retain=False)
    with pytest.raises(RuntimeError, match=MODIFIED):
        train(retain=True)


class Square(torch.autograd.Function):
    """Keeps its input as an attribute, where no version is checked."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.kept = x
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return 2 * ctx.kept * grad


class Doubled(torch.autograd.Function):
    """Writes its input; `mark` says whether it tells autograd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mark: bool) -> torch.Tensor:
        x.mul_(2)
        if mark:
            ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return 2 * grad, None


def test_an_attribute_of_ctx_has_no_version_check() -> None:
    w = torch.full((1,), 3.0, requires_grad=True)
    x = w * 1
    y = Square.apply(x)
    x.mul_(10)
    y.sum().backward()
    assert w.grad is not None and w.grad.item() == 60  # 6 is right


@pytest.mark.parametrize(("mark", "grad"), [(True, 2.0), (False, 1.0)])
def test_a_write_without_mark_dirty_keeps_the_old_graph(mark: bool, grad: float) -> None:
    w = torch.full((1,), 3.0, requires_grad=True)
    x = w * 1
    Doubled.apply(x, mark)
    x.sum().backward()
    assert x.item() == 6 and w.grad is not None and w.grad.item() == grad
