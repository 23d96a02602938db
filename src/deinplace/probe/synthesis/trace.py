"""Runs something and notes which of the user's lines ran, and how it ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

from ..errors import classify  # noqa: TID252  the package has another name in the user's interpreter

Lines = dict[str, set[int]]


@dataclass
class Trial:
    """One attempt: what it returned or raised, and the lines that ran by file."""

    result: Any = None
    error: Exception | None = None
    lines: Lines = field(default_factory=dict)

    @property
    def progress(self) -> int:
        """How far it came: distinct lines."""
        return sum(map(len, self.lines.values()))

    @property
    def fault(self) -> str | None:
        """The kind of in-place error that ended it, where one did: that is the user's fault, not the attempt's."""
        return classify(str(self.error)) if self.error is not None else None

    @property
    def done(self) -> bool:
        """True where it came to its end, or to an in-place error."""
        return self.error is None or self.fault is not None

    @property
    def message(self) -> str:
        """The error in one line."""
        error = self.error
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}" if error is not None else ""


class Tracer:
    """Notes lines of files below `root`."""

    def __init__(self, root: str) -> None:
        self.root = os.path.join(os.path.realpath(root), "")
        self._mine: dict[str, str | None] = {}

    def run(self, call: Callable[[], Any]) -> Trial:
        """Call, and note the lines; errors of the user's code are part of the answer."""
        trial = Trial()
        lines = trial.lines

        def local(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                lines.setdefault(self._path(frame) or "", set()).add(frame.f_lineno)
            return local

        def entered(frame: FrameType, event: str, _: Any) -> Any:
            path = self._path(frame)
            if path is None:
                return None
            lines.setdefault(path, set())
            return local

        before = sys.gettrace()
        sys.settrace(entered)
        try:
            trial.result = call()
        except Exception as error:  # noqa: BLE001  whatever the user's code raises tells what to try next
            trial.error = error
        finally:
            sys.settrace(before)
        return trial

    def _path(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._mine:
            real = os.path.realpath(name)
            self._mine[name] = real if real.startswith(self.root) else None
        return self._mine[name]


def last_lines(trace: TracebackType | None, path: str) -> list[tuple[FrameType, int]]:
    """Frames of one file in a traceback with the lines they stood at, the innermost first."""
    found = []
    while trace is not None:
        if os.path.realpath(trace.tb_frame.f_code.co_filename) == path:
            found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found[::-1]
