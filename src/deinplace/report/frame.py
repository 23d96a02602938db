"""A place in source as a compiler shows it: path, line, and a caret under the exact span."""

from __future__ import annotations

import re
import textwrap
import unicodedata

from deinplace.model import Place
from deinplace.report.view import View

_TAB = "    "
_COMMAND = re.compile(r"`[^`\n]{1,60}`|\bdeinplace (?:run|fix|check|explain)\b[^;]*$")


def frame(place: Place, label: str, view: View, style: str = "red") -> list[str]:
    """Lines of a frame around one span, `label` standing beside its carets."""
    column = view.column(place.path, place.span.line, place.span.col)
    gutter = " " * len(str(place.span.line))
    arrow = view.paint("-->", "blue")
    head = f"{gutter}{arrow} {view.path(place.path)}:{place.span.line}:{column}"
    text = view.line(place.path, place.span.line)
    if text is None:
        return [f"{head}  {label}"]
    start, end = column - 1, len(text)
    if place.span.end_line == place.span.line:
        end = view.column(place.path, place.span.line, place.span.end_col) - 1
    elif place.span.end_line > place.span.line:
        end = len(text.rstrip())
    shown, before, width = _window(text, start, max(end, start + 1), view.width - len(gutter) - 3)
    bar = view.paint("|", "blue")
    number = view.paint(str(place.span.line), "blue")
    carets = view.paint("^" * width, style)
    under = f"{gutter} {bar} {' ' * before}{carets}"
    lines = [head, f"{gutter} {bar}", f"{number} {bar} {shown}"]
    if len(gutter) + 3 + before + width + 1 + len(label) <= view.width:
        return [*lines, f"{under} {view.paint(label, style)}" if label else under]
    return [*lines, under, *_beneath(label, gutter, bar, view, style)]


def note(word: str, text: str, view: View, indent: int = 2) -> list[str]:
    """`  = help: ...`, wrapped to the width with its lines aligned; without an indent, `help: ...`."""
    sign = "= " if indent else ""
    lead = " " * indent + sign + word + ": "
    out: list[str] = []
    for paragraph in text.splitlines() or [""]:
        out += wrapped(paragraph, max(view.width - len(lead), 30)) or [""]
    first = " " * indent + view.paint(sign.strip(), "blue") + sign[1:] + view.paint(word, "bold") + ": " + out[0]
    return [first, *(" " * len(lead) + line for line in out[1:])]


def _beneath(label: str, gutter: str, bar: str, view: View, style: str) -> list[str]:
    lines = wrapped(label, max(view.width - len(gutter) - 5, 30))
    return [f"{gutter} {bar}   {view.paint(line, style)}" for line in lines]


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` cells; words, and commands to type, stay whole."""
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(whole, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def _window(text: str, start: int, end: int, width: int) -> tuple[str, int, int]:
    """The part of a line around `start:end` that fits, the cells before the span in it, and the span's cells."""
    left = 0
    if _cells(text) > width and _cells(text[:end]) > width:
        left = max(0, min(start, start - (width - _cells(text[start:end])) // 2))
    lead = "…" if left else ""
    shown = ""
    for char in text[left:]:
        piece = _TAB if char == "\t" else char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"
        if _cells(lead + shown + piece) > width - 1 and _cells(text[left:]) + len(lead) > width:
            shown += "…"
            break
        shown += piece
    before = _cells(lead + text[left:start])
    return lead + shown, before, max(1, min(_cells(text[start:end]), width - before))


def _cells(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    total = 0
    for char in text:
        if char == "\t":
            total += len(_TAB)
        elif not unicodedata.combining(char):
            total += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return total
