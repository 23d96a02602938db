"""Source in the HTML page: the lines around each end of a conflict, both marked, in one frame where they are close."""

from __future__ import annotations

from html import escape

from deinplace.model import Finding, Place
from deinplace.report import parts
from deinplace.report.view import View

_AROUND, _NEAR = 3, 14
_WORDS = {"saved": "save", "overwritten": "write", "backward": "backward", "PyTorch": "write"}


def figures(finding: Finding, view: View) -> list[str]:
    """A figure for each group of places that lie close together in a file."""
    places = list(parts.related(finding, view)) or [("", Place(finding.path, finding.span))]
    groups: list[list[tuple[str, Place]]] = []
    for label, place in dict.fromkeys(places):
        home = next((g for g in groups if _close(g, place)), None)
        if home is None:
            groups.append([(label, place)])
        else:
            home.append((label, place))
    return [_figure(group, view) for group in groups if view.lines(group[0][1].path)]


def scrolled(rows: str, label: str) -> str:
    """Preformatted rows in a box that scrolls sideways, by keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><pre>{rows}</pre></div>'


def _close(group: list[tuple[str, Place]], place: Place) -> bool:
    same = group[0][1].path == place.path
    return same and any(abs(other.span.line - place.span.line) <= _NEAR for _, other in group)


def _figure(group: list[tuple[str, Place]], view: View) -> str:
    path = group[0][1].path
    first = max(1, min(p.span.line for _, p in group) - _AROUND)
    lines = view.lines(path)
    final = len(lines) - (not lines[-1])  # what follows the last line end is no line
    last = min(final, max(p.span.end_line for _, p in group) + _AROUND)
    while last > first and not lines[last - 1].strip():
        last -= 1
    while first < last and not lines[first - 1].strip():
        first += 1
    name = view.path(path)
    rows = [
        _row(path, number, [(w, p) for w, p in group if _covers(p, number)], view) for number in range(first, last + 1)
    ]
    numbers = sorted({p.span.line for _, p in group})
    where = ("line " if len(numbers) == 1 else "lines ") + ", ".join(map(str, numbers))
    source = scrolled("".join(rows), f"Source of {name}")
    return f"<figure><figcaption>{escape(name)}, {where}</figcaption>{source}</figure>"


def _covers(place: Place, line: int) -> bool:
    return place.span.line <= line <= place.span.end_line


def _row(path: str, number: int, marks: list[tuple[str, Place]], view: View) -> str:
    text = view.line(path, number) or ""
    kind, tag, shown = "", "", escape(text)
    if marks:
        label, place = marks[0]
        kind = _WORDS.get(label.split(" ", 1)[0], "write")
        start = view.column(path, number, place.span.col) - 1 if number == place.span.line else _indent(text)
        end = view.column(path, number, place.span.end_col) - 1 if number == place.span.end_line else len(text)
        shown = f"{escape(text[:start])}<mark>{escape(text[start:end])}</mark>{escape(text[end:])}"
        labels = [word for word, p in marks if word and p.span.line == number]
        tag = f'<span class="tag">{escape("; ".join(dict.fromkeys(labels)))}</span>' if labels else ""
    return f'<span class="row {kind}"><span class="no">{number}</span>{shown}{tag}</span>'


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
