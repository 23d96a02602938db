"""Unified diffs of changes, exact about line ends."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from deinplace.model import FileChange, Rewrite
from deinplace.report.view import View

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def unified(change: FileChange, view: View, context: int = 3) -> str:
    """The change as `patch` and `git apply` take it, with paths relative to the working folder."""
    before, after = _LINES.findall(change.before), _LINES.findall(change.after)
    name = view.path(change.path)
    lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=context)
    out = []
    for line in lines:
        out.append(line)
        if not line.endswith(("\n", "\r")):
            out.append("\n\\ No newline at end of file\n")
    return "".join(out)


def painted(text: str, view: View) -> str:
    """A diff in the colours that git gives it."""
    if not view.color:
        return text
    return "".join(
        view.paint(line.rstrip("\r\n"), _style(line)) + line[len(line.rstrip("\r\n")) :] for line in _keep(text)
    )


def suggestion(rewrite: Rewrite, view: View) -> list[str]:
    """The lines that a rewrite takes away and puts in, for a rewrite that is not applied."""
    out: list[str] = []
    for path in dict.fromkeys(edit.path for edit in rewrite.edits):
        before = view.texts.get(path)
        if before is None:
            continue
        after = before
        for edit in sorted((e for e in rewrite.edits if e.path == path), key=lambda e: e.start, reverse=True):
            after = after[: edit.start] + edit.new + after[edit.end :]
        if len({e.path for e in rewrite.edits}) > 1:
            out.append(view.path(path))
        hunks = unified(FileChange(path, before, after), view, context=0).splitlines()[2:]
        out += [line for line in hunks if not line.startswith(("@@", "\\"))]
    return out


def _keep(text: str) -> Iterable[str]:
    return _LINES.findall(text)


def _style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], "") or "dim"
