"""Files: which ones belong to a command, and reading them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deinplace.analysis.source import Source, SourceError, decode
from deinplace.errors import DeinplaceError
from deinplace.model import Problem

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

DEFAULT_EXCLUDE = (
    ".bzr", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pyenv", ".pytest_cache",
    ".ruff_cache", ".svn", ".tox", ".venv", ".vscode", "__pycache__", "__pypackages__", "build", "dist", "node_modules",
    "site-packages", "venv",
)  # fmt: skip

NOTEBOOK = ".ipynb"
PARSE_SECONDS = 20.0
LARGEST_BROKEN = 4_000_000
"""Bytes of a file that another parser is still asked about."""
_PYTHON_2_MESSAGES = (
    "Missing parentheses in call to",
    "multiple exception types must be parenthesized",
    "leading zeros",
)
_PYTHON_2_LINE = re.compile(
    r"""^\s*(print\s+[^\s(=]|exec\s+['"]|raise\s+[\w.]+\s*,|except\s+[\w.]+\s*,\s*\w+\s*:)|<>"""
)


@dataclass(frozen=True)
class Selection:
    """Which files a command looks at. Patterns are those of .gitignore; one with a slash in it counts from `root`."""

    root: str
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    force_exclude: bool = False
    respect_gitignore: bool = True

    def excludes(self, path: Path, top: Path, folder: bool) -> bool:
        """True where a pattern matches `path`, which lies in `top`; the way down to `top` itself never matches."""
        root = Path(os.path.realpath(self.root))
        inside = path.is_relative_to(root) and _matches(self._anchored, path, root, folder)
        return inside or _matches(self._floating, path, top, folder)

    def holds(self, path: str) -> bool:
        """True where a pattern matches the file at an absolute path, or a folder above it inside the root."""
        return _is_excluded(Path(path), self)

    @cached_property
    def _anchored(self) -> GitIgnoreSpec:
        return _spec(pattern for pattern in self.exclude if "/" in pattern.rstrip("/"))

    @cached_property
    def _floating(self) -> GitIgnoreSpec:
        return _spec(pattern for pattern in self.exclude if "/" not in pattern.rstrip("/"))


def discover(paths: Sequence[str], selection: Selection) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Real paths of the Python files and notebooks under `paths`, in order and once each; what could not be looked at.

    A file that is named itself is taken whatever its suffix, unless `force_exclude` says otherwise. Folders behind
    symbolic links are not entered, and a link that leads out of the tree is left alone: what it points at is not
    part of the tree that the user named.

    Raises:
        DeinplaceError: a path does not exist.
    """
    found: dict[str, None] = {}
    problems: list[Problem] = []
    for given in paths:
        path = Path(given).absolute()
        if path.is_dir():
            found.update(dict.fromkeys(_walk(path, selection, problems)))
        elif path.exists() and not path.is_file():
            problems.append(Problem(given, "is a pipe, a socket or a device, no file; not read", code="special-file"))
        elif path.exists():
            if not (selection.force_exclude and _is_excluded(path, selection)):
                found[os.path.realpath(path)] = None
        else:
            raise DeinplaceError(f"{given}: no such file or folder")
    return tuple(found), tuple(problems)


def load(paths: Iterable[str]) -> tuple[dict[str, Source], tuple[Problem, ...]]:
    """Sources by path, and one problem for each file that cannot be read as Python 3."""
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            problems.append(Problem(path, f"cannot be read: {error.strerror}; left as it is", code="unreadable"))
            continue
        read, broken = load_bytes(path, data)
        sources |= read
        problems += broken
    return sources, tuple(problems)


def load_bytes(path: str, data: bytes) -> tuple[dict[str, Source], tuple[Problem, ...]]:
    """One file's source by its path, or the problem that it cannot be read as Python 3."""
    if path.endswith(NOTEBOOK):
        return _load_notebook(path, data)
    try:
        return {path: Source.parse(path, data)}, ()
    except SourceError as error:
        return {}, (_explain(error, data),)


def _load_notebook(path: str, data: bytes) -> tuple[dict[str, Source], tuple[Problem, ...]]:
    """A notebook's source, and a problem for each of its cells that is no Python, or the one that it is no notebook."""
    from deinplace.notebooks import read

    try:
        notebook, errors = read(path, data)
    except SourceError as error:
        return {}, (Problem(path, f"{error.message}; left as it is", error.line, error.code),)
    problems = []
    for fault, cell in errors:
        problem = _explain(fault, cell.text.encode("utf-8", "replace"))
        problems.append(replace(problem, line=cell.first + max(fault.line, 1) - 1))
    return {path: notebook}, tuple(problems)


def read_text(path: str) -> str | None:
    """Text of a Python file for display, or None where it cannot be had."""
    if not Path(path).is_file():  # a pipe would be waited for, a device read without end
        return None
    try:
        data = Path(path).read_bytes()
    except OSError:
        return None
    try:
        return decode(path, data)[0]
    except SourceError:
        return data.decode("utf-8", "replace")


def _explain(error: SourceError, data: bytes) -> Problem:
    """A problem that says which kind of not-Python-3 a file is."""
    where = f" (line {error.line}: {error.message})" if error.line else f" ({error.message})"
    if error.code != "syntax":
        return Problem(error.path, f"{error.message}; left as it is", error.line, error.code)
    lines = data.decode("utf-8", "replace").splitlines()
    line = lines[error.line - 1] if 0 < error.line <= len(lines) else ""
    if error.message.startswith(_PYTHON_2_MESSAGES) or _PYTHON_2_LINE.search(line):
        message = f"is Python 2{where}; only Python 3 is understood, left as it is"
        return Problem(error.path, message, error.line, "python-2")
    if not _parses_elsewhere(data):
        return Problem(error.path, f"is not valid Python{where}; left as it is", error.line, "syntax")
    message = f"needs a newer Python than the one that runs deinplace{where}; run deinplace with that one"
    return Problem(error.path, message, error.line, "newer-grammar")


def _parses_elsewhere(data: bytes) -> bool:
    """True where LibCST, whose grammar may be newer than that of this Python, accepts a file.

    It runs in a process of its own: what is nested ten thousand deep brings its parser down, and all around it.
    """
    if len(data) > LARGEST_BROKEN:
        return False
    program = "import sys, libcst; libcst.parse_module(sys.stdin.buffer.read())"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", program], input=data, capture_output=True, timeout=PARSE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _spec(lines: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _walk(top: Path, selection: Selection, problems: list[Problem]) -> Iterator[str]:
    """Real paths of the Python files in a folder, sorted by name, folders after files."""
    real_top = Path(os.path.realpath(top))
    ignores = _outer_ignores(real_top) if selection.respect_gitignore else []
    pending: list[tuple[Path, list[tuple[Path, GitIgnoreSpec]]]] = [(real_top, ignores)]
    while pending:
        folder, ignores = pending.pop()
        if selection.respect_gitignore:
            ignores = [*ignores, *_ignore_file(folder / ".gitignore", folder)]
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as error:
            problems.append(Problem(str(folder), f"cannot be looked into: {error.strerror}", code="unreadable"))
            continue
        folders = []
        for entry in entries:
            path = folder / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not (entry.name.endswith((".py", ".pyw", NOTEBOOK)) and _is_file(path, real_top)):
                continue
            if selection.excludes(path, real_top, is_folder) or _is_ignored(path, is_folder, ignores):
                continue
            if is_folder:
                folders.append((path, ignores))
            else:
                yield os.path.realpath(path)
        pending.extend(reversed(folders))


def _is_file(path: Path, top: Path) -> bool:
    """True for a plain file, or for a link to one inside `top`."""
    try:
        return path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(top))
    except (OSError, RuntimeError):  # a link that leads to itself
        return False


def _is_excluded(path: Path, selection: Selection) -> bool:
    """True where a file that was named itself, or a folder above it below the root, matches `exclude`."""
    root = Path(os.path.realpath(selection.root))
    real = Path(os.path.realpath(path))
    return selection.excludes(real, root if real.is_relative_to(root) else real.parent, folder=False)


def _matches(spec: GitIgnoreSpec, path: Path, base: Path, folder: bool) -> bool:
    return spec.match_file(path.relative_to(base).as_posix() + ("/" if folder else ""))


def _is_ignored(path: Path, folder: bool, ignores: Sequence[tuple[Path, GitIgnoreSpec]]) -> bool:
    """Git's rule: the innermost .gitignore that has an opinion decides."""
    for base, spec in reversed(ignores):
        verdict = spec.check_file(path.relative_to(base).as_posix() + ("/" if folder else "")).include
        if verdict is not None:
            return verdict
    return False


def _outer_ignores(top: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """The .gitignore files above `top` up to its repository's root, outermost first; none outside a repository."""
    above = [top, *top.parents]
    repository = next((folder for folder in above if (folder / ".git").exists()), None)
    if repository is None:
        return []
    between = reversed([folder for folder in above if folder.is_relative_to(repository) and folder != top])
    ignores = _ignore_file(repository / ".git" / "info" / "exclude", repository)
    for folder in between:
        ignores += _ignore_file(folder / ".gitignore", folder)
    return ignores


def _ignore_file(path: Path, base: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [(base, _spec(lines))]
