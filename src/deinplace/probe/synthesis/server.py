"""Searches harnesses for the files of a request, each file and each class in a process of its own."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from torch import nn

from . import slicing
from .functions import exercise_function
from .guard import Guard, NoTraining, limit
from .modules import exercise_class
from .stage import Stage
from .trace import Tracer

Request = dict[str, Any]
IMPORT = 60
"""Seconds that importing a file may take."""
DONE = 9
"""Exit code of a child that came to its end; code of the user's may well leave with 0."""
PATIENCE = 6
"""So many times its CPU time a search may take on a clock: it may wait for a busy machine, not for ever."""


class Server:
    """Works through a request: `files` with their `targets`, `out` folder, `seconds` for one target, `memory`."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.out: str = request["out"]
        self.guard = Guard(self.out)
        self.results = os.open(os.path.join(self.out, "results.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def serve(self) -> None:
        """Everything in order."""
        for file in self.request["files"]:
            self._file(file)

    def _file(self, file: Request) -> None:
        """Load the file one way after the other, until one works; then its targets."""
        limit_s = IMPORT + (PATIENCE * self.request["seconds"] + 2) * len(file["targets"])
        reasons = []
        for folder, name, sliced in file["ways"]:
            note = os.path.join(self.out, "import.txt")
            if os.path.exists(note):
                self._freely(lambda note=note: os.remove(note))  # type: ignore[misc]
            code = self._forked(lambda way=(folder, name, sliced): self._load(file, *way), limit_s)  # type: ignore[misc]
            if code == DONE:
                if not sliced:
                    self._remember(folder, name)
                return
            reasons.append(_read(note) or ("it takes too long" if code is None else f"the process ends with {code}"))
        self.write({"path": file["path"], "name": "", "reason": f"cannot be imported: {reasons[0] if reasons else ''}"})

    def _remember(self, folder: str, name: str) -> None:
        """Import here what a child could import, while all files come from one folder: later children start with it."""
        if len({way[0] for file in self.request["files"] for way in file["ways"][:1]}) > 1 or "." not in name:
            return
        sys.path[:] = [folder, *(p for p in sys.path if p != folder)]
        try:
            with NoTraining():
                importlib.import_module(name)
        except Exception:  # noqa: BLE001  a child will say what is wrong with it
            return

    def _load(self, file: Request, folder: str, name: str, sliced: bool) -> int:
        """In a child: import the file, then fork once more for each target."""
        sys.path[:] = [folder, *(p for p in sys.path if p != folder)]
        os.chdir(folder)
        signal.alarm(IMPORT)
        try:
            with NoTraining():
                path = os.path.relpath(file["path"], folder)
                module = slicing.definitions(name, path) if sliced else importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001  an import may raise anything, SystemExit included
            with open(os.path.join(self.out, "import.txt"), "w", encoding="utf-8") as out:
                out.write(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            return 3
        signal.alarm(0)
        if os.path.realpath(getattr(module, "__file__", "") or "") != os.path.realpath(file["path"]):
            return 4
        cut = ((name, path),) if sliced else ()
        for target in file["targets"]:
            seconds = self.request["seconds"]
            code = self._forked(lambda target=target: self._target(file, target, module, cut), seconds * PATIENCE + 2)  # type: ignore[misc]
            if code != DONE:
                reason = (
                    "it takes too long" if code is None or code == -signal.SIGALRM else f"the process ends with {code}"
                )
                self.write({"path": file["path"], "name": target["name"], "ended": reason})
        return DONE

    def _target(self, file: Request, target: Request, module: Any, cut: tuple[tuple[str, str], ...]) -> int:
        """In a child's child: search scenes for one class or function."""
        limit(self.request["memory"], self.request["seconds"] * PATIENCE)
        path = os.path.realpath(file["path"])
        lines, seconds = set(target["lines"]), self.request["seconds"]
        stage = Stage(module, path, target["name"], lines, Tracer(file["trace"]), seconds, cut)
        root = sys.path[0]
        module_class = False

        def told() -> Request:
            return {**_account(stage), "root": root, "module": module_class}

        stage.report = lambda: self.write(told())
        thing = module
        for part in target["name"].split("."):
            thing = getattr(thing, part, None)
        if inspect.isclass(thing):
            module_class = issubclass(thing, nn.Module)
            stage.report()
            exercise_class(stage, thing, tuple(target["methods"]), tuple(target["seen"]))
        elif callable(thing):
            stage.built = True
            exercise_function(stage, thing)
        else:
            stage.reason = "no such name in the module"
        self.write(told())
        return DONE

    def write(self, entry: Request) -> None:
        """One line of results; a later line of the same name replaces an earlier one."""
        os.write(self.results, (json.dumps(entry) + "\n").encode())

    def _freely(self, call: Callable[[], Any]) -> Any:
        self.guard.free = True
        try:
            return call()
        finally:
            self.guard.free = False

    def _forked(self, call: Callable[[], int], seconds: float) -> int | None:
        """Exit code of a child that runs `call`; None where it was ended because time was up."""
        pid = self._freely(os.fork)
        if pid == 0:
            self.guard.free = False
            code = 5
            try:
                code = call()
            except BaseException:  # noqa: BLE001  the child's end is its exit code
                traceback.print_exc()
            finally:
                os._exit(code)
        return self._waited(pid, seconds)

    def _waited(self, pid: int, seconds: float) -> int | None:
        end = time.monotonic() + seconds
        pause = 0.002
        parent = os.getppid()
        while time.monotonic() < end and os.getppid() == parent:  # who lost its parent has nobody to work for
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        self._freely(lambda: os.kill(pid, signal.SIGKILL))
        os.waitpid(pid, 0)
        if os.getppid() != parent:
            os._exit(6)
        return None


def _account(stage: Stage) -> Request:
    """What a stage found, as data."""
    return {
        "path": stage.path,
        "name": stage.name,
        "scenes": [scene.plain() for scene in stage.scenes],
        "reached": {path: sorted(lines) for path, lines in stage.reached.items()},
        "built": stage.built,
        "forward": stage.forward,
        "backward": stage.backward,
        "seen": stage.seen,
        "calls": stage.calls,
        "reason": "" if stage.scenes else stage.reason,
    }


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def main(path: str) -> None:
    """Serve the request in a file."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    Server(request).serve()
