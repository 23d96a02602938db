"""Progress on standard error, and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(quiet: bool, verbose: bool) -> Iterator[Callable[[str], None]]:
    """A function that says what is being done now: a spinner on a terminal, lines with --verbose, else nothing."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield lambda text: status.update(text)
    elif verbose:
        yield lambda text: print(text, file=sys.stderr, flush=True)
    else:
        yield lambda _: None
