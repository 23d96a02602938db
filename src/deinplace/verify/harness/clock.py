"""A limit for work of this process: an alarm ends what takes too long."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TooLongError(Exception):
    """Time is up."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let a block run so long at most. Where there are no alarms, or another's is set, there is no limit.

    Raises:
        TooLongError: time is up.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def ring(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), 1.0)  # again, should the first fall into a finalizer
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
