"""Contains code that nobody asked to run: no network, no writes outside a scratch folder, bounded memory and forks.

Python's audit events refuse what Python code does, and say so; on Linux, Landlock makes the kernel refuse the same
to C code and to processes that are no Python. Both last as long as the process, and its children inherit them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

FORKS = 200
"""So many processes one run may start in all."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/shm")
_ISOLATED = ("-I", "-E", "-S")


def install(settings: dict[str, Any], out: str) -> None:
    """Fence this process in: `settings` holds `writable` folders, `memory` in bytes and `cpu` in seconds."""
    fence = Fence([os.path.realpath(path) for path in settings["writable"]], out)
    _limit(settings)
    with contextlib.suppress(ImportError, OSError, AttributeError):  # no ctypes, another system, an older kernel
        from . import landlock

        landlock.restrict([*fence.writable, *(path for path in _DEVICES if os.path.exists(path))])
    sys.addaudithook(fence.hook)


def _limit(settings: dict[str, Any]) -> None:
    """Memory, CPU seconds, file sizes; no core dumps."""
    try:
        import resource
    except ImportError:
        return
    wanted = {
        "RLIMIT_DATA": settings["memory"],
        "RLIMIT_CPU": settings["cpu"],
        "RLIMIT_FSIZE": settings["file_size"],
        "RLIMIT_CORE": 0,
    }
    for name, value in wanted.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY or value < hard:
            with contextlib.suppress(ValueError, OSError):  # a container may hold the limit fast
                resource.setrlimit(kind, (value, value))


class Fence:
    """Decides on audit events; what it refuses is noted in a file that the parent reads."""

    def __init__(self, writable: list[str], out: str) -> None:
        self.writable, self.out = writable, out
        self.python = os.path.realpath(sys.executable)
        self.local = threading.local()
        self.rules: dict[str, Callable[..., None]] = {
            "open": self._open,
            "os.rename": self._two_paths,
            "os.link": self._two_paths,
            "os.symlink": self._link,
            "os.fork": self._fork,
            "os.forkpty": self._fork,
            "subprocess.Popen": self._spawn,
            "os.posix_spawn": self._spawn,
            "os.exec": self._execute,
            "os.system": self._shell,
            "socket.connect": self._connect,
            "socket.bind": self._connect,
            "socket.sendto": self._connect,
            "socket.sendmsg": self._connect,
        }
        for name in ("remove", "rmdir", "mkdir", "truncate", "chmod", "chown", "utime", "setxattr", "removexattr"):
            self.rules[f"os.{name}"] = self._path
        for name in ("getaddrinfo", "gethostbyname", "gethostbyaddr"):
            self.rules[f"socket.{name}"] = self._look_up

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python on every audit event."""
        rule = self.rules.get(event)
        if rule is None or getattr(self.local, "busy", False):
            return
        self.local.busy = True  # deciding may itself look at files
        try:
            rule(*args)
        finally:
            self.local.busy = False

    def _refuse(self, what: str) -> None:
        """Note and raise.

        Raises:
            PermissionError: always.
        """
        with contextlib.suppress(OSError), open(os.path.join(self.out, "refused.txt"), "a", encoding="utf-8") as file:
            file.write(what.replace("\n", " ") + "\n")
        raise PermissionError(errno.EACCES, f"not in a harness of deinplace: {what}")

    # ---- files

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(flags, int) and flags & _WRITES and isinstance(path, str | bytes | os.PathLike):
            self._written(path, -1)

    def _path(self, path: Any, *rest: Any) -> None:
        folder = rest[-1] if rest and isinstance(rest[-1], int) else -1
        self._written(path, folder)

    def _two_paths(self, source: Any, target: Any, source_folder: int = -1, target_folder: int = -1) -> None:
        self._written(source, source_folder)
        self._written(target, target_folder)

    def _link(self, source: Any, target: Any, folder: int = -1) -> None:
        self._written(target, folder)

    def _written(self, path: Any, folder: int) -> None:
        """Refuse a path outside the scratch folder."""
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        if folder >= 0 and not os.path.isabs(name):
            with contextlib.suppress(OSError):
                name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        real = os.path.realpath(name)
        if not any(real == top or real.startswith(top + os.sep) for top in (*self.writable, *_DEVICES)):
            self._refuse(f"writes {real}")

    # ---- processes

    def _fork(self) -> None:
        """Count in a file, which all processes of the run share."""
        path = os.path.join(self.out, "forks.txt")
        with contextlib.suppress(OSError), open(path, "a", encoding="ascii") as file:
            file.write(".")
        if os.path.exists(path) and os.path.getsize(path) > FORKS:
            self._refuse(f"starts more than {FORKS} processes")

    def _spawn(self, executable: Any, arguments: Any, *rest: Any) -> None:
        """Only Python, which is fenced in as well, and only where it will find the fence."""
        environment = rest[-1] if rest else None
        words = [os.fsdecode(word) for word in arguments] if not isinstance(arguments, str | bytes) else []
        name = os.fsdecode(executable) if executable is not None else words[0] if words else ""
        if os.path.realpath(name) != self.python:
            self._refuse(f"starts {os.path.basename(name) or 'a shell'}")
        lost = environment is not None and not any(os.fsdecode(key) == "DEINPLACE_PROBE" for key in environment)
        if lost or any(word in _ISOLATED for word in words[1:]):
            self._refuse("starts Python in isolation")
        self._fork()

    def _execute(self, path: Any, arguments: Any, environment: Any) -> None:
        self._spawn(path, arguments, environment)

    def _shell(self, command: Any) -> None:
        self._refuse(f"runs the shell command {os.fsdecode(command)[:60]!r}")

    # ---- network

    def _connect(self, socket: Any, address: Any = None, *_: Any) -> None:
        """Sockets of the file system may live in the scratch folder; nothing else is reached."""
        if isinstance(address, str | bytes):
            self._written(address, -1)
        elif address is not None:
            self._refuse(f"uses the network: {address!r}"[:120])

    def _look_up(self, host: Any, *_: Any) -> None:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        self._refuse(f"uses the network: looks up {name}"[:120])
