"""Carries places found in patched files back to the lines of the files as they are on disk."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from deinplace.analysis.source import Source
from deinplace.model import Finding, Place, Rewrite, Site, Span

T = TypeVar("T")
Move = Callable[[str, int], int]


def back(originals: Mapping[str, Source], current: Mapping[str, Source]) -> Move:
    """A function from a line of a current file to the line that it came from; edited lines to the first replaced."""
    tables: dict[str, list[int]] = {}
    for path, source in current.items():
        before = originals.get(path)
        if before is not None and before.text != source.text:
            tables[path] = _table(before.text.splitlines(), source.text.splitlines())

    def move(path: str, line: int) -> int:
        table = tables.get(path)
        return line if table is None or line > len(table) else table[line - 1]

    return move


def _table(before: list[str], after: list[str]) -> list[int]:
    """For each line after, its 1-based line before."""
    table = [1] * len(after)
    for _, start, end, low, high in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for offset, index in enumerate(range(low, high)):
            table[index] = min(start + min(offset, max(end - start - 1, 0)), max(len(before) - 1, 0)) + 1
    return table


def moved(value: T, move: Move) -> T:
    """The same records with every place on its original line.

    Edits are dropped: their offsets count in a text that nobody has on disk.
    """
    return _moved(value, move, "")  # type: ignore[no-any-return]


def _moved(value: Any, move: Move, path: str) -> Any:
    if isinstance(value, Span):
        line = move(path, value.line)
        return dataclasses.replace(value, line=line, end_line=line + value.end_line - value.line)
    if isinstance(value, tuple):
        return tuple(_moved(item, move, path) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    own = value.path if isinstance(value, Finding | Place | Site | Rewrite) else path
    changes = {f.name: _moved(getattr(value, f.name), move, own) for f in dataclasses.fields(value)}
    if isinstance(value, Rewrite):
        changes.update(line=move(own, value.line), edits=())
    return dataclasses.replace(value, **changes)


def without(value: T, folder: str) -> T:
    """The same records without places in files below `folder`, which is gone by the time that anybody reads them."""
    if isinstance(value, tuple):
        kept = (item for item in value if not (isinstance(item, Place) and item.path.startswith(folder)))
        return tuple(without(item, folder) for item in kept)  # type: ignore[return-value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type | Rewrite):
        return value
    changes = {f.name: without(getattr(value, f.name), folder) for f in dataclasses.fields(value)}
    return dataclasses.replace(value, **changes)
