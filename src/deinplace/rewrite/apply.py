"""Edits put into a file's text, the diff that shows them, and the checks made before anything is written."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from deinplace.analysis.source import Source
from deinplace.model import Edit, FileChange, Rewrite

Ranges = Sequence[tuple[int, int]]


class OverlapError(Exception):
    """Two edits want the same characters."""


class CheckError(Exception):
    """The new text must not be written: the message says why."""


def ordered(edits: Iterable[Edit]) -> list[Edit]:
    """Distinct edits by position; insertions at one offset keep their order and come before a replacement there.

    Whole statements put before or after another stay outside what is put into that statement itself.

    Raises:
        OverlapError: two edits cover the same characters.
    """
    distinct = list(dict.fromkeys(edits))
    result = sorted(distinct, key=lambda e: (e.start, e.end > e.start, _rank(e)))
    for left, right in pairwise(result):
        if right.start < left.end:
            raise OverlapError(f"{left.path}: edits at {left.start}:{left.end} and {right.start}:{right.end} overlap")
    return result


def _rank(edit: Edit) -> int:
    if edit.new.startswith(("\n", "\r", "; ")):
        return 2
    return 0 if edit.new.endswith("; ") or "\n" in edit.new or "\r" in edit.new else 1


def apply(source: Source, edits: Iterable[Edit]) -> str:
    """The file's text after `edits`; those of other files are not looked at.

    Raises:
        OverlapError: two edits cover the same characters.
    """
    text = source.text
    for edit in reversed(ordered(e for e in edits if e.path == source.path)):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


def check(before: Source, after: str, edits: Sequence[Edit]) -> Source:
    """The file after the edits, once it is known that it parses, encodes, and differs only where it was edited.

    Raises:
        CheckError: one of these does not hold.
    """
    own = ordered(e for e in edits if e.path == before.path)
    try:
        data = before.encode(after)
        tree = ast.parse(after, filename=before.path)
    except UnicodeEncodeError as error:
        raise CheckError(f"{before.path}: the new text does not fit {before.encoding}: {error.reason}") from None
    except SyntaxError as error:
        raise CheckError(f"{before.path}:{error.lineno}: the new text does not parse: {error.msg}") from None
    result = Source(before.path, data, after, before.encoding, before.bom, tree, before.silent)
    if not _same(before, [(e.start, e.end) for e in own], result, _moved(own)):
        raise CheckError(f"{before.path}: a statement changed that was not edited")
    return result


def patched(
    sources: Mapping[str, Source], rewrites: Iterable[Rewrite], known: dict[tuple[Edit, ...], Source] | None = None
) -> dict[str, Source]:
    """All files after some rewrites; `known` keeps each file by its edits, for who tries many that share some.

    Raises:
        OverlapError: two of them edit the same place.
        CheckError: the result would not be what it should.
    """
    by_path: dict[str, list[Edit]] = {}
    for rewrite in rewrites:
        for edit in rewrite.edits:
            by_path.setdefault(edit.path, []).append(edit)
    changed: dict[str, Source] = {}
    for path, edits in by_path.items():
        found = known.get(tuple(edits)) if known is not None else None
        changed[path] = found if found is not None else check(sources[path], apply(sources[path], edits), edits)
        if known is not None:
            known[tuple(edits)] = changed[path]
    return {**sources, **changed}


def _moved(edits: Sequence[Edit]) -> list[tuple[int, int]]:
    """Where the edits' new text stands in the new file."""
    shift, ranges = 0, []
    for edit in edits:
        start = edit.start + shift
        ranges.append((start, start + len(edit.new)))
        shift += len(edit.new) - (edit.end - edit.start)
    return ranges


def _same(before: Source, old: Ranges, after: Source, new: Ranges) -> bool:
    """True where the statements that no edit meets say the same before and after it.

    The same text between the same bounds is the same statement; only where that differs, as when a comment above a
    block moves with what was there, their trees are compared.
    """
    kept, left = _untouched(before, old), _untouched(after, new)
    if len(kept) != len(left):
        return False
    texts = zip(kept, left, strict=True)
    if all(type(a) is type(b) and before.text[s:e] == after.text[t:f] for (a, s, e), (b, t, f) in texts):
        return True
    return [_header(node) for node, _, _ in kept] == [_header(node) for node, _, _ in left]


def _untouched(source: Source, ranges: Ranges) -> list[tuple[ast.stmt, int, int]]:
    """The statements (of compound ones the header) that none of `ranges` meets, in order."""
    return [u for u in source.statements if not any(low <= u[2] and u[1] <= high for low, high in ranges)]


def _header(node: ast.stmt) -> str:
    """A statement's own part as text, without the blocks it holds."""
    parts = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, ast.ExceptHandler | ast.match_case):
                kept = [v for f, v in ast.iter_fields(item) if f != "body"]
                parts += [ast.dump(v) if isinstance(v, ast.AST) else repr(v) for v in kept]
            elif isinstance(item, ast.AST) and not isinstance(item, ast.stmt):
                parts.append(f"{name}={ast.dump(item)}")
            elif not isinstance(item, ast.AST):
                parts.append(f"{name}={item!r}")
    return " ".join(parts)


def diff(change: FileChange, root: str | Path | None = None) -> str:
    """A unified diff that `git apply` and `patch` accept: `a/` and `b/` paths relative to `root`."""
    name = change.path
    if root is not None:
        path, base = Path(change.path).absolute(), Path(root).absolute()
        name = path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()
    name = name.lstrip("/")
    lines = difflib.unified_diff(_lines(change.before), _lines(change.after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as `git` counts them: a line feed ends a line, nothing else does."""
    parts = text.split("\n")
    return [f"{p}\n" for p in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
