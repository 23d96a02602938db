"""Patches that were proved, kept between runs: what `fix --diff` showed, `fix` writes without running all of it again.

Only a patch whose every rewrite was confirmed is kept, for a day, under a digest of what the proof rests on: this
version, the settings, the command, the interpreter and its packages, the environment, and every source and settings
file of the project. Data that the program reads from elsewhere is not part of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deinplace import cache
from deinplace.files import Selection
from deinplace.model import Outcome

DAY = 86_400.0
_MOST = 20_000
_LARGEST = 1_000_000
_READ = frozenset(
    {".py", ".pyi", ".pyx", ".ipynb", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt", ".csv", ".sh"}
)
_VOLATILE = frozenset({"_", "SHLVL", "TERM", "COLUMNS", "LINES", "OLDPWD", "WINDOWID", "TERM_SESSION_ID", "TMPDIR"})
"""Names in the environment that differ from shell to shell and that no program computes with."""


@dataclass(frozen=True)
class Proved:
    """An outcome, and when it was made (seconds since the epoch)."""

    outcome: Outcome
    made: float


@dataclass(frozen=True)
class Verdicts:
    """The proved patch of one question; `key` is empty where the question cannot be told from others."""

    store: cache.Cache
    key: str

    def recall(self, now: float | None = None) -> Outcome | None:
        """The outcome of the same question, if it was proved within a day."""
        held = self.store.get(self.key, Proved) if self.key else None
        age = (time.time() if now is None else now) - held.made if held is not None else -1.0
        if held is None or not 0 <= age < DAY:
            return None
        note = (
            f"proved {_ago(age)} by {_runs(held.outcome.runs)}, and nothing has changed since; --no-cache runs it again"
        )
        return replace(held.outcome, notes=(*held.outcome.notes, note), runs=0)

    def keep(self, outcome: Outcome) -> None:
        """Keep an outcome whose every rewrite was confirmed."""
        if self.key and _proved(outcome):
            self.store.put(self.key, Proved(outcome, time.time()))


def question(
    store: cache.Cache,
    sources: Mapping[str, bytes],
    folder: Path,
    settings: Iterable[object],
    more: Iterable[Path] = (),
) -> Verdicts:
    """What is asked of the project in `folder`: sources by path, settings, and further folders to import from."""
    files = dict(sources)
    for top in (folder, *more):
        found = _files(top, files)
        if found is None:
            return Verdicts(store, "")
        files |= found
    surroundings = sorted((k, v) for k, v in os.environ.items() if k not in _VOLATILE)
    return Verdicts(store, cache.key(files, [*settings, str(folder), surroundings]))


def _files(top: Path, known: Mapping[str, bytes]) -> dict[str, bytes] | None:
    """Contents by path of the sources and settings below a folder, less those that are known.

    None where there are too many files, or one cannot be read.
    """
    selection = Selection(str(top))
    found: dict[str, bytes] = {}
    seen = 0
    for base, folders, names in os.walk(top):
        folders[:] = [f for f in folders if not selection.excludes(Path(base, f), top, folder=True)]
        seen += len(names)
        if seen > _MOST:
            return None
        for name in names:
            path = Path(base, name)
            if path.suffix.lower() in _READ and str(path) not in known:
                try:
                    state = path.stat()
                    size = state.st_size
                    found[str(path)] = path.read_bytes() if size <= _LARGEST else f"{size} {state.st_mtime_ns}".encode()
                except OSError:
                    return None
    return found


def _proved(outcome: Outcome) -> bool:
    """Every rewrite was confirmed, nothing was taken back, and nothing went wrong on the way."""
    tried = [f for f in outcome.findings if f.rewrite is not None]
    return (
        bool(outcome.changes)
        and not outcome.problems
        and all(f.verdict is not None and f.verdict.status == "confirmed" for f in tried)
        and all(f.state != "rolled-back" for f in outcome.findings)
        and (outcome.verdict is None or outcome.verdict.status == "confirmed")
    )


def _ago(seconds: float) -> str:
    for size, word in ((3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {word}{'s' if number > 1 else ''} ago"
    return "just now"


def _runs(number: int) -> str:
    return f"{number} run{'s' if number != 1 else ''} of the program"
