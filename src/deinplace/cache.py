"""What `check` found, kept between runs: one entry for each group of files that import one another.

An entry is JSON, named by a digest of everything that its content depends on: this version, the settings, and every
file of the group. One that cannot be read is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any, TypeVar

from deinplace import __version__
from deinplace.model import Finding, Problem
from deinplace.plain import restored

FOLDER = "DEINPLACE_CACHE_DIR"
"""The environment variable that names the folder."""
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#;]*)|import[ \t]+([^\n#;]*))"
    rb"|;[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*([^\n#;]*)|import[ \t]+([^\n#;]*))",
    re.MULTILINE,
)
_WORD = re.compile(rb"\w+")
Record = TypeVar("Record")


@dataclass(frozen=True)
class Entry:
    """What was found in a group of files, and what was said of them."""

    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


class Cache:
    """Entries in a folder that only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str, kind: type[Record]) -> Record | None:
        """The record called `key`; None where there is none, or none that can be read."""
        try:
            data = json.loads(self._path(key).read_bytes())
            return restored(kind, data["record"]) if data["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def put(self, key: str, record: Any) -> None:
        """Keep a record; where the folder cannot be written, nothing is kept."""
        data: dict[str, Any] = {"key": key, "record": asdict(record)}
        target = self._path(key)
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".tmp")  # for its owner only
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump(data, stream)
                Path(temporary).replace(target)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


def folder(given: str | None) -> Path:
    """Where the cache lies: as told, by the environment, or where the platform keeps caches."""
    import platformdirs

    named = given or os.environ.get(FOLDER)
    return Path(named) if named else Path(platformdirs.user_cache_dir("deinplace"))


def key(files: Mapping[str, bytes], settings: Iterable[object]) -> str:
    """The name of the entry for a group of files, by path and content."""
    digest = hashlib.sha256(f"{__version__} {sys.version_info} {_own()}".encode())
    for setting in settings:
        digest.update(f"\0{setting!r}".encode("utf-8", "surrogatepass"))
    for path in sorted(files):
        digest.update(f"\0\0{path}\0".encode("utf-8", "surrogatepass"))
        digest.update(hashlib.sha256(files[path]).digest())
    return digest.hexdigest()


@cache
def _own() -> str:
    """This package as it is installed: a version that is being worked on changes without a new number."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".json"):
            state = path.stat()
            digest.update(f"{path.relative_to(root)} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def groups(files: Mapping[str, bytes]) -> list[list[str]]:
    """The files in groups that no import leads out of; rather too large than too small.

    An import leads to every file or package that is called by one of the words in it; a package is one group.
    """
    named: dict[bytes, list[str]] = {}
    for path in files:
        pure = PurePath(path)
        name = pure.parent.name if pure.stem == "__init__" else pure.stem
        named.setdefault(name.encode("utf-8", "surrogatepass"), []).append(path)
    leader = {path: path for path in files}

    def find(path: str) -> str:
        while leader[path] != path:
            leader[path] = path = leader[leader[path]]
        return path

    for path, data in files.items():
        package = str(PurePath(path).with_name("__init__.py"))
        if package in leader:
            leader[find(package)] = find(path)
        outer = str(PurePath(path).parent.parent / "__init__.py")
        if path == package and outer in leader:
            leader[find(outer)] = find(path)
        words = {word for text in _imports(data) for word in _WORD.findall(text)}
        for word in words & named.keys():
            for other in named[word]:
                leader[find(other)] = find(path)
    out: dict[str, list[str]] = {}
    for path in files:
        out.setdefault(find(path), []).append(path)
    return list(out.values())


def _imports(data: bytes) -> Iterator[bytes]:
    """The parts of a file's import statements that hold names."""
    for match in _IMPORT.finditer(data.replace(b"\\\n", b" ").replace(b"\\\r\n", b" ")):
        yield from (part for part in match.groups() if part)
