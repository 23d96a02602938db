"""What the types that checkers print say about a value: a tensor, something else, or nothing certain."""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import fractions
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Literal

from deinplace.analysis import facts

Kind = Literal["tensor", "subclass", "other", "unknown"]
"""`subclass`: a tensor of a class that torch does not define; its operators may do anything."""
Lookup = Callable[[str], Kind]
"""What a class is, by the name that a checker prints: dotted where it knows the module, else its last name."""

_UNSURE = ("Unknown", "Any", "Todo", "@Todo", "Never", "NoReturn", "Divergent", "object", "@_", "TypeVar", "...")
_CALLABLE = ("<class ", "<module ", "type[", "def ", "bound method ", "Overload[", "Module[", "<", "partial[")
_STDLIB = {name for m in (collections, datetime, decimal, fractions, pathlib) for name in getattr(m, "__all__", ())}
_OTHERS = {name for name, value in vars(builtins).items() if isinstance(value, type)} - {"object", "type"}
_OTHERS |= _STDLIB | {"Literal", "LiteralString", "TypedDict", "ndarray", *types.__all__}
_HEAD = re.compile(r"[@\w.]+")
_CLOSERS = {")": "(", "]": "[", "}": "{"}


def kind(text: str, lookup: Lookup) -> Kind:
    """The kind of a value whose type prints as `text`. None beside a tensor counts as a tensor: it is not written."""
    found = {_member(part, lookup) for part in _split(text.strip(), "|")} - {None}
    if found and found <= {"tensor", "subclass"}:
        return "subclass" if "subclass" in found else "tensor"
    return "other" if found == {"other"} else "unknown"


def _member(text: str, lookup: Lookup) -> Kind | None:
    """One option of a union; None for `None`."""
    text = text.strip()
    if text == "None":
        return None
    parts = [p for p in _split(text, "&") if not p.strip().startswith("~")]
    if len(parts) > 1:
        kinds = {_member(p, lookup) for p in parts}
        return "unknown" if "other" in kinds else "subclass" if "subclass" in kinds else _any_tensor(kinds)
    text = parts[0].strip() if parts else ""
    if text.startswith(_CALLABLE):
        return "other"
    if text.startswith("(") and " -> " in text:
        return "other" if len(_split(text, "->")) > 1 else kind(text[1:-1], lookup)
    if text.startswith("(") and text.endswith(")"):
        return kind(text[1:-1], lookup)
    head = _HEAD.match(text)
    return _named(head[0], lookup) if head else "unknown"


def _any_tensor(kinds: set[Kind | None]) -> Kind:
    return "tensor" if "tensor" in kinds else "unknown"


def _named(name: str, lookup: Lookup) -> Kind:
    """A class by its name."""
    name = name.removeprefix("typing.").removeprefix("typing_extensions.")
    if name.startswith("Self@"):
        name = name[len("Self@") :]
        return lookup(name) if "." in name else "unknown"
    if "@" in name or name in _UNSURE:
        return "unknown"
    return lookup(name)


def known(name: str) -> Kind:
    """What a class outside the project is, as far as its name tells.

    Subclasses of Tensor in torch itself end in one of three words, hold the first, or are private; a test compares
    that with torch.
    """
    top, _, last = name.partition(".")[0], "", name.rpartition(".")[2]
    if "." in name and top not in ("torch", "numpy"):
        return "other" if top in sys.stdlib_module_names and top != "typing" else "unknown"
    if top == "numpy":
        return "other"
    if last.endswith(("Tensor", "Parameter", "Buffer")) and (top == "torch" or last in ("Tensor", "Parameter")):
        return "tensor"
    if top == "torch":
        private = any(part.startswith("_") and part != "_C" for part in name.split(".")[:-1])  # _C has public ones
        return "unknown" if "Tensor" in last or private else "other"
    return "other" if name in _OTHERS or facts.module(f"torch.nn.{name}") is not None else "unknown"


def _split(text: str, separator: str) -> list[str]:
    """Parts between separators that stand in no brackets and no quotes."""
    return list(_parts(text, f" {separator} "))


def _parts(text: str, separator: str) -> Iterator[str]:
    depth, start, quote = 0, 0, ""
    at = 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in _CLOSERS:
            depth -= 1
        elif not depth and text.startswith(separator, at):
            yield text[start:at]
            at += len(separator)
            start = at
            continue
        at += 1
    yield text[start:]
