"""Loops that fill a buffer: the list of rows computes what the code meant, and only where every access is to rows."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

import pytest
import torch

from deinplace.analysis.source import Source
from deinplace.model import Rewrite
from deinplace.rewrite.apply import apply, check
from deinplace.rules import static_candidates
from deinplace.rules.base import Project
from deinplace.rules.buffer_loop import BufferLoop

PATH = "/tree/program.py"

FITTING = {
    "recurrence": """
        def program(w, x):
            out = torch.zeros(2, 5, 3)
            for t in range(5):
                out[:, t] = torch.tanh(out[:, t - 1] @ w + x)
            return out
    """,
    "first row is put in before the loop": """
        def program(w, x):
            out = torch.zeros(2, 5, 3)
            out[:, 0, :] = x
            for t in range(1, 5):
                out[:, t, :] = torch.tanh(out[:, t - 1, :] @ w)
            return out.sum(1)
    """,
    "two buffers and a write of the same row again": """
        def program(w, x):
            alpha = torch.zeros(2, 4, 3)
            scale = torch.zeros(2, 4)
            for t in range(4):
                alpha[:, t] = (alpha[:, t - 1] @ w).exp() + 1
                scale[:, t] = alpha[:, t].sum(1)
                alpha[:, t] = alpha[:, t] / scale[:, t].unsqueeze(1)
            return scale.log()
    """,
    "augmented": """
        def program(w, x):
            h = torch.ones(4, 3)
            for i in range(1, 4):
                h[i] += h[i - 1] * w[0] if i > 1 else w[1]
                h[i] *= h[i - 1] + 2  # twice
            return h
    """,
    "last dimension": """
        def program(w, x):
            h = torch.ones(2, 3, 4)
            for i in range(1, 4):
                h[..., i] = torch.sin(h[..., i - 1] * x)
            return h
    """,
    "numbers": """
        def program(w, x):
            h = torch.ones(4, 3)
            for i in range(1, 4):
                if i == 2:
                    h[i] = 0.5
                else:
                    h[i] = h[i - 1] * w[0]
            return h
    """,
    "columns of a row": """
        def program(w, x):
            h = torch.ones(2, 4, 3)
            for i in range(1, 4):
                h[:, i] = torch.cat([h[:, i - 1, 1:] * x[:, 1:], h[:, i - 1, :1]], 1).exp()
            return h
    """,
    "rows so far": """
        def program(w, x):
            h = torch.ones(2, 5, 3)
            for i in range(1, 5):
                h[:, i] = torch.tanh(h[:, :i].pow(2).mean(1) @ w)
            return h
    """,
    "table": """
        def program(w, x):
            r = torch.full((4, 4), 0.3)
            r[0, 0] = 0.0
            for i in range(1, 4):
                for j in range(1, 4):
                    r[i, j] = w[0, 0] + torch.exp(-r[i - 1, j] * r[i, j - 1]) * r[i - 1, j - 1]
            return r[-1, -1]
    """,
    "batched table": """
        def program(w, x):
            r = torch.ones(2, 4, 4)
            for i in range(1, 4):
                for j in range(1, 4):
                    r[:, i, j] = torch.logsumexp(torch.stack([r[:, i - 1, j] * x[:, 0], r[:, i, j - 1]]), 0)
            return r
    """,
    "two loops, there and back": """
        def program(w, x):
            h = torch.ones(5, 3)
            for i in range(1, 5):
                h[i] = torch.tanh(h[i - 1] * w[0])
            for i in range(3, -1, -1):
                h[i] = torch.tanh(h[i + 1] + h[i] * w[1])
            return h
    """,
    "while": """
        def program(w, x):
            h = torch.ones(5, 3)
            i = 1
            while i < h.size(0):
                h[i] = torch.tanh(h[i - 1] * w[0])
                i += 1
                if i == 4:
                    break
            return h
    """,
    "length asked in the loop": """
        def program(w, x):
            h = x.exp().repeat(2, 1)
            for i in range(1, h.shape[0]):
                h[i] = h[i - 1] * h[i] * w[0]
            return h
    """,
    "a state that is updated in place after it was put in": """
        def program(w, x):
            out = torch.zeros(2, 5, 3)
            h = x * 1
            for t in range(5):
                out[:, t] = h
                h += (out[:, t] * out[:, t - 1]) @ w
            return out
    """,
    "an outer loop per sample": """
        def program(w, x):
            total = 0
            for sample in x:
                h = torch.zeros(4, 3)
                h[0] = sample
                for i in range(1, 4):
                    h[i] = torch.sigmoid(h[i - 1] @ w)
                total = total + h.pow(2).sum()
            return total
    """,
}

UNFIT = {
    "whole buffer goes to a call": "out[t] = f(out)",
    "part of a row": "out[t, :2] = out[t - 1, :2] * w[0, :2]",
    "a row is written through": "out[t] = out[t - 1] * w[0]; out[t].zero_()",
    "an element of a row is written": "out[t] = out[t - 1] * w[0]; out[t][0] = 1",
    "rebound in the loop": "out = out * 1; out[t] = out[t - 1] * w[0]",
    "deleted": "out[t] = out[t - 1] * w[0]; del out[0]",
    "steps": "out[t] = out[0:4:2].sum(0) * w[0]",
    "read by a lambda": "out[t] = out[t - 1] * w[0]; g = lambda: out.sum()",
}


def parsed(text: str) -> Source:
    """A file in memory."""
    return Source.parse(PATH, ("import torch\n" + textwrap.dedent(text)).encode())


def offers(source: Source) -> list[Rewrite]:
    """What the rule offers for its first site."""
    project = Project({source.path: source})
    sites = list(BufferLoop().find(source))
    return [r for _, r in static_candidates(sites[0], project)] if sites else []


def settled(source: Source) -> Source:
    """The file after the first offer for each buffer."""
    for _ in range(4):
        found = [r for r in offers(source) if not r.costly]
        if not found:
            return source
        source = check(source, apply(source, found[0].edits), found[0].edits)
    pytest.fail("the rule finds its own work")


def grads(source: Source, cloned: bool) -> list[torch.Tensor]:
    """Result and gradients; `cloned` with every saved tensor copied, which is what the code means."""
    space: dict[str, Callable[..., torch.Tensor]] = {}
    exec(compile(source.text, PATH, "exec"), space)
    torch.manual_seed(0)
    w, x = torch.randn(3, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    if not cloned:
        out = space["program"](w, x)
        out.pow(2).sum().backward()
    else:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            out = space["program"](w, x)
            out.pow(2).sum().backward()
    return [out.detach(), *(p.grad if p.grad is not None else torch.zeros(0) for p in (w, x))]


def assert_equal(left: Iterable[torch.Tensor], right: Iterable[torch.Tensor]) -> None:
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("text", FITTING.values(), ids=FITTING.keys())
def test_a_list_of_rows_computes_what_was_meant(text: str) -> None:
    before = parsed(text)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grads(before, cloned=False)
    after = settled(before)
    assert "list(" in after.text
    assert_equal(grads(after, cloned=False), grads(before, cloned=True))


@pytest.mark.parametrize("line", UNFIT.values(), ids=UNFIT.keys())
def test_stays_away_from_other_accesses(line: str) -> None:
    body = f"def program(w, x, f=torch.sum):\n    out = torch.zeros(4, 3)\n    for t in range(1, 4):\n        {line}\n"
    assert offers(parsed(body + "    return out\n")) == []


def test_values_that_the_write_would_spread() -> None:
    before = parsed("""
        def program(w, x):
            h = torch.ones(4, 3)
            for i in range(1, 4):
                h[i] = (h[i - 1] * w[0]).exp().mean(0, keepdim=True)
            return h
    """)
    spread = next(r for r in offers(before) if "spread" in r.title)
    after = check(before, apply(before, spread.edits), spread.edits)
    assert_equal(grads(after, cloned=False), grads(before, cloned=True))


def test_a_copy_of_the_rows_so_far_says_what_it_costs() -> None:
    first = offers(parsed(FITTING["rows so far"]))[0]
    assert "in every round" in first.note


def test_taking_the_buffer_apart_in_every_round_is_costly() -> None:
    found = offers(parsed(FITTING["table"]))
    assert [r.costly for r in found] == [False, False, True, True]
