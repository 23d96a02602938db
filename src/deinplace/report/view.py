"""What a renderer may look at besides the outcome: file texts, the working folder, colour and width."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from deinplace.model import Conflict, Event, Finding, Outcome, Place, Raised, Span

if TYPE_CHECKING:
    from deinplace.notebooks import Notebook

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LINE_END = re.compile(r"\r\n|\r|\n")
STYLES = {"bold": "1", "red": "1;31", "green": "32", "yellow": "33", "blue": "1;34", "cyan": "36", "dim": "2"}


@dataclass(frozen=True)
class View:
    """Everything here is fixed before rendering starts, so that a renderer is a pure function.

    `texts` holds each file as it was before anything was written: spans and edits count in that text.
    """

    root: str
    texts: Mapping[str, str] = field(default_factory=dict)
    color: bool = False
    width: int = 80
    terminal: bool = False
    """A person reads it as it comes: sentences are wrapped at the width."""
    verbose: bool = False
    quiet: bool = False
    """Findings and problems only: no notes, no summary."""
    notebooks: Mapping[str, Notebook] = field(default_factory=dict)
    """The notebooks among the files, by path."""

    def path(self, path: str) -> str:
        """`path` relative to the working folder where it lies inside, else as it is; a line break in it is escaped."""
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", self._relative(path))

    def _relative(self, path: str) -> str:
        if not path or path.startswith("<"):
            return path
        for base, full in ((self.root, path), (os.path.realpath(self.root), os.path.realpath(path))):
            relative = os.path.relpath(os.path.join(base, full), base)  # noqa: PTH118
            if not relative.startswith(os.pardir):
                return relative.replace(os.sep, "/")
        return path

    def at(self, place: Place) -> str:
        """`unet.py:14`."""
        return f"{self.path(place.path)}:{place.span.line}"

    def lines(self, path: str) -> list[str]:
        """The file's lines without their ends; empty where its text is not known."""
        return self._lines.get(path, [])

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        return {path: _LINE_END.split(text) for path, text in self.texts.items()}

    def line(self, path: str, number: int) -> str | None:
        """The 1-based line `number`, or None where it is not known."""
        lines = self.lines(path)
        return lines[number - 1] if 0 < number <= len(lines) else None

    def column(self, path: str, line: int, col: int) -> int:
        """1-based column in code points of a 0-based UTF-8 column."""
        text = self.line(path, line)
        if text is None:
            return col + 1
        return len(text.encode("utf-8", "surrogatepass")[:col].decode("utf-8", "ignore")) + 1

    def position(self, path: str, offset: int) -> tuple[int, int]:
        """1-based line and column of an offset into the file's text."""
        text = self.texts.get(path, "")
        ends = [m.end() for m in _LINE_END.finditer(text, 0, offset)]
        # a CR that ends the searched part may be the first half of a CRLF, whose line end is not passed yet
        if ends and ends[-1] == offset and text[offset - 1 : offset + 1] == "\r\n":
            ends.pop()
        return len(ends) + 1, offset - (ends[-1] if ends else 0) + 1

    def bounds(self, path: str, first: int, last: int) -> tuple[int, int]:
        """Offsets of the start of the 1-based line `first` and of the end of line `last`, its line end left out."""
        text = self.texts.get(path, "")
        ends = list(_LINE_END.finditer(text))
        start = ends[first - 2].end() if first > 1 else 0
        return start, ends[last - 1].start() if last <= len(ends) else len(text)

    def code(self, place: Place, limit: int = 48) -> str:
        """The source of a place on one line, shortened to `limit`; empty where it is not known."""
        span = place.span
        line = self.line(place.path, span.line)
        if line is None:
            return ""
        start = self.column(place.path, span.line, span.col) - 1
        one_line = span.end_line == span.line
        end = self.column(place.path, span.line, span.end_col) - 1 if one_line else len(line)
        text = line[start:end].strip() or line.strip()
        if len(text) > limit or not one_line:
            text = text[: limit - 1].rstrip() + "…"
        return text

    def paint(self, text: str, style: str) -> str:
        """`text` in a colour, where colours are wanted."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.color and text else text


def places_of(outcome: Outcome) -> Iterator[tuple[str, Span]]:
    """Every path and span that a report of this outcome may show."""
    for finding in outcome.findings:
        yield finding.path, finding.span
        for place in _places(finding):
            yield place.path, place.span
        rewrites = [finding.rewrite, *(trial.rewrite for trial in finding.trials)]
        for rewrite in rewrites:
            for edit in rewrite.edits if rewrite else ():
                yield edit.path, Span(1, 0, 1, 0)


def _places(finding: Finding) -> Iterator[Place]:
    events: list[Event | Raised] = []
    if isinstance(conflict := finding.conflict, Conflict):
        events += [conflict.save, *conflict.writes]
        yield from conflict.backward
    if finding.raised:
        events.append(finding.raised)
    for event in events:
        yield from event.stack
        if event.module:
            yield from (*event.module.constructed, *event.module.flagged)
