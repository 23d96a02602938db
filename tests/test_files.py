"""Discovery, reading and writing, on real files."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from deinplace.errors import DeinplaceError
from deinplace.files import Selection, discover, load, read_text
from deinplace.writing import Write, tree_of, write_all, write_atomic

needs_permissions = pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")


def found(root: Path, *paths: str, **selection: object) -> list[str]:
    files, problems = discover([str(root / p) for p in paths or ("",)], Selection(str(root), **selection))  # type: ignore[arg-type]
    assert problems == ()
    return [Path(f).relative_to(root.resolve()).as_posix() for f in files]


def test_folders_are_searched_and_default_excludes_left_out(tmp_path: Path) -> None:
    make(tmp_path, "b.py", "a/c.py", "a/d.txt", ".venv/e.py", "build/f.py", "a/node_modules/g.py", "a/__pycache__/h.py")
    assert found(tmp_path) == ["b.py", "a/c.py"]


def test_a_folder_that_is_named_is_searched_even_inside_an_excluded_one(tmp_path: Path) -> None:
    make(tmp_path, "build/lib/a.py", "build/lib/dist/b.py")
    assert found(tmp_path, "build/lib") == ["build/lib/a.py"]


def test_a_named_file_is_taken_unless_excludes_are_forced(tmp_path: Path) -> None:
    make(tmp_path, "build/a.py")
    make(tmp_path, "script")
    assert found(tmp_path, "build/a.py", "script") == ["build/a.py", "script"]
    assert found(tmp_path, "build/a.py", "script", force_exclude=True) == ["script"]


def test_patterns_with_a_slash_count_from_the_root(tmp_path: Path) -> None:
    make(tmp_path, "src/gen/a.py", "src/b.py", "gen/c.py")
    assert found(tmp_path, "src", "gen", exclude=("src/gen",)) == ["src/b.py", "gen/c.py"]
    assert found(tmp_path, "src", exclude=("gen",)) == ["src/b.py"]
    assert found(tmp_path, exclude=("gen",)) == ["src/b.py"]


def test_nested_gitignores_are_honoured_and_may_take_back(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "out/b.py", "pkg/c_gen.py", "pkg/keep_gen.py", "pkg/sub/d_gen.py", "pkg/local.py")
    (tmp_path / ".gitignore").write_text("out/\n*_gen.py\n")
    (tmp_path / "pkg/.gitignore").write_text("!keep_gen.py\n/local.py\n")
    assert found(tmp_path) == ["a.py", "pkg/keep_gen.py"]
    assert "out/b.py" in found(tmp_path, respect_gitignore=False)


def test_gitignores_above_count_inside_a_repository_only(tmp_path: Path) -> None:
    make(tmp_path, "pkg/a.py", "pkg/b.py")
    (tmp_path / ".gitignore").write_text("b.py\n")
    assert found(tmp_path, "pkg") == ["pkg/a.py", "pkg/b.py"]
    (tmp_path / ".git/info").mkdir(parents=True)
    assert found(tmp_path, "pkg") == ["pkg/a.py"]
    (tmp_path / ".git/info/exclude").write_text("a.py\n")
    assert found(tmp_path, "pkg") == []


def test_links_are_not_followed_out_of_the_tree_or_round_in_circles(tmp_path: Path) -> None:
    make(tmp_path, "outside/o.py", "tree/a.py")
    tree = tmp_path / "tree"
    (tree / "loop").symlink_to(tree, target_is_directory=True)
    (tree / "self.py").symlink_to(tree / "self.py")
    (tree / "gone.py").symlink_to(tree / "nowhere.py")
    (tree / "out.py").symlink_to(tmp_path / "outside/o.py")
    (tree / "outdir").symlink_to(tmp_path / "outside", target_is_directory=True)
    (tree / "again.py").symlink_to(tree / "a.py")
    assert found(tmp_path, "tree") == ["tree/a.py"]


def test_a_path_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DeinplaceError, match=r"nope\.py: no such file or folder"):
        discover([str(tmp_path / "nope.py")], Selection(str(tmp_path)))


@needs_permissions
def test_what_may_not_be_read_is_a_problem_and_the_rest_goes_on(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.py", "locked/c.py")
    (tmp_path / "b.py").chmod(0)
    (tmp_path / "locked").chmod(0)
    files, problems = discover([str(tmp_path)], Selection(str(tmp_path)))
    sources, unread = load(files)
    (tmp_path / "locked").chmod(0o755)
    assert [p.code for p in (*problems, *unread)] == ["unreadable", "unreadable"]
    assert list(sources) == [str((tmp_path / "a.py").resolve())]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"def f(:\n    pass\n", "syntax", "is not valid Python (line 1"),
        (b"x = 1\nprint 'hello'\n", "python-2", "is Python 2 (line 2"),
        (b"try:\n    pass\nexcept ValueError, e:\n    pass\n", "python-2", "is Python 2 (line 3"),
        (b"raise ValueError, 'no'\n", "python-2", "is Python 2"),
        (b"x = 1\0\n", "nul-bytes", "NUL"),
        (b"# coding: klingon\n", "encoding", "unknown encoding"),
        (b"x = '\xff'\n", "encoding", "encoding"),
    ],
)
def test_a_file_that_is_not_python_3_says_what_it_is(tmp_path: Path, data: bytes, code: str, words: str) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    sources, (problem,) = load([str(path)])
    assert sources == {}
    assert problem.code == code
    assert words in problem.message
    assert "\n" not in problem.message


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python reads template strings itself")
def test_grammar_of_a_newer_python_is_not_called_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b'name = t"hello {1}"\n')
    _, (problem,) = load([str(path)])
    assert problem.code == "newer-grammar"


def test_text_is_shown_in_the_encoding_that_a_file_declares(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes("# coding: latin-1\ns = 'é'\n".encode("latin-1"))
    assert read_text(str(tmp_path / "a.py")) == "# coding: latin-1\ns = 'é'\n"
    assert read_text(str(tmp_path / "b.py")) is None


def test_a_write_keeps_the_mode_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(0o750)
    write_atomic(str(path), b"new", b"old", str(tmp_path))
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_bytes(b"old")
    (tmp_path / "link.py").symlink_to("real.py")
    write_atomic(str(tmp_path / "link.py"), b"new", b"old", str(tmp_path))
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real.py").read_bytes() == b"new"


def test_a_link_that_leads_out_of_the_tree_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "out.py", "tree/a.py")
    link = tmp_path / "tree/link.py"
    link.symlink_to(tmp_path / "out.py")
    with pytest.raises(DeinplaceError, match="leads out of"):
        write_atomic(str(link), b"new", b"x = 1\n", tree_of([str(link)]))
    assert (tmp_path / "out.py").read_bytes() == b"x = 1\n"


def test_nothing_is_written_when_one_file_has_changed_meanwhile(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.py")
    (tmp_path / "b.py").write_bytes(b"somebody else was here\n")
    writes = [Write(str(tmp_path / n), b"x = 1\n", b"x = 2\n") for n in ("a.py", "b.py")]
    with pytest.raises(DeinplaceError, match=r"b\.py: changed while deinplace was at work"):
        write_all(writes, str(tmp_path))
    assert (tmp_path / "a.py").read_bytes() == b"x = 1\n"
    assert (tmp_path / "b.py").read_bytes() == b"somebody else was here\n"


def test_files_already_written_get_their_bytes_back_when_a_later_one_fails(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.py")
    (tmp_path / "also_b.py").symlink_to("b.py")
    # the second name of b.py holds the old bytes when the preconditions are checked, but not when its turn comes
    writes = [Write(str(tmp_path / n), b"x = 1\n", b"x = 2\n") for n in ("a.py", "b.py", "also_b.py")]
    with pytest.raises(DeinplaceError, match="changed while"):
        write_all(writes, str(tmp_path))
    assert (tmp_path / "a.py").read_bytes() == b"x = 1\n"
    assert (tmp_path / "b.py").read_bytes() == b"x = 1\n"


@needs_permissions
def test_a_file_that_may_not_be_written_stops_the_whole_patch(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.py")
    (tmp_path / "b.py").chmod(0o444)
    writes = [Write(str(tmp_path / n), b"x = 1\n", b"x = 2\n") for n in ("a.py", "b.py")]
    with pytest.raises(DeinplaceError, match="not writable"):
        write_all(writes, str(tmp_path))
    assert (tmp_path / "a.py").read_bytes() == b"x = 1\n"
