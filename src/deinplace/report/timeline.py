"""The timeline of a conflict as inline SVG: saved, overwritten, needed by backward, from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from deinplace.model import Conflict, Event
from deinplace.report import words
from deinplace.report.view import View

_STEP, _RAIL, _WIDTH, _TITLE, _DETAIL = 60, 44, 340, 37, 42
_MORE = 3
"""So many writes are drawn; the rest are counted."""


@dataclass(frozen=True)
class Stop:
    """One point of time."""

    kind: str
    """save, write or backward."""
    title: str
    detail: str


def svg(conflict: Conflict, view: View, name: str) -> str:
    """The drawing; `name` makes its ids unique in the page."""
    stops = _stops(conflict, view)
    height = _STEP * len(stops)
    said = "; then ".join(f"{stop.title} ({stop.detail})" for stop in stops)
    out = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{name}-t {name}-d">',
        f'<title id="{name}-t">Timeline of the conflict</title><desc id="{name}-d">{escape(said)}</desc>',
        f'<line class="rail" x1="{_RAIL}" y1="{_y(0)}" x2="{_RAIL}" y2="{_y(len(stops) - 1)}"/>',
        *_need(stops),
    ]
    for number, stop in enumerate(stops):
        out.append(_stop(stop, _y(number)))
    return "".join([*out, "</svg>"])


def _stops(conflict: Conflict, view: View) -> list[Stop]:
    stops = [Stop("save", f"saved for {conflict.node}", _detail(conflict.save, view))]
    for number, write in enumerate(conflict.writes[:_MORE]):
        by = words.module(write.module) if write.module else write.optimizer or words.operation(write.op)
        stops.append(Stop("write", f"{'overwritten again' if number else 'overwritten'} by {by}", _detail(write, view)))
    if len(conflict.writes) > _MORE:
        stops.append(Stop("write", f"and {len(conflict.writes) - _MORE} more writes", ""))
    verb = "backward uses the new values unseen" if conflict.kind == "hidden" else "backward needs the saved value"
    place = conflict.backward[0] if conflict.backward else None
    stops.append(Stop("backward", verb, f"{view.at(place)} · {view.code(place)}" if place else ""))
    return stops


def _detail(event: Event, view: View) -> str:
    return f"{view.at(event.place)} · {view.code(event.place)}" if event.place else "inside torch"


def _need(stops: list[Stop]) -> list[str]:
    """What backward reaches back for: an arc from it to the save, crossed out where the write stands."""
    top, middle, bottom = _y(0), _y(1), _y(len(stops) - 1)
    x = _RAIL - 12
    arc = f"M {x} {bottom} C 2 {bottom}, 2 {top}, {x} {top}"
    cross_x, cross_y = 10, (top + bottom) / 2 if len(stops) > 3 else middle
    return [
        f'<path class="need" d="{arc}"/>',
        f'<path class="head" d="M {x + 2} {top} l -9 -5 v 10 z"/>',
        f'<path class="cross" d="M {cross_x - 6} {cross_y - 6} l 12 12 m 0 -12 l -12 12"/>',
    ]


def _stop(stop: Stop, y: float) -> str:
    text = (
        f'<text x="{_RAIL + 18}" y="{y - 2}">{escape(_fitted(stop.title, _TITLE))}</text>'
        f'<text class="small" x="{_RAIL + 18}" y="{y + 16}">{escape(_fitted(stop.detail, _DETAIL))}</text>'
    )
    return f'<circle class="dot-{stop.kind}" cx="{_RAIL}" cy="{y}" r="8"/>{text}'


def _fitted(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _y(number: int) -> float:
    return _STEP * (number + 0.5)
