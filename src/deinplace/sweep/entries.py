"""The list of a sweep: one repository a line, by folder or git address, with what is to be done there."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from deinplace.errors import DeinplaceError

_URL = re.compile(r"[a-z][a-z0-9+.-]*:[/:]|[\w.-]+@[\w.-]+:")
_TRANSPORTS = ("https://", "http://", "ssh://", "git://", "file://")
_KEYS = ("rev", "path", "run", "gpus")
_SHARD = re.compile(r"(\d+)/(\d+)")
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One repository of a sweep.

    `location` is an absolute folder or a git address, `rev` a commit, branch or tag (empty: what stands there now),
    `path` the part of it to look at, `run` the command that verifies (empty: no code of the repository runs), and
    `gpus` how many of them that command needs.
    """

    location: str
    rev: str = ""
    path: str = "."
    run: str = ""
    gpus: float = 0.0

    @property
    def remote(self) -> bool:
        """True for a git address, False for a folder."""
        return bool(_URL.match(self.location))

    def key(self, plan: str) -> str:
        """The name of this entry's record, the same in every run that asks for the same thing. 20 hex digits."""
        text = json.dumps([asdict(self), plan], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def read(file: Path) -> tuple[Entry, ...]:
    """The entries of a list, in order and once each.

    A line reads `LOCATION [rev=REV] [path=PATH] [run="COMMAND"] [gpus=N]`; `#` starts a comment. Folders count from
    the list's own folder.

    Raises:
        DeinplaceError: the file cannot be read, holds no entry, or a line is not of that form.
    """
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise DeinplaceError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DeinplaceError(f"{file}: is not text in UTF-8") from None
    entries = [_entry(line, f"{file}:{number}", file.parent) for number, line in enumerate(text.splitlines(), 1)]
    found = tuple(dict.fromkeys(entry for entry in entries if entry is not None))
    if not found:
        raise DeinplaceError(f"{file}: lists no repository; write a folder or a git address on each line")
    return found


def _entry(line: str, where: str, folder: Path) -> Entry | None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise DeinplaceError(f"{where}: {error}") from None
    if not words:
        return None
    location, *rest = words
    if location.startswith("-"):
        raise DeinplaceError(f"{where}: {location}: is neither a folder nor a git address")
    values = dict(_pair(word, where) for word in rest)
    inside = Path(values.get("path", "."))
    if inside.is_absolute() or ".." in inside.parts:
        raise DeinplaceError(f"{where}: path={inside}: must lie inside the repository")
    if values.get("rev", "").startswith("-"):
        raise DeinplaceError(f"{where}: rev={values['rev']}: is no revision")
    if not _URL.match(location):
        location = str((folder / Path(location).expanduser()).resolve())
    elif ("://" in location or "::" in location) and not location.startswith(_TRANSPORTS):
        raise DeinplaceError(f"{where}: {location}: only {', '.join(t[:-3] for t in _TRANSPORTS)} addresses are taken")
    return Entry(location, values.get("rev", ""), str(inside), values.get("run", ""), _gpus(values, where))


def _pair(word: str, where: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or key not in _KEYS:
        raise DeinplaceError(f"{where}: {word!r}: write {', '.join(f'{k}=' for k in _KEYS)} after the location")
    return key, value


def _gpus(values: dict[str, str], where: str) -> float:
    try:
        count = float(values.get("gpus", "0"))
    except ValueError:
        count = -1.0
    if not 0 <= count < float("inf"):
        raise DeinplaceError(f"{where}: gpus={values['gpus']}: must be a number that is not negative")
    return count


def shard(items: Sequence[T], text: str | None) -> tuple[T, ...]:
    """Every N-th item from the I-th on, for `I/N`; all of them for None.

    Raises:
        DeinplaceError: not of the form I/N with 1 <= I <= N.
    """
    if text is None:
        return tuple(items)
    match = _SHARD.fullmatch(text)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise DeinplaceError(f"--shard {text}: write I/N, for example 1/4 for the first of four parts")
    return tuple(items[index - 1 :: count])
