"""Masked and indexed writes: each offer computes what the write meant, duplicates and accumulation included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from deinplace.analysis.source import Source, span_of
from deinplace.model import Conflict, Event, Place, Rewrite
from deinplace.rewrite.apply import apply, check
from deinplace.rules import candidates
from deinplace.rules.base import Incident, Project

PATH = "/tree/program.py"
HEAD = "import torch\n\n\ndef program(w):\n    y = torch.sigmoid(w)\n"
TAIL = "    return y\n"

WRITES = {
    "mask and number": ("y[y > 0.5] = 0.0", "masked_fill"),
    "two masks": ("y[(y > 0.2) & ~(y > 0.5)] = -1", "masked_fill"),
    "mask from elsewhere": ("mask = w > 0\n    y[mask] = 0.0", ".clone()"),
    "mask and tensor": ("mask = w > 0\n    y[mask] = w[mask] * 2", "index_put"),
    "row mask": ("rows = torch.tensor([True, False, True])\n    y[rows] = w[rows].exp()", "index_put"),
    "index": ("i = torch.tensor([2, 0])\n    y[i] = w[:2] * 3", "index_put"),
    "duplicates": ("i = torch.tensor([1, 1])\n    y[i] = w[:1].exp().expand(2, 3)", "index_put"),
    "duplicates do not accumulate": ("i = torch.tensor([1, 1])\n    y[i] += w[:1]", ".clone()"),
    "accumulation": ("i = torch.tensor([1, 1, 0])\n    y.index_add_(0, i, w)", "index_add("),
    "scatter": ("i = torch.tensor([[0, 1, 2]])\n    y.scatter_(0, i, w[:1])", "scatter("),
    "integer": ("y[1] = w[0] * 2", ".clone()"),
    "index in a loop": ("for k in range(2):\n        i = torch.tensor([k])\n        y[i] = w[k]", ".clone()"),
}


def incident(source: Source, op: str) -> Incident:
    """The conflict that a run reports: sigmoid saved its output, the last statement before the return wrote it."""
    function = source.tree.body[1]
    assert isinstance(function, ast.FunctionDef)
    writer: ast.stmt = function.body[-2]
    while isinstance(writer, ast.For):
        writer = writer.body[-1]
    save, write = (Place(PATH, span_of(node), "program") for node in (function.body[0], writer))
    event = Event(op, (write,), names=("y",))
    return Incident(
        Conflict("version", Event("SigmoidBackward0", (save,), role="output"), (event,), "SigmoidBackward0", ())
    )


def offers(text: str) -> Iterator[tuple[Source, Rewrite]]:
    """Everything on offer for a write, and the file that it makes."""
    source = Source.parse(PATH, (HEAD + f"    {text}\n" + TAIL).encode())
    op = "aten::index_put_" if text.splitlines()[-1].strip().startswith("y[") else "aten::index_add_"
    project = Project({PATH: source})
    for _, rewrite in candidates(incident(source, op), project):
        yield check(source, apply(source, rewrite.edits), rewrite.edits), rewrite


def grad(text: str, cloned: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the gradient; `cloned` with every saved tensor copied."""
    space: dict[str, Any] = {}
    exec(compile(text, PATH, "exec"), space)
    torch.manual_seed(3)
    w = torch.randn(3, 3, requires_grad=True)
    hooks: Any = torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
    with hooks if cloned else nullcontext():
        y = space["program"](w)
        y.pow(2).sum().backward()
    assert w.grad is not None
    return y.detach(), w.grad


def runs(text: str) -> bool:
    """Whether backward meets nothing that was overwritten; other errors are passed on."""
    try:
        grad(text, cloned=False)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize(("text", "form"), WRITES.values(), ids=WRITES.keys())
def test_the_first_offer_that_runs_is_right(text: str, form: str) -> None:
    whole = HEAD + f"    {text}\n" + TAIL
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(whole, cloned=False)
    meant = grad(whole, cloned=True)
    running = [source.text for source, rewrite in offers(text) if rewrite.applicability == "safe" and runs(source.text)]
    assert form in running[0]
    for each in running:
        torch.testing.assert_close(grad(each, cloned=False), meant)


def test_a_masked_write_never_becomes_where() -> None:
    assert [r.title for text, _ in WRITES.values() for s, r in offers(text) if "torch.where" in s.text] == []


def test_no_copy_in_every_round() -> None:
    made = [r for _, r in offers(WRITES["index in a loop"][0]) if any("index_put" in e.new for e in r.edits)]
    assert made == []
