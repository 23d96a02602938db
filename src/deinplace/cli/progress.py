"""Progress on standard error, and only on a terminal.

A text that holds `(3 of 8)` says how far a piece of work is: on a terminal it gets a bar, and the time that is left.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STEP = re.compile(r"\s*\((\d+) of (\d+)\)")


@contextmanager
def progress(quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """A function that says what is being done now: a spinner on a terminal, lines with --verbose, else nothing."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    elif verbose:
        yield lambda text: print(text, file=sys.stderr, flush=True)
    else:
        yield lambda _: None


@contextmanager
def _bar() -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    clock = Clock()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def tell(text: str) -> None:
            done, total = steps(text)
            left = clock.left(done, total, time.monotonic())
            what = escape(_STEP.sub("", text))
            bar.update(task, description=what, completed=done, total=total or None, left=left)

        yield tell


def steps(text: str) -> tuple[int, int]:
    """How many steps are done, and how many there are; 0 of 0 where the text does not count.

    `trying x (3 of 8)` announces the third step: two are done.
    """
    found = _STEP.search(text)
    return (int(found[1]) - 1, int(found[2])) if found else (0, 0)


class Clock:
    """Estimates the time that is left from the steps that are done."""

    def __init__(self) -> None:
        self._total, self._start, self._first = 0, 0.0, 0

    def left(self, done: int, total: int, now: float) -> str:
        """`about 40 s left` at the time `now`, in seconds; empty before a step of these has been done."""
        if total != self._total or done < self._first:
            self._total, self._start, self._first = total, now, done
        passed = done - self._first
        if not total or passed <= 0:
            return ""
        seconds = (now - self._start) / passed * (total - done)
        return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"
