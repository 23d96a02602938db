"""Shapes that a text names: an error's `must be (B, N, 4, 2)`, a docstring's `boxes: tensor of shape (N, 4)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from .names import SIZES

_SIZE = r"['\"]?(?:\d{1,4}|[A-Za-z]\w{0,11}|\*|\.\.\.)['\"]?"
_LISTED = re.compile(rf"[(\[]\s*({_SIZE}(?:\s*,\s*{_SIZE}){{1,4}})\s*,?\s*[)\]]")
_CROSSED = re.compile(r"(?<![\w.])((?:[A-Z]|\d{1,3}|\*)(?:\s?[x×]\s?(?:[A-Z]|\d{1,3})){1,4})(?!\w)")
_OWN = re.compile(r"^\s*(?:[:-]\s*param\s+)?\*{0,2}`{0,2}(\w+)`{0,2}\*{0,2}\s*(?:\([^)]*\))?\s*:", re.MULTILINE)
_TENSOR = re.compile(r"[Tt]ensor|shape|:math:")
OTHER = 8
"""The size of a dimension whose name says nothing."""


def spoken(text: str) -> Iterator[tuple[int, ...]]:
    """Shapes with at least one name in them, in the text's order: numbers as they are, sizes for the names."""
    found: list[tuple[int, ...]] = []
    for match in sorted((*_LISTED.finditer(text), *_CROSSED.finditer(text)), key=lambda m: m.start()):
        parts = [p.strip("'\" ") for p in re.split(r"\s*[,x×]\s*" if match.re is _CROSSED else r"\s*,\s*", match[1])]
        names = [p for p in parts if not p.isdecimal()]
        if names and all(len(n) == 1 or n == "..." or n.isupper() or n.islower() for n in names):
            found.append(tuple(_size(p) for p in parts))
    yield from dict.fromkeys(found)


def _size(part: str) -> int:
    if part.isdecimal():
        return int(part)
    return 2 if part in ("*", "...") else SIZES.get(part.upper(), OTHER) if len(part) == 1 else OTHER


def documented(function: Callable[..., Any], name: str) -> tuple[tuple[int, ...], ...]:
    """Shapes that a function's docstring, or its class's, gives for a parameter."""
    text = inspect.getdoc(function) or ""
    starts = list(_OWN.finditer(text))
    for index, match in enumerate(starts):
        if match[1] == name:
            end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
            said = text[match.start() : end].split("\n\n")[0]
            return tuple(spoken(said[match.end() - match.start() :])) if _TENSOR.search(said) else ()
    return ()
