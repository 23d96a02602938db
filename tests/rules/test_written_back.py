"""An in-place method that keeps its own result, which another write destroys: the result is copied back instead."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from deinplace.analysis.source import Source, span_of
from deinplace.model import Conflict, Event, Place
from deinplace.rewrite.apply import apply, check
from deinplace.rules import candidates
from deinplace.rules.base import Incident, Project

PATH = "/tree/program.py"
TEMPLATE = (
    "import torch\n\n\ndef program(w):\n    y = w * 1\n    held = y\n    {0}\n    held[0] *= 2\n    return held\n"
)

STATEMENTS = {
    "slice": ("y[..., 1:].sigmoid_()", "y[..., 1:] = y[..., 1:].sigmoid()"),
    "row": ("y[-1].tanh_()", "y[-1] = y[-1].tanh()"),
    "name": ("y.exp_()  # kept", "y.copy_(y.exp())  # kept"),
    "path": ("y.T.exp_()", "y.T.copy_(y.T.exp())"),
    "index that may copy": ("y[torch.tensor([0, 1])].exp_()", None),
    "index by name": ("k = 1\n    y[k].exp_()", "y[k].copy_(y[k].exp())"),
    "no twin": ("y[1:].fill_(2)", None),
    "result used": ("z = y[1:].exp_()", None),
}


def offers(statement: str, role: Any) -> list[str]:
    """The files that the fallback makes of a program in which `held[0] *= 2` destroys what `statement` saved."""
    source = Source.parse(PATH, TEMPLATE.format(statement).encode())
    function = source.tree.body[1]
    assert isinstance(function, ast.FunctionDef)
    saver, writer = function.body[-3], function.body[-2]
    call = saver.value if isinstance(saver, ast.Expr | ast.Assign) else None
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    spans = (span_of(call.func.value),) if role == "input" else ()
    save = Event("CopySlices", (Place(PATH, span_of(call), "program"),), role=role, expressions=spans)
    write = Event("aten::mul_.Tensor", (Place(PATH, span_of(writer), "program"),), names=())
    incident = Incident(Conflict("version", save, (write,), "CopySlices", ()))
    found = [r for _, r in candidates(incident, Project({PATH: source})) if r.rule == "DIP107"]
    return [check(source, apply(source, r.edits), r.edits).text for r in found]


def gradient(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the gradient, with every saved tensor copied."""
    space: dict[str, Any] = {}
    exec(compile(text, PATH, "exec"), space)
    w = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = space["program"](w)
        y.pow(2).sum().backward()
    assert w.grad is not None
    return y.detach(), w.grad


@pytest.mark.parametrize("role", ["input", "output"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_the_result_is_copied_back(name: str, role: str) -> None:
    statement, wanted = STATEMENTS[name]
    texts = offers(statement, role)
    if wanted is None:
        assert not any(".copy_(" in text or "] = y[" in text for text in texts)
        return
    assert len(texts) == 1, "a clone of the receiver would take the write from all other names"
    assert wanted in texts[0]
    before, after = gradient(TEMPLATE.format(statement)), gradient(texts[0])
    torch.testing.assert_close(before, after)
