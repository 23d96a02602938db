"""Keeps the search from doing harm: no network, no other programs, no files outside its folder, bounded memory."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import Any

import torch

_REFUSED = ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec",
            "os.posix_spawn", "os.kill", "os.killpg", "os.fork", "os.forkpty")  # fmt: skip
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.truncate", "os.chmod", "os.link",
            "os.symlink", "shutil.move")  # fmt: skip


class Refusal(PermissionError):
    """The user's code wanted to reach outside while it was only looked at."""


class Guard:
    """An audit hook; `free` lifts it for our own work."""

    def __init__(self, folder: str) -> None:
        self.folders = tuple(os.path.realpath(f) + os.sep for f in (folder, tempfile.gettempdir()) if f != os.sep)
        self.folders = self.folders[:1]
        self.free = False
        self.pid = os.getpid()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.free:
            return
        if event in _REFUSED:
            raise Refusal(f"{event} is not allowed in a search for a harness")
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and not self._allows(path):
                raise Refusal(f"{path}: files are not written in a search for a harness")
        elif event in _CHANGES and arguments and not self._allows(arguments[0]):
            raise Refusal(f"{arguments[0]}: files are not changed in a search for a harness")

    def _allows(self, path: Any) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True
        real = os.path.realpath(os.fsdecode(path))
        return real.startswith((*self.folders, "/dev/", "/proc/")) or "__pycache__" in real


def limit(memory: int, seconds: float) -> None:
    """Bound this process: memory in bytes, and time by an alarm that ends it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))


class NoTraining:
    """While it lasts, `backward` raises: what trains when it is imported is not imported."""

    def __enter__(self) -> None:
        self.plain = torch.autograd.backward

        def backward(*_: Any, **__: Any) -> None:
            raise Refusal("importing this module runs backward")

        torch.autograd.backward = backward

    def __exit__(self, *_: object) -> None:
        torch.autograd.backward = self.plain
