"""Revisions and folders to compare: what an exported revision holds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from deinplace.errors import DeinplaceError
from deinplace.verify.compare_trees import changed_functions
from deinplace.verify.trees import tree, working


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two revisions of a file, a data folder that git ignores, an attribute for archives, and a submodule."""
    part = tmp_path / "part"
    part.mkdir()
    git(part, "init", "-q")
    (part / "code.py").write_text("old = 1\n")
    git(part, "add", ".")
    git(part, "commit", "-qm", "old")
    top = tmp_path / "project"
    (top / "pkg").mkdir(parents=True)
    git(top, "init", "-q")
    (top / ".gitignore").write_text("data/\n")
    (top / ".gitattributes").write_text("tests.py export-ignore\n")
    (top / "tests.py").write_text("")
    (top / "pkg" / "a.py").write_bytes(b"def f(x):\r\n    return x\r\n")
    (top / "gone.py").write_text("")
    git(top, "submodule", "add", "-q", str(part), "part")
    git(top, "add", ".")
    git(top, "commit", "-qm", "old")
    (top / "pkg" / "a.py").write_text("def f(x):\n    return x + 1\n\n\ndef g():\n    pass\n")
    (top / "gone.py").unlink()
    (top / "part" / "code.py").write_text("new = 1\n")
    git(top / "part", "commit", "-qam", "new")
    git(top, "commit", "-qam", "new")
    (top / "data").mkdir()
    (top / "data" / "x.txt").write_text("1")
    (top / "pkg" / "untracked.txt").write_text("2")
    return top


def test_a_revision_is_exported_whole_and_data_is_linked(repository: Path, tmp_path: Path) -> None:
    before = subprocess.run(["git", "status", "--porcelain"], cwd=repository, capture_output=True, check=True).stdout
    state = tree("--base", "HEAD~1", str(repository / "pkg"), tmp_path / "scratch")
    root = Path(state.root)
    assert (root / "pkg" / "a.py").read_bytes() == b"def f(x):\r\n    return x\r\n"
    assert (root / "gone.py").exists() and (root / "tests.py").exists()
    assert (root / "part" / "code.py").read_text() == "old = 1\n"
    assert (root / "data" / "x.txt").read_text() == "1" and (root / "data").is_symlink()
    assert (root / "pkg" / "untracked.txt").read_text() == "2"
    assert (Path(state.cwd), state.notes) == (root / "pkg", ())
    after = subprocess.run(["git", "status", "--porcelain"], cwd=repository, capture_output=True, check=True).stdout
    assert after == before


def test_a_submodule_whose_commit_is_not_here_is_taken_as_it_is(repository: Path, tmp_path: Path) -> None:
    git(repository, "update-index", "--cacheinfo", f"160000,{'1' * 40},part")
    git(repository, "commit", "-qm", "elsewhere")
    state = tree("--base", "HEAD", str(repository), tmp_path / "scratch")
    assert (Path(state.root) / "part" / "code.py").read_text() == "new = 1\n"
    (note,) = state.notes
    assert note.startswith("submodule part: commit 1111111111 is not here")


def test_functions_that_changed(repository: Path, tmp_path: Path) -> None:
    state = tree("--base", "HEAD~1", str(repository), tmp_path / "scratch")
    origin = os.path.realpath(repository)
    assert changed_functions(state.root, origin, origin) == {f"{origin}/pkg/a.py": ("f",)}


def test_folders(repository: Path, tmp_path: Path) -> None:
    assert tree("--head", "pkg", str(repository), tmp_path / "unused").root == os.path.realpath(repository / "pkg")
    assert working(str(repository / "pkg")).root == os.path.realpath(repository)
    assert working(str(tmp_path)).root == os.path.realpath(tmp_path)


@pytest.mark.parametrize("name", ["nope", "--all", ""])
def test_what_is_neither(repository: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(DeinplaceError, match=r"neither a folder nor a revision|no such folder"):
        tree("--base", name or "no folder", str(repository), tmp_path / "unused")
