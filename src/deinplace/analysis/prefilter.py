"""Which files and functions can hold a site at all, decided before anything expensive is done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_WRITES = re.compile(
    rb"inplace|\bout\s*=|[\w\])]_\(|[+\-*/%&|^@<>]=(?!=)|\]\s*=(?!=)|\.(?:data|real|imag)\b|\.step\(|max_norm"
)

_PLACES = tuple(
    map(
        re.compile,
        (r"_\((?<=[^\W_]_\()", r"\]\s*=(?!=)", r"=(?:(?<=[+\-*/%&|^@]=)|(?<=<<=)|(?<=>>=))", r"inplace",
         r"out(?<!\wout)\s*=", r"\.(?:data|real|imag)\b"),
    )
)  # fmt: skip
"""What a write looks like, in several patterns: each begins with letters that are quick to look for."""
_INITIALISES = re.compile(r"\binit\.\w*$")
_ADDS_NOTHING = re.compile(r"=\s*(?:\([^()\n]*,\)|\[|[frb]?[\"'])")


def may_hold_site(data: bytes) -> bool:
    """False for files without torch, or without anything that looks like a write in place."""
    return b"torch" in data and _WRITES.search(data) is not None


def places(text: str) -> Iterator[int]:
    """Offsets of what looks like a write in place to a tensor in a file's text, in order; comments count, too."""
    found = [match.start() for pattern in _PLACES for match in pattern.finditer(text) if not _harmless(text, match)]
    return iter(sorted(found))


def _harmless(text: str, match: re.Match[str]) -> bool:
    """Initialisation, keys of dictionaries, and what is added to sequences and strings."""
    start, end = match.span()
    last = text[end - 1]
    if last == "(":
        return text[end - 2] == "_" and _INITIALISES.search(text, max(0, start - 61), end - 1) is not None
    if text[start] == "]":
        return text[start - 1] in "\"'"
    return last == "=" and text[end - 2] == "+" and _ADDS_NOTHING.match(text, end - 1) is not None


def writes(node: ast.AST) -> bool:
    """True for one node that looks like a write in place."""
    if isinstance(node, ast.AugAssign):
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, (str, bytes))
        return not text and not isinstance(node.value, (ast.List, ast.JoinedStr))
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Subscript) or _part(t) for t in node.targets)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return (name.endswith("_") and not name.startswith("_")) or any(
            k.arg in ("inplace", "out") for k in node.keywords
        )
    return False


def _part(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("data", "real", "imag")


def holds_site(function: ast.AST) -> bool:
    """True for a function that holds something that looks like a write in place, or a call of a module."""
    return any(writes(node) for node in ast.walk(function))
