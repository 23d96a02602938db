"""Runs the user's program in a child process with the probe attached, and brings back what it saw."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deinplace.errors import DeinplaceError
from deinplace.verify import children
from deinplace.verify.children import Pipe

SEED = 0
"""What the probe seeds torch, random and NumPy with; a program's own seeds override it."""
KEPT = 2**20
"""Bytes of a program's output that are kept, of the beginning and of the end each."""
_SHELL = frozenset("|&;<>()$`\n")
_STARTUP = Path(__file__).resolve().parent.parent / "probe" / "startup"


class DriverError(DeinplaceError):
    """The user's program cannot serve as a driver: it is missing, cannot be watched, or fails for another reason."""


@dataclass(frozen=True)
class Driver:
    """A command that runs the user's code. `timeout` is in seconds, `max_steps` counts optimizer steps."""

    command: tuple[str, ...]
    cwd: str
    python: str | None = None
    timeout: float = 600.0
    max_steps: int | None = None
    text: str = ""
    paranoid: bool = False
    """Watched runs copy each saved tensor and compare it when it is used: that finds writes which go past torch."""
    mode: str = ""
    """Run otherwise than it was written: see `probe.modes`."""
    mode_paths: tuple[str, ...] = ()
    """Files whose modules the mode is for."""
    device: str = ""
    """Where new tensors are made by default."""
    copies: tuple[tuple[str, str], ...] = ()
    """Folders to import from, each in place of another folder, after which its files are named."""
    texts: tuple[tuple[str, bytes], ...] = ()
    """Path and module of each notebook that is run: every run has these in its overlay, patched or not."""

    @classmethod
    def from_text(
        cls, text: str, cwd: str, python: str | None = None, timeout: float = 600.0, max_steps: int | None = None
    ) -> Driver:
        """A driver from a command line as a shell would read it.

        Raises:
            DriverError: quotes do not match, or there is no command.
        """
        if _SHELL & set(text):
            return cls(("bash", "-c", text), cwd, python, timeout, max_steps, text)
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise DriverError(f"--run {text!r}: {error}") from None
        if not words:
            raise DriverError("--run: no command given, write for example --run 'python train.py'")
        return cls(words, cwd, python, timeout, max_steps, text)

    @property
    def title(self) -> str:
        """The command as the user wrote it."""
        return self.text or shlex.join(self.command)

    def resolved(self) -> tuple[str, ...]:
        """The command with the chosen interpreter in place of `python`.

        Raises:
            DriverError: the command, or the script it names, does not exist.
        """
        first, *rest = self.command
        if self.python is not None and Path(first).name in ("python", "python3"):
            first = self.python
        found = shutil.which(first, path=os.environ.get("PATH")) or shutil.which(str(Path(self.cwd, first)))
        if found is None:
            raise DriverError(f"command not found: {first}")
        script = next((word for word in rest if not word.startswith("-")), None)
        if "python" in Path(first).name and rest and script == rest[0] and not Path(self.cwd, script).exists():
            raise DriverError(f"{script}: no such file; the command {self.title!r} names it")
        return (found, *rest)


@dataclass(frozen=True)
class Settings:
    """What the probe is to do in one run; `plain()` is what it reads."""

    watch: bool = False
    record: bool = False
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    """Patched text by path of the file that it stands for."""
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    look: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    emulate: Mapping[str, Any] | None = None
    attest: Mapping[str, Any] | None = None
    """What more oracles want: see `probe.attest`."""
    stale: tuple[tuple[str, int, str], ...] = ()
    sites: bool = False
    """Note every line at which an in-place operation ran."""
    stir: bool = False
    """Lay out memory otherwise: then what hangs on addresses, such as the order of a set of objects, changes, too."""
    audit: bool = False
    """Note what each in-place operation saves, and where one that is not in place could be."""


@dataclass(frozen=True)
class Process:
    """What one watched process handed over."""

    account: Mapping[str, Any]
    recording: Path | None


@dataclass(frozen=True)
class Run:
    """A finished run: exit code (None when the time limit ended it), output, and what its processes saw."""

    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    processes: tuple[Process, ...]

    @property
    def attached(self) -> bool:
        """True where at least one process loaded the probe."""
        return bool(self.processes)

    @property
    def torch(self) -> bool:
        """True where at least one process imported torch."""
        return any(p.account.get("torch") for p in self.processes)

    def gather(self, key: str) -> list[Any]:
        """One list of all processes' entries under `key`."""
        return [entry for p in self.processes for entry in p.account.get(key) or ()]

    def total(self, key: str) -> int:
        """Sum of a counter over all processes."""
        return sum(int(p.account.get(key) or 0) for p in self.processes)

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The uncaught exception that ended a process, if any."""
        return next((p.account["failure"] for p in self.processes if p.account.get("failure")), None)


class Laboratory:
    """A private temporary folder in which runs leave their files; `close` removes it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="deinplace-"))
        self.count = 0

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, driver: Driver, settings: Settings, live: bool = False) -> Run:
        """Run the driver once. With `live` the program keeps the terminal; otherwise its output is captured.

        Raises:
            DriverError: the command cannot be started.
        """
        self.count += 1
        folder = self.folder / f"run{self.count}"
        folder.mkdir()
        path = folder / "settings.json"
        path.write_text(json.dumps(self.plain(driver, settings, folder)), encoding="utf-8")
        command = driver.resolved()
        start = time.monotonic()
        code, out, err = self.execute(command, driver, path, live)
        return Run(code, out, err, time.monotonic() - start, _collect(folder))

    def bare(self, driver: Driver, env: Mapping[str, str]) -> Run:
        """Run the driver once without the probe, in an environment of its own.

        Raises:
            DriverError: the command cannot be started.
        """
        start = time.monotonic()
        code, out, err = _execute(driver.resolved(), driver, env, self.folder / "settings.json", live=False)
        return Run(code, out, err, time.monotonic() - start, ())

    def execute(
        self, command: tuple[str, ...], driver: Driver, settings: Path, live: bool
    ) -> tuple[int | None, str, str]:
        """Exit code (None when time was up), output and errors of one run.

        Raises:
            DriverError: the command cannot be started.
        """
        return _execute(command, driver, environment(driver, settings), settings, live)

    def plain(self, driver: Driver, settings: Settings, folder: Path) -> dict[str, Any]:
        """The probe's settings; patched texts are put into files of their own."""
        overlay = {}
        for index, (path, text) in enumerate({**dict(driver.texts), **settings.overlay}.items()):
            copy = folder / f"overlay{index}.py"
            copy.write_bytes(text)
            overlay[path] = str(copy)
        return {
            "out": str(folder),
            "seed": SEED,
            "watch": settings.watch,
            "record": settings.record,
            "overlay": overlay,
            "functions": {path: list(names) for path, names in settings.functions.items()},
            "look": {key: [list(pair) for pair in pairs] for key, pairs in settings.look.items()},
            "emulate": settings.emulate,
            "attest": dict(settings.attest) if settings.attest else None,
            "sites": settings.sites,
            "audit": settings.audit,
            "stir": settings.stir,
            "stale": [list(entry) for entry in settings.stale],
            "max_steps": driver.max_steps,
            "paranoid": driver.paranoid,
            "mode": driver.mode,
            "mode_paths": list(driver.mode_paths),
            "device": driver.device,
            "copies": [list(pair) for pair in driver.copies],
            "redirect": [list(pair) for pair in driver.copies],
        }


def environment(driver: Driver, settings: Path) -> dict[str, str]:
    """The user's environment, with the probe's start-up hook first on PYTHONPATH and the sources of chance fixed."""
    env = dict(os.environ)
    env["DEINPLACE_PROBE"] = str(settings)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_STARTUP), env.get("PYTHONPATH"))))
    env.setdefault("PYTHONHASHSEED", "0")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if driver.mode != "compile":
        env["TORCHDYNAMO_DISABLE"] = "1"
    env["PYTEST_ADDOPTS"] = f"{env.get('PYTEST_ADDOPTS', '')} --assert=plain -p no:cacheprovider".strip()
    if driver.python is not None:
        env["PATH"] = str(Path(driver.python).absolute().parent) + os.pathsep + env.get("PATH", "")
    return env


def _execute(
    command: tuple[str, ...], driver: Driver, env: Mapping[str, str], settings: Path, live: bool
) -> tuple[int | None, str, str]:
    """Start, wait, and end all that the run started when time is up or the user interrupts.

    What a program leaves behind when it ends by itself, such as a daemon, is left alone, and not waited for either.
    """
    pipe = None if live else subprocess.PIPE
    stdin = None if live else subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            command, cwd=driver.cwd, env=env, stdin=stdin, stdout=pipe, stderr=pipe, start_new_session=not live
        )
    except OSError as error:
        raise DriverError(f"{command[0]}: {error.strerror}") from None
    pipes = [Pipe(stream, KEPT) for stream in (child.stdout, child.stderr) if stream is not None]
    try:
        code: int | None = child.wait(timeout=driver.timeout)
    except subprocess.TimeoutExpired:
        children.end(child, settings, not live)
        code = None
    except BaseException:
        children.end(child, settings, not live)
        raise
    out, err = (found.text() for found in pipes) if pipes else ("", "")
    return code, out, err


def _collect(folder: Path) -> tuple[Process, ...]:
    """Accounts of all processes: by rank, by number where multiprocessing gave one, by start time."""
    found = []
    for path in folder.glob("*.json"):
        if path.name == "settings.json":
            continue
        try:
            account = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:  # the disk was full, or somebody else wrote here: as good as none
            continue
        if not isinstance(account, dict):
            continue
        recording = path.with_suffix(".rec")
        found.append(Process(account, recording if recording.exists() else None))

    def order(process: Process) -> tuple[str, list[int], float]:
        account = process.account
        return str(account.get("rank") or ""), account.get("child") or [], account.get("started", 0.0)

    return tuple(sorted(found, key=order))


def limited(driver: Driver, seconds: float) -> Driver:
    """The same driver with a time limit of at most `seconds`."""
    return replace(driver, timeout=min(driver.timeout, max(seconds, 1.0)))
