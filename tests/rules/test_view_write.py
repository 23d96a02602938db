"""Writes to views that must not be written: the base, and everybody who shares it, still gets the right values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from deinplace.model import Rewrite
from deinplace.rules.view_write import ViewWrite

RULE = ViewWrite()
Make = Callable[[str], Any]

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
leaf = torch.randn(4, 6, requires_grad=True)
scales = torch.tensor([0.5, 1.0, 2.0, 4.0], requires_grad=True)
"""


def offers(before: Any) -> list[Rewrite]:
    incident = before.failure()
    site = RULE.claim(incident, before.project)
    assert site is not None
    advice = RULE.advice(site, before.project, incident)
    assert f"line {site.span.line} writes" in advice
    return list(RULE.rewrites(site, before.project, incident))


def gradients(got: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(v.grad for k, v in sorted(got.items()) if isinstance(v, torch.Tensor) and v.is_leaf)


def first_that_runs(before: Any, rewrites: list[Rewrite]) -> tuple[Rewrite, dict[str, Any]]:
    for rewrite in rewrites:
        after = before.apply(rewrite)
        if after.steps_if_it_runs() is not None:
            return rewrite, after.globals
    pytest.fail("no rewrite runs: " + "\n".join(r.title for r in rewrites))


SPLITS = [
    ("a, b = h.chunk(2, dim=-1)", "a, b = h[:, :3], h[:, 3:]"),
    ("a, b = torch.chunk(h, 2, 1)", "a, b = h[:, :3], h[:, 3:]"),
    ("a, b = h.split(3, dim=1)", "a, b = h[:, :3], h[:, 3:]"),
    ("a, b = h.split([2, 4], dim=1)", "a, b = h[:, :2], h[:, 2:]"),
    ("a, b = torch.split(h, (1, 3), 0)", "a, b = h[:1], h[1:]"),
    ("a, _, b, _ = h.unbind(0)", "a, b = h[0], h[2]"),
    ("a, _, b, _ = torch.unbind(h)", "a, b = h[0], h[2]"),
]


@pytest.mark.parametrize(("split", "by_hand"), SPLITS)
@pytest.mark.parametrize("write", ["a += 1", "a.add_(1)", "a[...] = a + 1", "b.mul_(3)\n    a += 2"])
def test_the_base_sees_the_write(program: Make, split: str, by_hand: str, write: str) -> None:
    code = HEAD + "\n\ndef f(x):\n    h = x * 2\n    SPLIT\n    WRITE\n    return a, b, h\n\n\n"
    code = (code + "a, b, h = f(leaf)\n(a.sum() * b.sin().sum() + h.cos().sum()).backward()\n").replace("WRITE", write)
    before = program(code.replace("SPLIT", split))
    rewrite, got = first_that_runs(before, offers(before))
    assert rewrite.applicability == "safe"
    want = program(code.replace("SPLIT", by_hand)).run()
    torch.testing.assert_close(got["h"], want["h"], rtol=0, atol=0)
    torch.testing.assert_close(got["leaf"].grad, want["leaf"].grad, rtol=0, atol=0)


def test_views_share_one_version_so_the_base_is_rebuilt(program: Make) -> None:
    """`tanh_` saves its output, `sigmoid_` on the other half bumps the same counter: single views do not do."""
    code = (
        HEAD
        + """

def f(x):
    h = x * 2
    a, b = h.chunk(2, dim=-1)
    a.tanh_()
    b.sigmoid_()
    return a * b, h


y, h = f(leaf)
(y.sum() + h.cos().sum()).backward()
"""
    )
    before = program(code)
    rewrites = offers(before)
    rewrite, got = first_that_runs(before, rewrites)
    assert rewrite.applicability == "safe"
    assert "put `h` together" in rewrite.title
    leaf = got["leaf"].detach().requires_grad_()
    a, b = (leaf * 2).chunk(2, -1)
    a, b = a.tanh(), b.sigmoid()
    ((a * b).sum() + torch.cat((a, b), -1).cos().sum()).backward()
    torch.testing.assert_close(got["leaf"].grad, leaf.grad)
    assert [r.applicability for r in rewrites if r.title.startswith("clone the parts")] == ["unsafe"]


def test_clones_where_nobody_reads_the_base(program: Make) -> None:
    code = HEAD + "\na, b = (leaf * 2).chunk(2, -1)\na *= 3\n(a * b).sum().backward()\n"
    before = program(code)
    rewrite, got = first_that_runs(before, offers(before))
    assert rewrite.applicability == "safe"
    leaf = got["leaf"].detach().requires_grad_()
    a, b = (leaf * 2).chunk(2, -1)
    (a * 3 * b).sum().backward()
    torch.testing.assert_close(got["leaf"].grad, leaf.grad)


@pytest.mark.parametrize(
    ("loop", "by_hand"),
    [
        ("for row in h:\n        row *= 3", "h = h * 3"),
        ("for row, s in zip(h, scales):\n        row.mul_(s)", "h = h * scales[:, None]"),
        ("for i, row in enumerate(h):\n        row.add_(i)", "h = h + torch.arange(4)[:, None]"),
        ("for part in h.unbind(1):\n        part += 1", "h = h + 1"),
        ("for k, part in enumerate(torch.unbind(h, dim=1)):\n        part += k", "h = h + torch.arange(6)"),
        ("rows = h.unbind(0)\n    for row in rows:\n        row *= 2", "h = h * 2"),
    ],
)
def test_loops_over_a_tensor(program: Make, loop: str, by_hand: str) -> None:
    code = HEAD + "\n\ndef f(x):\n    h = x * 2\n    LOOP\n    return h\n\n\nh = f(leaf)\nh.sin().sum().backward()\n"
    before = program(code.replace("LOOP", loop))
    rewrite, got = first_that_runs(before, offers(before))
    assert rewrite.applicability == "safe"
    want = program(code.replace("LOOP", by_hand)).run()
    torch.testing.assert_close(got["h"], want["h"])
    torch.testing.assert_close(gradients(got), gradients(want))


@pytest.mark.parametrize(
    ("make", "write"),
    [
        ("g = row.expand_as(x)", "g[:] = g * x"),
        ("g = row.expand(4, 6)", "g += x"),
        ("g = torch.broadcast_to(row, (4, 6))", "g.mul_(x)"),
        ("g = row.expand(4, 6)", "part = g[:, :2]\n    part *= x[:, :2]"),
        ("g, _ = torch.broadcast_tensors(row, x)", "g += x"),
    ],
)
def test_expanded_memory(program: Make, make: str, write: str) -> None:
    code = HEAD + "\n\ndef f(row, x):\n    MAKE\n    WRITE\n    return g\n\n\nx = torch.randn(4, 6)\n"
    code = (code + "g = f(leaf[0] * 2, x)\n(g.sin()).sum().backward()\n").replace("WRITE", write)
    before = program(code.replace("MAKE", make))
    rewrite, got = first_that_runs(before, offers(before))
    assert rewrite.applicability == "safe"
    want = program(code.replace("MAKE", "g = row.repeat(4, 1)")).run()
    torch.testing.assert_close(got["g"], want["g"])
    torch.testing.assert_close(got["leaf"].grad, want["leaf"].grad)


def test_expanded_by_the_caller(program: Make) -> None:
    code = (
        HEAD
        + """

def scale(g, x):
    g *= x


def f(row, x):
    g = row.expand_as(x)
    scale(g, x)
    return g


x = torch.randn(4, 6)
g = f(leaf[0] * 2, x)
g.sum().backward()
"""
    )
    before = program(code)
    _, got = first_that_runs(before, offers(before))
    torch.testing.assert_close(got["g"], (got["leaf"][0] * 2 * got["x"]))


@pytest.mark.filterwarnings("ignore:Use of")
def test_a_masked_write_to_expanded_memory_raises_in_backward(program: Make) -> None:
    code = (
        HEAD
        + """

def f(row, eps):
    g = row.view(1, 6).expand(4, 6)
    k = row.view(6, 1).expand(6, 6)
    g[g < eps] = eps
    k[k < eps] = eps
    return g.log().sum() + k.log().sum()


f(leaf[0] * 2, 0.5).backward()
"""
    )
    before = program(code)
    (rewrite,) = offers(before)
    assert rewrite.applicability == "safe"
    got = before.apply(rewrite).run()
    leaf = got["leaf"].detach().requires_grad_()
    row = (leaf[0] * 2).clamp(min=0.5)
    (row.log().sum() * 4 + row.log().sum() * 6).backward()
    torch.testing.assert_close(got["leaf"].grad, leaf.grad)


def test_hooked_output(program: Make) -> None:
    code = (
        HEAD
        + """
net = nn.Linear(6, 6)
net.register_full_backward_hook(lambda m, gi, go: None)
out = net(leaf)
out += 1
out.sin().sum().backward()
"""
    )
    before = program(code)
    rewrite, got = first_that_runs(before, offers(before))
    assert "net(leaf).clone()" in before.apply(rewrite).code
    leaf = got["leaf"].detach().requires_grad_()
    (torch.nn.functional.linear(leaf, got["net"].weight, got["net"].bias) + 1).sin().sum().backward()
    torch.testing.assert_close(got["leaf"].grad, leaf.grad)


def test_uneven_parts_are_unsafe(program: Make) -> None:
    """`chunk(3)` of 7 gives 3, 3, 1; `tensor_split(3)` gives 3, 2, 2."""
    assert [len(p) for p in torch.zeros(7).chunk(3)] == [3, 3, 1]
    assert [len(p) for p in torch.zeros(7).tensor_split(3)] == [3, 2, 2]
    code = HEAD + "\nh = leaf * 2\na, b, c = h.chunk(3, 1)\na += 1\nh.sum().backward()\n"
    single = next(r for r in offers(program(code)) if "single views" in r.title)
    assert single.applicability == "unsafe"
    assert "divides evenly" in single.note


def test_a_caller_that_keeps_the_tensor(program: Make) -> None:
    code = HEAD + "\n\ndef f(h):\n    for row in h:\n        row += 1\n\n\nh = leaf * 2\nf(h)\nh.sum().backward()\n"
    before = program(code)
    by_index, cloned = offers(before)
    assert by_index.applicability == "safe"
    got = before.apply(by_index).run()
    torch.testing.assert_close(got["h"], got["leaf"] * 2 + 1)
    assert cloned.applicability == "unsafe"
    assert "caller" in cloned.note
