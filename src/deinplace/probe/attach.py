"""Prepares a Python process for watching: reads the settings, waits for torch, and writes down what was seen."""

from __future__ import annotations

import atexit
import importlib.machinery
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from . import frames, redirect
from .overlay import Overlay
from .state import Counts

_SPEC = importlib.machinery.ModuleSpec


class State(Counts):
    """Everything this process has to hand over when it ends."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.out: str = settings["out"]
        self.emulator: Any = None
        self.watcher: Any = None
        self.auditor: Any = None
        self.ballast = _ballast() if settings.get("stir") else []
        self.failure: dict[str, Any] | None = None
        self.mode_calls = 0
        self.pid = os.getpid()
        self.started = time.time()
        self.finished = False
        self.forks = 0

    @property
    def stem(self) -> str:
        """Path of this process's files, without extension."""
        return os.path.join(self.out, str(self.pid))

    def write(self) -> None:
        """Put down what was seen so far, whole or not at all."""
        session = self.session
        data = {
            "pid": self.pid,
            "started": self.started,
            "rank": os.environ.get("RANK"),
            "child": _child(),
            "argv": sys.argv,
            "torch": getattr(sys.modules.get("torch"), "__version__", None),
            "python": sys.version.split()[0],
            "backwards": self.backwards,
            "mode_calls": self.mode_calls,
            "steps": self.steps,
            "conflicts": session.conflicts.plain() if session is not None else [],
            "saves": session.saves if session is not None else 0,
            "notes": sorted(session.notes) if session is not None else [],
            "written": list(session.sites.values()) if session is not None and session.sites else [],
            "raised": self.raised,
            "failure": self.failure,
            "compiled": self.compiled,
            "devices": sorted(self.recorder.sketch.devices) if self.recorder is not None else [],
            "costs": self.recorder.costs.plain() if self.recorder is not None else None,
            "files": _files() if self.finished else [],
            "audit": self.auditor.plain() if self.auditor is not None else [],
            "attest": self.attest.found if self.attest is not None else [],
            "attest_calls": self.attest.calls if self.attest is not None else {},
            "stale": self.watcher.found if self.watcher is not None else [],
        }
        part = f"{self.stem}.part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(data, file)
        os.replace(part, f"{self.stem}.json")

    def finish(self) -> None:
        """Last words of the process, spoken once."""
        if self.finished:
            return
        self.finished = True
        if self.recorder is not None:
            self.recorder.close()
        self.write()


def _ballast() -> list[bytes]:
    """A few objects of every small size: all that come later stand at other addresses."""
    return [bytes(size) for size in range(0, 480, 8) for _ in range(3)]


def _child() -> list[int]:
    """Which child of which child multiprocessing calls this process, however late it starts; nothing for the first."""
    process = sys.modules.get("multiprocessing.process")
    return list(process.current_process()._identity) if process is not None else []


def _files() -> list[str]:
    """The user's files that were loaded."""
    names = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({frames.real(name) for name in names if isinstance(name, str) and frames.is_user(name)})


def prepare(path: str) -> None:
    """Read the settings at `path` and hook this process; called before the user's program starts."""
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
    except (OSError, ValueError):
        return  # a child that outlived its run: nobody is listening any more
    state = State(settings)
    state.write()
    frames.copied(settings.get("copies", []))
    redirect.install(settings.get("redirect", []))
    if settings.get("guard"):
        from . import guard

        guard.install(settings["guard"], settings["out"])
    overlay = Overlay(settings.get("overlay", {}), settings.get("functions", {}))
    overlay.install()
    random.seed(settings.get("seed", 0))
    after_import("torch", lambda torch: _start(state, torch))
    after_import("numpy", lambda numpy: numpy.random.seed(settings.get("seed", 0)))
    _catch(state)
    atexit.register(state.finish)
    os.register_at_fork(before=lambda: _forking(state), after_in_child=lambda: _forked(state))
    _leave(state)


def _forking(state: State) -> None:
    """A child that inherited unwritten text would write it into its parent's file."""
    state.forks += 1
    if state.recorder is not None and not state.finished:
        state.recorder.file.flush()


def _forked(state: State) -> None:
    """A forked child starts its own account. `random` has just seeded itself there by chance."""
    random.seed(state.settings.get("seed", 0) + state.forks)
    state.pid = os.getpid()
    state.started = time.time()
    state.finished = False
    state.raised, state.failure = [], None
    state.backwards = state.steps = 0
    if state.session is not None:
        state.session.forget()
    if state.recorder is not None:
        state.recorder.reopen(state.stem)


def _leave(state: State) -> None:
    """`os._exit` runs no atexit handlers: finish before it. multiprocessing ends forked children that way."""
    plain = os._exit

    def _exit(status: int) -> NoReturn:
        try:
            if state.pid == os.getpid():
                state.finish()
        finally:
            plain(status)

    os._exit = _exit


def _catch(state: State) -> None:
    """Note the exception that ends the program, then let Python print it."""
    plain = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        note_failure(state, error, trace)
        plain(kind, error, trace)

    sys.excepthook = excepthook


def note_failure(state: State, error: BaseException, trace: TracebackType | None) -> None:
    """Remember an uncaught exception: its type, text and user frames."""
    state.failure = {
        "type": type(error).__name__,
        "message": str(error),
        "stack": frames.resolved(frames.traceback_stack(trace)) if "torch" in sys.modules else [],
    }


def _start(state: State, torch: ModuleType) -> None:
    """torch has just been imported."""
    from . import control

    control.start(state, torch)
    state.write()  # a program that is killed says no last words


def after_import(name: str, call: Callable[[ModuleType], object]) -> None:
    """Call back with a module right after it was imported for the first time."""
    if name in sys.modules:
        call(sys.modules[name])
        return
    sys.meta_path.insert(0, _Waiter(name, call))


class _Waiter:
    """A finder that finds nothing itself, but notices when one module gets loaded."""

    def __init__(self, name: str, call: Callable[[ModuleType], object]) -> None:
        self.name, self.call = name, call

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> _SPEC | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        if loader is None:
            return spec
        plain = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            plain(module)
            self.call(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
