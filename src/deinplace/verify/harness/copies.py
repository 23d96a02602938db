"""Scratch copies of a project, so that a program may write where it is used to write."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

LARGEST = 50 * 2**20
"""Bytes; larger projects are run where they are, and may not write there."""
_MOST = 20_000
SKIPPED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
     ".pytest_cache", ".hypothesis", "site-packages"}
)  # fmt: skip
_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", ".hg")


def root_of(path: str, given: str) -> str:
    """The folder of the project that a file belongs to.

    It is the nearest folder above that holds a mark of one (`pyproject.toml`, `.git`, ...), else the given folder,
    else the first one above that is no package.
    """
    start = Path(path).parent
    for folder in (start, *start.parents):
        if any((folder / mark).exists() for mark in _MARKS):
            return str(folder)
    if start.is_relative_to(given) and Path(given) not in (Path.home(), Path(given).parent):
        return given
    while (start / "__init__.py").exists() and start.parent != start:
        start = start.parent
    return str(start)


def small(root: str) -> bool:
    """Whether a project is small enough to be copied."""
    size = count = 0
    for path in _files(root):
        count += 1
        try:
            size += path.lstat().st_size
        except OSError:
            continue
        if size > LARGEST or count > _MOST:
            return False
    return True


def copy(root: str, target: str) -> None:
    """Copy a project; what cannot be read is left out, and links stay links."""
    for path in _files(root):
        new = Path(target, path.relative_to(root))
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            if path.is_symlink() or path.is_file():
                shutil.copy2(path, new, follow_symlinks=False)
        except OSError:
            continue
    Path(target).mkdir(parents=True, exist_ok=True)


def _files(root: str) -> Iterator[Path]:
    for base, folders, names in os.walk(root):
        here = Path(base)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [f for f in folders if f not in SKIPPED and not (here / f / "pyvenv.cfg").exists()]
        for name in (*names, *links):
            yield here / name
