"""A laboratory for code that nobody asked to run: a scratch copy, a fence around it, and an end for all it starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deinplace.verify import children
from deinplace.verify.children import Pipe
from deinplace.verify.drivers import Driver, DriverError, Laboratory, Run, Settings, environment
from deinplace.verify.harness import copies

KEPT = 64 * 2**10
"""Bytes of output that are kept, of the beginning and of the end each."""
FLOOD = 64 * 2**20
"""Bytes of output after which a run is ended."""
FILE_SIZE = 2**30
"""Bytes that one file may grow to."""


class Chamber(Laboratory):
    """Runs drivers contained. `base` holds texts that stand for files of the project in every run."""

    def __init__(self, root: str, base: Mapping[str, bytes] | None = None, memory: int | None = None) -> None:
        super().__init__()
        self.root = os.path.realpath(root)
        self.base = dict(base or {})
        self.memory = memory if memory is not None else _memory()
        self.copied = copies.small(self.root)
        self.work = self.folder / "work" / (Path(self.root).name or "root")
        self.refused: tuple[str, ...] = ()
        """What the last run was refused."""
        self.ended = ""
        """Why the last run was ended from outside; empty where it was not."""
        self.printed = ""
        """What the last run wrote to its standard output, of the beginning and of the end."""

    def __enter__(self) -> Chamber:
        return self

    @property
    def slow(self) -> bool:
        """True where the last run was ended because its time was up."""
        return self.ended.startswith("does not end")

    def why(self, otherwise: str) -> str:
        """The one reason why the last run is of no use."""
        if self.ended:
            return self.ended
        if not self.refused:
            return otherwise
        refused = f"{self.refused[0]}, which a harness may not"
        if not otherwise or "not in a harness of deinplace" in otherwise:
            return refused
        return f"{otherwise}; before that, it {refused}"

    def run(self, driver: Driver, settings: Settings, live: bool = False) -> Run:
        """Run the driver once, in a fresh copy of the project.

        Raises:
            DriverError: the command cannot be started.
        """
        self._fresh()
        self.ended, self.refused = "", ()
        run = super().run(driver, replace(settings, overlay={**self.base, **settings.overlay}))
        self.printed = run.stdout
        return run

    def _fresh(self) -> None:
        for name in ("work", "tmp", "home"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        if self.copied:
            copies.copy(self.root, str(self.work))

    def there(self, path: str) -> str:
        """Where a path of the project stands in a run."""
        real = Path(os.path.realpath(path))
        if self.copied and real.is_relative_to(self.root):
            return str(self.work / real.relative_to(self.root))
        return path

    def plain(self, driver: Driver, settings: Settings, folder: Path) -> dict[str, Any]:
        """The probe's settings, and those of the fence."""
        plain = super().plain(driver, settings, folder)
        plain["copies"] = [[str(self.work), self.root]] if self.copied else []
        plain["guard"] = {
            "writable": [str(self.folder)],
            "memory": self.memory,
            "cpu": int(driver.timeout * (os.cpu_count() or 1)) + 5,
            "file_size": FILE_SIZE,
        }
        return plain

    def execute(
        self, command: tuple[str, ...], driver: Driver, settings: Path, live: bool
    ) -> tuple[int | None, str, str]:
        """One contained run; nothing that it started outlives it.

        Raises:
            DriverError: the command cannot be started.
        """
        env = self._environment(driver, settings)
        try:
            child = subprocess.Popen(
                command, cwd=self.there(driver.cwd), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise DriverError(f"{command[0]}: {error.strerror}") from None
        assert child.stdout is not None
        assert child.stderr is not None
        pipes = [Pipe(child.stdout, KEPT), Pipe(child.stderr, KEPT)]
        try:
            self._wait(child, pipes, driver.timeout)
        finally:
            children.end(child, settings)
        out, err = (pipe.text() for pipe in pipes)
        self.refused = _refused(settings.parent)
        return (None if self.ended else child.returncode), out, err

    def _wait(self, child: subprocess.Popen[bytes], pipes: list[Pipe], timeout: float) -> None:
        limit = time.monotonic() + timeout
        while child.poll() is None:
            if any(pipe.size > FLOOD for pipe in pipes):
                self.ended = f"prints more than {FLOOD // 2**20} MB"
                return
            left = limit - time.monotonic()
            if left <= 0:
                self.ended = f"does not end within {timeout:g} s"
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(min(left, 0.1))

    def _environment(self, driver: Driver, settings: Path) -> dict[str, str]:
        """The user's environment, with every folder that programs like to write to in the scratch folder."""
        env = environment(driver, settings)
        own = [self.there(self.root), self.there(str(Path(self.root, "src")))]
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], *own])
        tmp, home = str(self.folder / "tmp"), str(self.folder / "home")
        env.setdefault("PYTHONUSERBASE", str(Path.home() / ".local"))  # what is installed there goes by HOME
        env.update(dict.fromkeys(("TMPDIR", "TMP", "TEMP"), tmp))
        env.update(dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), home))
        env.update({name: str(Path(home, "torch")) for name in ("TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR")})
        env.update(
            {"MPLBACKEND": "Agg", "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "PWD": self.there(driver.cwd)}
        )
        return env


def _memory() -> int:
    """Half of the machine's memory, in bytes."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 0.5)


def _refused(folder: Path) -> tuple[str, ...]:
    try:
        lines = (folder / "refused.txt").read_text("utf-8").splitlines()
    except OSError:
        return ()
    return tuple(dict.fromkeys(lines))
