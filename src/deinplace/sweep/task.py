"""One repository of a sweep: fetch a private copy, run `fix --diff` there in a child process, keep what it says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import deinplace
from deinplace.files import DEFAULT_EXCLUDE
from deinplace.sweep.entries import Entry

_GIT = (
    "git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "core.symlinks=false",
    "-c", "advice.detachedHead=false", "-c", "filter.lfs.smudge=", "-c", "filter.lfs.required=false",
)  # fmt: skip
_TAIL = 2_000
_TICK = 0.2
"""Seconds between two looks at whether to stop."""


@dataclass(frozen=True)
class Plan:
    """What is done in every repository. `timeout` is in seconds, for fetching and for the command each."""

    flags: tuple[str, ...] = ()
    """More flags of `fix`."""
    timeout: float = 1800.0

    @property
    def text(self) -> str:
        """What a record depends on besides its entry."""
        return json.dumps([deinplace.__version__, list(self.flags)])


@dataclass(frozen=True)
class Record:
    """What a sweep knows of one repository: plain values only, it travels between machines as JSON.

    `state` is done, failed (the reason says why) or timeout; `exit_code` is that of `fix`.
    """

    key: str
    entry: dict[str, Any]
    state: str
    reason: str = ""
    revision: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    findings: dict[str, int] = field(default_factory=dict)
    """Findings by state."""
    patch: str = ""
    report: dict[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return asdict(self)


class _FailedError(Exception):
    """A step that did not succeed: `args` are the state and the reason."""


@dataclass(frozen=True)
class _Bounds:
    """How long a child process may run: `timeout` seconds, and only until `stopped` says True."""

    timeout: float
    stopped: Callable[[], bool]


def carry_out(entry: Entry, plan: Plan, stopped: Callable[[], bool] = bool) -> dict[str, Any]:
    """The record of one entry, as plain values; nothing of the user's is changed.

    A failure is a record too: it never raises for what a repository holds. Once `stopped` answers True the child
    processes are ended, and the record's state is `stopped`.
    """
    bounds = _Bounds(plan.timeout, stopped)
    start = time.monotonic()
    key = entry.key(plan.text)
    folder = Path(tempfile.mkdtemp(prefix="deinplace-sweep-"))
    try:
        tree = folder / "tree"
        revision = _fetch(entry, tree, bounds)
        record = _fixed(key, entry, plan, folder, revision, bounds)
    except _FailedError as error:
        state, reason = error.args
        record = Record(key, asdict(entry), state, reason)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**record.plain(), "seconds": round(time.monotonic() - start, 3)}


def _fixed(key: str, entry: Entry, plan: Plan, folder: Path, revision: str, bounds: _Bounds) -> Record:
    report, patch = folder / "report.json", folder / "fix.patch"
    if not (folder / "tree" / entry.path).exists():
        raise _FailedError("failed", f"{entry.path}: no such file or folder in the repository")
    proof = ("--run", entry.run) if entry.run else ("--verify", "off")
    command = (
        sys.executable, "-m", "deinplace", "fix", entry.path, "--diff", "--quiet", *proof, *plan.flags,
        "--output-format", "json", "--output-file", str(report), "--report", f"patch={patch}",
    )  # fmt: skip
    code, _, err = _run(command, folder / "tree", bounds)
    if code not in (0, 1) or not report.exists():
        last = err.strip().splitlines()[-1:] or [f"exit code {code}"]
        raise _FailedError("failed", last[0][:_TAIL])
    told = json.loads(report.read_text("utf-8"))
    counts: dict[str, int] = {}
    for finding in told["findings"]:
        counts[finding["state"]] = counts.get(finding["state"], 0) + 1
    text = patch.read_text("utf-8") if patch.exists() else ""
    return Record(key, asdict(entry), "done", "", revision, code, 0.0, counts, text, told)


def _fetch(entry: Entry, tree: Path, bounds: _Bounds) -> str:
    """Put a copy of the repository into `tree`; its revision, empty where there is none."""
    source = Path(entry.location)
    if not entry.remote and not source.is_dir():
        raise _FailedError("failed", f"{entry.location}: no such folder")
    if not entry.remote and not entry.rev:
        _copy(source, tree)
        code, out, _ = _run((*_GIT, "-C", str(source), "rev-parse", "--verify", "-q", "HEAD"), tree, bounds)
        return out.strip() if code == 0 else ""
    tree.mkdir()
    location = entry.location if entry.remote else f"file://{entry.location}"
    for step in (
        ("init", "-q"),
        ("fetch", "-q", "--depth", "1", "--no-tags", "--no-recurse-submodules", "--", location, entry.rev or "HEAD"),
        ("checkout", "-q", "--detach", "FETCH_HEAD"),
    ):
        code, _, err = _run((*_GIT, *step), tree, bounds)
        if code != 0:
            last = err.strip().splitlines()[-1:] or [f"exit code {code}"]
            raise _FailedError("failed", f"git {step[0]}: {last[0][:_TAIL]}")
    code, out, _ = _run((*_GIT, "rev-parse", "HEAD"), tree, bounds)
    return out.strip()


def _copy(source: Path, tree: Path) -> None:
    """A copy of a folder without what is never looked at; links stay links, and nothing behind them is copied."""
    try:
        shutil.copytree(source, tree, symlinks=True, ignore=shutil.ignore_patterns(*DEFAULT_EXCLUDE))
    except (OSError, shutil.Error) as error:
        raise _FailedError("failed", f"{source}: cannot be copied: {str(error)[:_TAIL]}") from None


def _run(command: tuple[str, ...], cwd: Path, bounds: _Bounds) -> tuple[int, str, str]:
    """Exit code and output of a command that leads a process group of its own, all of which ends with it."""
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    try:
        child = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise _FailedError("failed", f"{command[0]}: {error.strerror}") from None
    try:
        out, err = _waited(child, bounds, Path(command[0]).name)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _waited(child: subprocess.Popen[bytes], bounds: _Bounds, name: str) -> tuple[bytes, bytes]:
    """A child's output, once it has ended by itself."""
    end = time.monotonic() + bounds.timeout
    while True:
        try:
            return child.communicate(timeout=_TICK)
        except subprocess.TimeoutExpired:
            if bounds.stopped():
                raise _FailedError("stopped", "the sweep was interrupted") from None
            if time.monotonic() > end:
                raise _FailedError("timeout", f"{name} took longer than {bounds.timeout:g} s") from None
