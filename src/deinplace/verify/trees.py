"""States of a project to compare: a folder, the working tree, or a git revision put into a folder of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deinplace.errors import DeinplaceError

_LINK = "160000"
"""Mode of an entry that stands for a submodule."""


@dataclass(frozen=True)
class Tree:
    """One state: what the user called it, the folder that holds it, and where in it the command runs."""

    title: str
    root: str
    cwd: str
    notes: tuple[str, ...] = ()


def working(folder: str) -> Tree:
    """The working tree around `folder`, as it is on disk."""
    top = toplevel(folder)
    return Tree("the working tree", top or os.path.realpath(folder), os.path.realpath(folder))


def tree(flag: str, name: str, folder: str, scratch: Path) -> Tree:
    """The state that `name` stands for, seen from `folder`: a folder, else a revision, which `scratch` then holds.

    Raises:
        DeinplaceError: it is neither.
    """
    if Path(folder, name).is_dir():
        root = os.path.realpath(Path(folder, name))
        return Tree(name, root, root)
    top = toplevel(folder)
    if top is None:
        raise DeinplaceError(f"{flag} {name}: no such folder, and no revision either: {folder} is in no git repository")
    commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", fails=True).strip()
    if not commit:
        raise DeinplaceError(f"{flag} {name}: neither a folder nor a revision of {top}")
    scratch.mkdir(parents=True)
    root = os.path.realpath(scratch)
    notes = tuple(_export(top, commit, root))
    _fill(top, root)
    inside = os.path.relpath(os.path.realpath(folder), top)
    return Tree(f"{name} ({commit[:10]})", root, str(Path(root, inside)), notes)


def toplevel(folder: str) -> str | None:
    """The folder of the repository that holds `folder`, or None where there is none."""
    found = _git(folder, "rev-parse", "--show-toplevel", fails=True).removesuffix("\n")
    return os.path.realpath(found) if found else None


def _export(top: str, commit: str, root: str) -> Iterator[str]:
    """Write the files of a commit below `root`; yields what could not be had.

    Through an index of its own, so that neither the user's index nor attributes meant for archives matter.
    """
    index = f"{root}.index"
    _git(top, "read-tree", commit, index=index)
    _git(top, "checkout-index", "--all", "--force", f"--prefix={root}/", index=index)
    Path(index).unlink()
    for entry in _git(top, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0"):
        if entry.startswith(_LINK):
            yield from _submodule(top, entry, root)


def _submodule(top: str, entry: str, root: str) -> Iterator[str]:
    """A submodule at the commit that the revision names, or as it is in the working tree where that one is not here."""
    head, path = entry.split("\t", 1)
    commit = head.split()[2]
    here, there = str(Path(top, path)), str(Path(root, path))
    if not Path(here, ".git").exists():
        return
    if _git(here, "cat-file", "-t", commit, fails=True).strip() == "commit":
        Path(there).mkdir(parents=True, exist_ok=True)
        yield from _export(here, commit, there)
        return
    Path(there).parent.mkdir(parents=True, exist_ok=True)
    if Path(there).is_dir():
        Path(there).rmdir()
    Path(there).symlink_to(here)
    yield f"submodule {path}: commit {commit[:10]} is not here, so the one in the working tree was used"


def _fill(top: str, root: str) -> None:
    """Link what git does not track, such as data, into the exported files: the program may need it."""
    for name in _git(top, "ls-files", "--others", "--directory", "-z").split("\0"):
        if name and not name.rstrip("/").endswith("__pycache__"):
            _link(Path(top, name), Path(root, name))


def _link(here: Path, there: Path) -> None:
    """A link, unless the revision has the path itself; then inside of it, where both are folders."""
    if not there.exists() and not there.is_symlink():
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(here)
    elif here.is_dir() and there.is_dir() and not there.is_symlink():
        for child in here.iterdir():
            _link(child, there / child.name)


def _git(folder: str, *arguments: str, index: str | None = None, fails: bool = False) -> str:
    """What git prints. With `fails` nothing where it fails, as it may.

    Raises:
        DeinplaceError: it fails.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command: Sequence[str] = ("git", "-C", folder, *arguments)
    try:
        done = subprocess.run(
            command, env=env | ({"GIT_INDEX_FILE": index} if index else {}), capture_output=True, check=False
        )
    except FileNotFoundError:
        if fails:
            return ""
        raise DeinplaceError("git is not installed; give folders instead of revisions") from None
    if done.returncode and not fails:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DeinplaceError(f"git {arguments[0]}: {words[-1] if words else 'failed'}")
    return "" if done.returncode else os.fsdecode(done.stdout)
