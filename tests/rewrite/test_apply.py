"""Edits are applied from the end, never overlap, and what comes out is checked before it is believed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Edit, FileChange
from deinplace.rewrite.apply import CheckError, OverlapError, apply, check, diff

PATH = "/tree/a.py"


def parse(data: bytes) -> Source:
    return Source.parse(PATH, data)


def test_overlapping_edits_are_refused() -> None:
    source = parse(b"x += 1\n")
    with pytest.raises(OverlapError):
        apply(source, [Edit(PATH, 0, 4, "a"), Edit(PATH, 3, 5, "b")])


def test_neighbours_do_not_overlap_and_twins_count_once() -> None:
    source = parse(b"abcd\n")
    edits = [Edit(PATH, 2, 4, "Y"), Edit(PATH, 0, 2, "X"), Edit(PATH, 2, 2, "-"), Edit(PATH, 2, 2, "-")]
    assert apply(source, edits) == "X-Y\n"


def test_edits_of_other_files_are_left_out() -> None:
    assert apply(parse(b"x\n"), [Edit("/tree/b.py", 0, 1, "y")]) == "x\n"


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("x = (\ny = 2\nz = 3\n", "does not parse"),
        ("x = 1\ny = 5\nz = 3\n", "not edited"),
        ("x = 1\nz = 3\n", "not edited"),
        ("x = 1\nz = 3\ny = 2\n", "not edited"),
    ],
    ids=["syntax", "changed", "lost", "moved"],
)
def test_a_change_elsewhere_is_refused(after: str, why: str) -> None:
    source = parse(b"x = 0\ny = 2\nz = 3\n")
    with pytest.raises(CheckError, match=why):
        check(source, after, [Edit(PATH, 4, 5, "1")])


def test_text_that_the_encoding_does_not_hold_is_refused() -> None:
    source = parse("# coding: latin-1\nx = 'ü'\n".encode("latin-1"))
    edit = Edit(PATH, source.text.index("ü"), source.text.index("ü") + 1, "\u0416")
    with pytest.raises(CheckError, match="does not fit"):
        check(source, apply(source, [edit]), [edit])


def test_headers_of_compound_statements_count_as_statements() -> None:
    source = parse(b"if a:\n    x = 1\nelif b:\n    y = 2\n")
    edit = Edit(PATH, source.text.index("1"), source.text.index("1") + 1, "9")
    assert check(source, apply(source, [edit]), [edit]).text == "if a:\n    x = 9\nelif b:\n    y = 2\n"
    with pytest.raises(CheckError):
        check(source, "if a:\n    x = 9\nelif c:\n    y = 2\n", [edit])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x\ny\n", "x\nz\n"),
        ("x\ny", "x\nz"),
        ("x\ny", "x\ny\n"),
        ("x\r\ny\r\n", "x\r\nz\r\n"),
        ("a\x0cb\ny\n", "a\x0cb\nz\n"),
    ],
    ids=["plain", "no-final-newline", "gains-newline", "crlf", "form-feed"],
)
def test_git_applies_the_diff(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "pkg" / "a.py"
    file.parent.mkdir()
    file.write_bytes(before.encode())
    (tmp_path / "p.diff").write_bytes(diff(FileChange(str(file), before, after), tmp_path).encode())
    subprocess.run(["git", "apply", "--unsafe-paths", "p.diff"], cwd=tmp_path, check=True, capture_output=True)
    assert file.read_bytes() == after.encode()


def test_statements_stay_outside_what_is_put_into_their_neighbour() -> None:
    source = parse(b"if a:\n    x.add_(1)\n")
    edits = [
        Edit(PATH, 10, 10, "x = "),
        Edit(PATH, 19, 19, "\n    y = x"),
        Edit(PATH, 10, 10, "x = x.clone()\n    "),
        Edit(PATH, 19, 19, ".clone()"),
    ]
    assert apply(source, edits) == "if a:\n    x = x.clone()\n    x = x.add_(1).clone()\n    y = x\n"
