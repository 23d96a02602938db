"""The functions for users' tests: what they accept, what they refuse, and what they say."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import deinplace
import deinplace.testing
from deinplace import InPlaceError, assert_same_gradients, watch


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, deinplace; assert callable(deinplace.watch); print('torch' in sys.modules, dir(deinplace))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("False") and "assert_same_gradients" in printed


def test_examples_in_docstrings() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(deinplace.testing, optionflags=flags)
    assert result.attempted >= 8 and result.failed == 0


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Boxes:
    corners: torch.Tensor
    label: str


class Layer(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = scale
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.linear(x)) * self.scale


X = torch.tensor([0.5, -1.0, 2.0])
CAPTURED = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)


def in_place(x: torch.Tensor) -> torch.Tensor:
    x += 1
    return x * x


def aside(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    return x * x


SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, dict[str, Any]]] = {
    "a single tensor": (torch.exp, lambda x: x.exp(), X, {}),
    "keywords": (lambda x, s=1: x * s, lambda x, s=1: s * x, (X,), {"kwargs": {"s": 3}}),
    "no inputs": (lambda: CAPTURED * 2, lambda: CAPTURED + CAPTURED, (), {}),
    "nested containers": (
        lambda d: {"sum": d["a"][0] + d["a"][1], "rest": [d["b"].left, (d["b"].right, "x")]},
        lambda d: {"sum": d["a"][1] + d["a"][0], "rest": [d["b"].left * 1, (d["b"].right, "x")]},
        ({"a": (X, X * 2), "b": Pair(X, X)},),
        {},
    ),
    "dataclass results": (lambda x: Boxes(x * 2, "car"), lambda x: Boxes(x + x, "car"), X, {}),
    "whole numbers": (lambda x, i: x[i], lambda x, i: x.index_select(0, i), (X, torch.tensor([2, 0])), {}),
    "the same random numbers": (lambda x: x * torch.rand(3), lambda x: torch.rand(3) * x, X, {}),
    "both write their argument": (in_place, lambda x: in_place(x), X, {}),
    "an argument that may change": (in_place, aside, X, {"arguments": False}),
    "float64": (lambda x: x.sin() ** 2, lambda x: 1 - x.cos() ** 2, X, {"dtype": torch.float64, "atol": 1e-12}),
    "half": (lambda x: (x * 3).to(torch.bfloat16), lambda x: (x + x + x).to(torch.bfloat16), X, {}),
    "complex": (lambda z: z * z.conj(), lambda z: z.abs() ** 2 + 0j, torch.tensor([1 + 2j, 3 - 1j]), {}),
    "a NaN in the same place": (lambda x: x.log(), lambda x: torch.log(x), X, {"loss": lambda y: y.nansum()}),
    "no gradient at all": (lambda x: x.argmax().item(), lambda x: int(x.argmax()), X, {}),
    "one tensor passed twice": (lambda a, b: a * b, lambda a, b: a**2, (X, X), {"atol": 1e-6}),
}


@pytest.mark.parametrize(("f", "g", "inputs", "more"), SAME.values(), ids=SAME.keys())
def test_the_same(f: Callable[..., Any], g: Callable[..., Any], inputs: Any, more: dict[str, Any]) -> None:
    before = torch.random.get_rng_state(), X.clone()
    assert_same_gradients(f, g, inputs, **more)
    assert torch.equal(torch.random.get_rng_state(), before[0]), "random numbers are as they were"
    assert torch.equal(X, before[1]) and X.grad is None and CAPTURED.grad is None, "inputs are as they were"


DIFFERENT: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, dict[str, Any], str]] = {
    "a value": (lambda x: x * 2, lambda x: x * 3, X, {}, r"result: 3 of 3 elements differ, by up to 2 at \(2,\)"),
    "a detached term": (
        lambda x, y: x * y,
        lambda x, y: x * y.detach(),
        (X, X * 2),
        {},
        r"gradient of argument 1: f gives a tensor of shape \(3,\), g gives none",
    ),
    "only a gradient": (
        lambda x: x.relu(),
        lambda x: x.detach().relu() + x - x.detach(),
        (X,),
        {},
        r"gradient of argument 0: 1 of 3 elements differ, .* at \(1,\): f gives 0, g gives",
    ),
    "a gradient of a captured leaf": (
        lambda x: x * CAPTURED,
        lambda x: x * (2 * CAPTURED - CAPTURED.detach()),
        X,
        {},
        r"gradient of captured leaf 0 \(3,\): 3 of 3",
    ),
    "what is left in an argument": (in_place, aside, X, {}, r"after the call, argument 0: 3 of 3 elements differ"),
    "a dtype": (lambda x: x, lambda x: x.double(), X, {}, "f gives dtype torch.float32, g gives dtype torch.float64"),
    "a shape": (lambda x: x, lambda x: x[None], X, {}, r"result: f gives shape \(3,\), g gives shape \(1, 3\)"),
    "a structure": (lambda x: (x, x), lambda x: [x], X, {}, r"f gives \[0\] \(Tensor\), \[1\] \(Tensor\), g"),
    "requires_grad": (lambda x: x, lambda x: x.detach(), X, {}, "requires_grad True, g gives requires_grad False"),
    "a plain value": (lambda x: (x, "a"), lambda x: (x, "b"), X, {}, r"result\[1\]: f gives 'a', g gives 'b'"),
    "a float": (lambda x: 1.0, lambda x: 1.1, X, {}, "result: f gives 1.0, g gives 1.1"),
    "an error in g": (lambda x: x, lambda x: x.view(2, 2), X, {}, "f returns, g raises RuntimeError: shape"),
    "a tight tolerance": (lambda x: x, lambda x: x * (1 + 1e-6), X, {"rtol": 1e-8, "atol": 0.0}, "result: 3 of 3"),
    "a loss": (lambda x: x, lambda x: 2 * x - x.detach(), X, {"loss": lambda y: y[0]}, "argument 0: 1 of 3"),
}  # fmt: skip


@pytest.mark.parametrize(("f", "g", "inputs", "more", "words"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_differs_is_named(
    f: Callable[..., Any], g: Callable[..., Any], inputs: Any, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        assert_same_gradients(f, g, inputs, **more)


def test_modules_share_the_parameters_of_the_first() -> None:
    net, other, wrong = Layer(), Layer(), Layer(2.0)
    assert_same_gradients(net, other, torch.randn(2, 3))
    assert_same_gradients(net.twice, other.twice, torch.randn(2, 3), dtype=torch.float64)
    assert_same_gradients(lambda m, x: m(x), lambda m, x: m.forward(x), (net, torch.randn(2, 3)))
    assert net.linear.weight.grad is None
    with pytest.raises(AssertionError, match="result: 6 of 6"):
        assert_same_gradients(net, wrong, torch.randn(2, 3))
    with pytest.raises(
        AssertionError, match=r"gradient of linear\.bias: f gives a tensor of shape \(3,\), g gives none"
    ):
        assert_same_gradients(net, Detached(), torch.randn(2, 3))


class Detached(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.linear.weight, self.linear.bias.detach())


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y += 1
    return y


def test_an_original_that_fails_is_repaired() -> None:
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        assert_same_gradients(broken, lambda x: x.exp() + 1, X)
    assert_same_gradients(broken, lambda x: x.exp() + 1, X, repair=True)
    with pytest.raises(AssertionError, match="gradient of argument 0"):
        assert_same_gradients(broken, lambda x: (x.exp() + 1) * 2 - x.exp().detach() - 1, X, repair=True)


def test_watch_names_both_lines() -> None:
    x = X.clone().requires_grad_()
    with pytest.raises(InPlaceError) as caught, watch():
        broken(x).sum().backward()
    error = caught.value
    first = broken.__code__.co_firstlineno
    assert error.saved is not None and error.overwritten is not None
    assert (error.saved[1:], error.overwritten[1:]) == ((first + 1, "broken"), (first + 2, "broken"))
    assert "y = x.exp()" in str(error) and "y += 1" in str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert "is at version 1; expected version 0" in str(error.__cause__)


@watch()
def decorated(x: torch.Tensor) -> None:
    broken(x).sum().backward()


def test_watch_decorates_a_test() -> None:
    with pytest.raises(InPlaceError):
        decorated(X.clone().requires_grad_())


def test_watch_finds_hidden_writes_unless_told_not_to() -> None:
    def hidden() -> None:
        y = X.clone().requires_grad_().exp()
        y.data.mul_(2)
        y.sum().backward()

    with pytest.raises(InPlaceError, match="overwrote it unseen"), watch():
        hidden()
    with watch(hidden=False):
        hidden()


def test_watch_says_where_autograd_refuses_a_write() -> None:
    with pytest.raises(InPlaceError, match="a leaf Variable that requires grad") as caught, watch():
        in_place(X.clone().requires_grad_())
    assert caught.value.overwritten is not None and caught.value.overwritten[2] == "in_place"
    assert caught.value.__cause__ is not None


def test_watch_leaves_everything_else_alone() -> None:
    hooks = torch.autograd.graph.saved_tensors_hooks.__init__
    with pytest.raises(RuntimeError, match="shape") as caught, watch():
        X.view(2, 2)
    assert type(caught.value) is RuntimeError
    x = X.clone().requires_grad_()
    with watch():
        y = x.exp()
        z = x * 2
        z += 1  # nothing that backward needs
        kept = torch.utils.checkpoint.checkpoint(torch.exp, x, use_reentrant=False)
        jacobian = torch.func.jacrev(torch.exp)(X)
    assert torch.autograd.graph.saved_tensors_hooks.__init__ is hooks
    (y.sum() + z.sum() + kept.sum()).backward()
    assert x.grad is not None and torch.allclose(x.grad, 2 * X.exp() + 2)
    assert torch.allclose(jacobian, torch.diag(X.exp()))


def test_a_write_after_the_block_still_raises() -> None:
    with watch():
        y = X.clone().requires_grad_().exp()
    y += 1
    with pytest.raises(InPlaceError, match="backward needs the output of exp") as caught:
        y.sum().backward()
    assert caught.value.overwritten is None and caught.value.saved is not None
