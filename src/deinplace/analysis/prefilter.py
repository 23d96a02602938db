"""Which files and functions can hold a site at all, decided before anything expensive is done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_WRITES = re.compile(
    rb"inplace|\bout\s*=|[\w\])]_\(|[+\-*/%&|^@<>]=(?!=)|\]\s*=(?!=)|\.(?:data|real|imag)\b|\.step\(|max_norm"
)

_TEXT = re.compile(_WRITES.pattern.decode())


def may_hold_site(data: bytes) -> bool:
    """False for files without torch, or without anything that looks like a write in place."""
    return b"torch" in data and _WRITES.search(data) is not None


def places(text: str) -> Iterator[int]:
    """Offsets of what looks like a write in place in a file's text, in order; comments and strings count, too."""
    return (match.start() for match in _TEXT.finditer(text))


def writes(node: ast.AST) -> bool:
    """True for one node that looks like a write in place."""
    if isinstance(node, ast.AugAssign):
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | bytes)
        return not text and not isinstance(node.value, ast.List | ast.JoinedStr)
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
