"""The programs of the cases mean the same after the rewrite: values and gradients, by the exact, slow oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from deinplace.rules import all_rules
from deinplace.rules.base import Case

PROGRAMS = [
    pytest.param(case, id=f"{rule.code}-{case.id}")
    for rule in all_rules()
    for case in rule.cases
    # The DIP2xx rules mend errors that are raised at once: there is no original to compare with.
    if rule.code.startswith("DIP1") and case.after is not None and "def program():" in case.before
]


def leaves(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The leaves that a result's graph leads to, in the order in which the graph is walked."""
    found: list[torch.Tensor] = []
    pending: list[Any] = [tensor.grad_fn]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        pending += [parent for parent, _ in node.next_functions]
    return found


def outcome(text: str, copies: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """What a program returns and its leaves' gradients; with `copies` autograd keeps a clone of all that it saves."""
    names: dict[str, Any] = {}
    exec(compile(text, "case", "exec"), names)
    torch.manual_seed(0)
    if copies:
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda t: t):
            result = names["program"]()
    else:
        result = names["program"]()
    found = leaves(result)
    if result.requires_grad:
        result.backward()
    return result.detach(), [leaf.grad for leaf in found if leaf.grad is not None]


@pytest.mark.parametrize("case", PROGRAMS)
def test_values_and_gradients_stay(case: Case) -> None:
    assert case.after is not None
    value, gradients = outcome(case.before, copies=True)
    new_value, new_gradients = outcome(case.after, copies=False)
    torch.testing.assert_close(new_value, value)
    assert len(new_gradients) == len(gradients)
    for new, old in zip(new_gradients, gradients, strict=True):
        torch.testing.assert_close(new, old)
