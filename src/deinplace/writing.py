"""Writing files back: all of them or none, each in one step, and never outside the tree that was named."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deinplace.errors import DeinplaceError


@dataclass(frozen=True)
class Write:
    """A file's bytes as they were read, and as they are to be."""

    path: str
    before: bytes
    after: bytes


def tree_of(paths: Sequence[str]) -> str:
    """The innermost folder that holds every path that the user named: nothing outside it is ever written."""
    folders = [path if path.is_dir() else path.parent for path in (Path(given).absolute() for given in paths)]
    return os.path.commonpath([os.path.realpath(folder) for folder in folders])


def write_all(writes: Sequence[Write], tree: str) -> None:
    """Write every file, or none.

    All preconditions are checked before the first write; if a later one fails or is interrupted, files already
    replaced get their old bytes back.

    Raises:
        DeinplaceError: a file changed since it was read, lies outside `tree`, or cannot be written.
    """
    for write in writes:
        _check(write, tree)
    done: list[Write] = []
    complete = False
    try:
        for write in writes:
            write_atomic(write.path, write.after, write.before, tree)
            done.append(write)
        complete = True
    finally:
        if not complete:
            for write in reversed(done):
                with contextlib.suppress(DeinplaceError):  # somebody else wrote it meanwhile: theirs stays
                    write_atomic(write.path, write.before, write.after, tree)


def write_atomic(path: str, data: bytes, expected_before: bytes, tree: str) -> None:
    """Replace a file's bytes in one step, keeping its mode; a link's real file is what is replaced.

    Raises:
        DeinplaceError: the file no longer holds `expected_before`, lies outside `tree`, or cannot be written.
    """
    target = _check(Write(path, expected_before, data), tree)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    except OSError as error:
        raise DeinplaceError(f"{path}: cannot be written: {error.strerror}; nothing was changed") from None
    replaced = False
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(stat.S_IMODE(target.stat().st_mode))
        if target.read_bytes() != expected_before:
            raise _changed(path)
        Path(temporary).replace(target)
        replaced = True
    except OSError as error:
        raise DeinplaceError(f"{path}: cannot be written: {error.strerror}; nothing was changed") from None
    finally:
        if not replaced:
            Path(temporary).unlink(missing_ok=True)


def _check(write: Write, tree: str) -> Path:
    """The real file of a write, once it is known that it may be replaced."""
    target = Path(os.path.realpath(write.path))
    if not target.is_relative_to(os.path.realpath(tree)):
        raise DeinplaceError(f"{write.path}: leads out of {tree}; nothing was written")
    try:
        now = target.read_bytes()
    except OSError as error:
        raise DeinplaceError(f"{write.path}: cannot be read any more: {error.strerror}; nothing was written") from None
    if now != write.before:
        raise _changed(write.path)
    if not os.access(target, os.W_OK) or not os.access(target.parent, os.W_OK):
        raise DeinplaceError(f"{write.path}: is not writable; nothing was written")
    return target


def _changed(path: str) -> DeinplaceError:
    return DeinplaceError(f"{path}: changed while deinplace was at work; nothing was written, run it again")
