"""Tells PyTorch's in-place errors apart by their texts, old and new."""

from __future__ import annotations

import re
from typing import Any

from . import frames

PATTERNS: tuple[tuple[str, str], ...] = (
    ("version", r"modified by an inplace operation"),
    ("second-backward", r"backward through the graph a second time|saved intermediate values of the graph are freed"),
    ("leaf-view", r"a view of a leaf Variable that requires grad"),
    ("leaf", r"a leaf Variable that requires grad is being used in an in-place operation"),
    ("leaf", r"a leaf Variable that requires grad has been used in an in-place operation"),
    ("hook-view", r"BackwardHookFunction\w* is a view and is being modified in-?place"),
    ("function-view", r"created inside a custom Function|created inside a custom autograd"),
    ("multi-view", r"is a view and is being modified in-?place|output of a function that returns multiple views"),
    ("expanded", r"more than one element of the written-to tensor refers to a single memory location"),
    ("detach-view", r"Can't detach views in-?place"),
    ("inference", r"Inplace update to inference tensor outside InferenceMode|Cannot set version_counter for inference"),
    ("cast", r"result type \w+ can't be cast to the desired output type"),
    ("out-grad", r"functions with out=\.\.\. arguments don't support automatic differentiation"),
    ("no-grad-view", r"a view that was created in no_grad mode|created in inference mode and is being modified"),
)
"""Category and the text that tells it; the first that matches counts."""
_NOTED = "_deinplace_noted"


def classify(message: str) -> str | None:
    """Category of an error text, or None where it is none of the family."""
    for category, pattern in PATTERNS:
        if re.search(pattern, message):
            return category
    return None


def note(state: Any, error: BaseException, stack: frames.Stack, **more: Any) -> None:
    """Add an error of the family to the account, once for each place, and where it was met first only."""
    category = classify(str(error))
    if category is None or getattr(error, _NOTED, False):
        return
    setattr(error, _NOTED, True)
    entry = {"category": category, "message": str(error), "stack": frames.resolved(stack), **more}
    if entry not in state.raised:
        state.raised.append(entry)
