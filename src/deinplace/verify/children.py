"""Child processes of which little is known: their output is kept in part, and all that they started can be ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_GRACE = 2.0
"""Seconds to read on once a child has ended: what it started may hold its pipes, and live on."""


class Pipe:
    """Reads a pipe to its end, so that nobody waits for a reader; keeps `kept` bytes of both beginning and end."""

    def __init__(self, pipe: IO[bytes], kept: int) -> None:
        self.pipe, self.kept, self.size = pipe, kept, 0
        self.head, self.tail = bytearray(), bytearray()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with self.pipe:
            for data in iter(lambda: os.read(self.pipe.fileno(), 2**16), b""):
                self.size += len(data)
                room = self.kept - len(self.head)
                self.head += data[:room]
                self.tail += data[max(room, 0) :]
                del self.tail[: -self.kept]

    def text(self) -> str:
        """What was read; asked for once the child has ended."""
        self.thread.join(_GRACE)
        return (self.head + self.tail).decode("utf-8", "replace")


def end(child: subprocess.Popen[bytes], settings: Path, leads: bool = True) -> None:
    """Kill what is left of a run: its process group, and whatever left that group but still has its environment.

    `leads`: the child has a group of its own; otherwise it shares ours.
    """
    if leads:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()
    for _ in range(5):
        left = list(_heirs(f"DEINPLACE_PROBE={settings}".encode()))
        if not left:
            return
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def _heirs(mark: bytes) -> Iterator[int]:
    """Processes that were started with `mark` in their environment; none where the system has no /proc."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        try:
            if int(name) != os.getpid() and mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                yield int(name)
        except OSError:
            continue
