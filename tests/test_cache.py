"""What is kept of a check, and when it is not believed."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deinplace.cache import Cache, Entry, groups, key
from deinplace.model import (
    Conflict,
    Edit,
    Event,
    Evidence,
    FileChange,
    Finding,
    Memory,
    ModeVerdict,
    Outcome,
    Place,
    Problem,
    Raised,
    Rewrite,
    Span,
    TensorInfo,
    Trial,
    Verdict,
)

FOUND = Finding(
    "DIP102", "augmented-assignment", "/a.py", Span(1, 2, 3, 4), "why", "advised", "static", severity="warning",
    evidence=Evidence(kind="tensor", hazard="possible"),
)  # fmt: skip
ENTRY = Entry((FOUND,), (Problem("/b.py", "is not valid Python", 3, "syntax"),), ("a note",))


def test_an_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "cache")
    assert cache.get("abc", Entry) is None
    cache.put("abc", ENTRY)
    assert cache.get("abc", Entry) == ENTRY
    assert cache.get("abd", Entry) is None


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    Cache(tmp_path / "cache").put("abc", ENTRY)
    made = [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]
    assert [p.name for p in made if stat.S_IMODE(p.stat().st_mode) & 0o077] == []
    assert not list(tmp_path.rglob("*.tmp"))


def _broken(text: str) -> list[str]:
    data = json.loads(text)
    record = data["record"]
    finding = record["findings"][0]

    def holding(**changed: object) -> str:
        return json.dumps({**data, "record": {**record, **changed}})

    return [
        "", text[:-20], "null", "[]", "{}", '{"key": "abc"}', "\x00",
        json.dumps({**data, "key": "other"}),
        holding(findings=[{**finding, "span": {"line": "1"}}]),
        holding(findings=[{**finding, "unknown": 1}]),
        holding(findings=[{**finding, "rule": None}]),
        holding(problems=[3]),
    ]  # fmt: skip


@pytest.mark.parametrize("n", range(12))
def test_what_cannot_be_read_is_ignored_and_written_again(tmp_path: Path, n: int) -> None:
    cache = Cache(tmp_path)
    cache.put("abc", ENTRY)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(_broken(path.read_text())[n])
    assert cache.get("abc", Entry) is None
    cache.put("abc", ENTRY)
    assert cache.get("abc", Entry) == ENTRY


def test_all_that_a_run_shows_is_kept_as_well(tmp_path: Path) -> None:
    place = Place("/a.py", Span(1, 0, 1, 9), "f")
    event = Event("aten::add_", (place,), TensorInfo((2, 3), "float32"), expressions=(Span(1, 2, 1, 3),))
    rewrite = Rewrite("DIP102", "x", (Edit("/a.py", 1, 2, "é\udc80"),), "safe", 1, "/a.py", (("/a.py", "f"),))
    verdict = Verdict("confirmed", "", max_abs_error=1, tolerance=float("inf"), modes=(ModeVerdict("amp", "refuted"),))
    found = replace(
        FOUND, conflict=Conflict("version", event, (event, event), "ReluBackward0", (place,)), rewrite=rewrite,
        raised=Raised("leaf", "...", ()), verdict=verdict, trials=(Trial(rewrite, verdict),), memory=Memory(1, 2),
    )  # fmt: skip
    outcome = Outcome("fix", (found,), (FileChange("/a.py", "a", "b"),), verdict=verdict, runs=3)
    cache = Cache(tmp_path)
    cache.put("abc", outcome)
    assert cache.get("abc", Outcome) == outcome
    assert cache.get("abc", Entry) is None, "another kind of record"


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    cache.put("abc", ENTRY)
    assert cache.get("abc", Entry) is None


def test_a_key_covers_settings_paths_and_contents() -> None:
    keys = [key({"/a.py": b"1"}, ["x"]), key({"/a.py": b"2"}, ["x"]), key({"/b.py": b"1"}, ["x"]),
            key({"/a.py": b"1"}, ["y"]), key({"/a.py": b"1", "/b.py": b""}, ["x"])]  # fmt: skip
    assert len(set(keys)) == 5
    assert keys[0] == key({"/a.py": b"1"}, ["x"])


@pytest.mark.parametrize(
    ("text", "together"),
    [
        (b"import b\n", True), (b"import os, b as d\n", True), (b"from b import x\n", True),
        (b"x = 1; import b\n", True),
        (b"from . import b\n", True), (b"from .b import (\n    x,\n)\n", True), (b"if x:\n    from b import x\n", True),
        (b"from os import \\\n    b\n", True), (b"x = 'b'\n", False), (b"import os\n", False),
        (b"# import nothing\n", False),
    ],
)  # fmt: skip
def test_files_that_import_one_another_go_together(text: bytes, together: bool) -> None:
    found = groups({"/p/a.py": text, "/p/b.py": b"", "/p/c.py": b""})
    assert sorted(map(sorted, found)) == (
        [["/p/a.py", "/p/b.py"], ["/p/c.py"]] if together else [["/p/a.py"], ["/p/b.py"], ["/p/c.py"]]
    )


def test_a_package_is_one_group() -> None:
    found = groups({"/p/__init__.py": b"", "/p/a.py": b"", "/p/q/__init__.py": b"", "/p/q/b.py": b"", "/c.py": b""})
    assert sorted(map(len, found)) == [1, 4]
