"""A notebook file: what is read, what is refused, and that only the edited lines of its JSON change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deinplace.errors import DeinplaceError
from deinplace.files import load_bytes
from deinplace.notebooks import Notebook, document, read

from .books import book

CELLS = [
    "md:# Title",
    "import torch\n%matplotlib inline\nx = torch.ones(3)",
    '# é “quotes” "and" \\n\nx += 1\n',
    "",
    "y = 1",
]


def parsed(data: bytes) -> Notebook:
    source = load_bytes("/n/a.ipynb", data)[0]["/n/a.ipynb"]
    assert isinstance(source, Notebook)
    return source


def spelt(content: Any, **options: Any) -> bytes:
    return json.dumps(content, **options).encode()


def with_strings(content: Any) -> Any:
    return json.loads(json.dumps(content))


FORMS = [
    pytest.param({"indent": 1, "ensure_ascii": False}, id="as Jupyter writes it"),
    pytest.param({"indent": 4, "sort_keys": True}, id="indented by 4, sorted"),
    pytest.param({"indent": "\t"}, id="tabs"),
    pytest.param({"separators": (",", ":")}, id="on one line"),
    pytest.param({}, id="on one line, spaced, escaped"),
]


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("listed", [True, False], ids=["lists", "strings"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\n"])
def test_only_edited_lines_change(options: dict[str, Any], listed: bool, end: bytes) -> None:
    content = with_strings(book(CELLS))
    for cell in content["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True) if listed else cell["source"]
    content["metadata"]["zebra"] = {"a": [1.50, 1e3, None, True, "x += 1\n"]}
    data = spelt(content, **options) + end
    notebook = parsed(data)
    assert notebook.written(notebook.text) == data
    after = notebook.written(notebook.text.replace("x += 1\n", "x = x + 1\nx = x.clone()\n"))
    spelling = [
        json.dumps(s, ensure_ascii=options.get("ensure_ascii", True))[1:-1]
        for s in ("x += 1\n", "x = x + 1\n", "x = x.clone()\n")
    ]
    at = data.index(b"quotes")
    if listed:
        quoted = [f'"{s}"'.encode() for s in spelling]
        assert after.count(quoted[1]) == after.count(quoted[2]) == 1
        assert len(after) - len(data) == sum(map(len, quoted[1:])) - len(quoted[0]) + len(separator(after, quoted[1]))
    else:
        old, new = spelling[0].encode(), "".join(spelling[1:]).encode()
        assert after == data[:at] + data[at:].replace(old, new, 1)
    assert [c["outputs"] for c in json.loads(after)["cells"] if "outputs" in c] == [[], [], [], []]


def separator(after: bytes, first: bytes) -> bytes:
    start = after.index(first) + len(first)
    return after[start : after.index(b'"', start)]


def test_outputs_stay_as_they_were() -> None:
    content = with_strings(book(CELLS))
    content["cells"][2]["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["x += 1\n"]}]
    content["cells"][2]["execution_count"] = 7
    data = spelt(content, indent=1)
    notebook = parsed(data)
    after = json.loads(notebook.written(notebook.text.replace("x += 1\n", "x = x + 1\n")))
    assert after["cells"][2]["outputs"] == content["cells"][2]["outputs"]
    assert after["cells"][2]["execution_count"] == 7
    assert after["cells"][2]["source"].count("x = x + 1") == 1


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=4), st.booleans(), st.booleans())
def test_any_source_is_found_again(texts: list[str], plain: bool, listed: bool) -> None:
    content = {"cells": [{"source": t.splitlines(keepends=True) if listed else t, "metadata": {}} for t in texts]}
    raw = json.dumps(content, ensure_ascii=plain)
    found = document.fields(raw)
    assert len(found) == len(texts)
    for field, text in zip(found, texts, strict=True):
        assert field is not None
        assert "".join(piece.text for piece in document.pieces(raw, field)) == text
        for offset in range(len(text)):
            at = document.offset_in(raw, field, offset)
            assert json.dumps(text[offset], ensure_ascii=plain)[1:3].startswith(raw[at : at + 1])
    again = json.loads(document.replaced(raw, {index: f"{text}é\n!" for index, text in enumerate(texts)}))
    assert ["".join(cell["source"]) for cell in again["cells"]] == [f"{text}é\n!" for text in texts]
    assert [type(cell["source"]) for cell in again["cells"]] == [list if listed else str] * len(texts)


@pytest.mark.parametrize("text", ["before\n{}", "{}\n# %% deinplace cell 9\nx = 1\n"])
def test_what_reaches_beyond_the_cells_is_refused(text: str) -> None:
    notebook = parsed(spelt(book(CELLS)))
    with pytest.raises(DeinplaceError, match="nothing was changed"):
        notebook.written(text.format(notebook.text))


def test_a_changed_magic_is_refused() -> None:
    notebook = parsed(spelt(book(["%time x = 1"])))
    with pytest.raises(DeinplaceError, match="nothing was changed"):
        notebook.written(notebook.text.replace("0    ;x = 1", "0    ;for i in []: x = 1"))


BAD = [
    pytest.param(b"{", "not valid JSON", id="corrupt JSON"),
    pytest.param(b"\xff\xfe", "not text in UTF-8", id="not UTF-8"),
    pytest.param(b"[1]", "does not say which `nbformat`", id="not an object"),
    pytest.param(b"{}", "does not say which `nbformat`", id="some other JSON"),
    pytest.param(b'{"nbformat": 3, "worksheets": []}', "jupyter nbconvert --to notebook", id="format 3"),
    pytest.param(b'{"nbformat": 5, "cells": []}', "format 5, only 4 is understood", id="format of the future"),
    pytest.param(b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "not what format 4 says", id="no source"),
    pytest.param(
        b'{"nbformat": 4, "cells": [], "metadata": {"language_info": {"name": "R"}}}', "notebook in r", id="R"
    ),
    pytest.param(b"[" * 200_000, "nested too deeply", id="nested"),
]


@pytest.mark.parametrize(("data", "words"), BAD)
def test_what_is_no_notebook_is_one_clear_line(data: bytes, words: str) -> None:
    sources, problems = load_bytes("/n/bad.ipynb", data)
    assert not sources
    assert [words in problem.message for problem in problems] == [True]
    assert "\n" not in problems[0].message


@pytest.mark.parametrize("command", [["check"], ["fix"], ["fix", "--verify", "off"], ["run"]], ids=" ".join)
def test_commands_refuse_it_with_code_2(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "bad.ipynb"
    path.write_bytes(b"{")
    words = [sys.executable, "-m", "deinplace", *command, "bad.ipynb"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    said = (done.stdout + done.stderr).splitlines()
    assert len([line for line in said if "is no notebook: not valid JSON (line 1" in line]) == 1, said
    assert "Traceback" not in done.stdout + done.stderr
    assert path.read_bytes() == b"{"


def test_broken_cells_are_reported_and_others_go_on() -> None:
    cells = ["x = 1", "def f(:\n  pass", "print 'hi'", "  y = 2\n  z = 3"]
    sources, problems = load_bytes("/n/a.ipynb", spelt(book(cells)))
    assert [(p.line, p.code) for p in problems] == [(4, "syntax"), (7, "python-2")]
    assert "y = 2" in sources["/n/a.ipynb"].text
    notebook, errors = read("/n/a.ipynb", spelt(book(cells)))
    assert len(errors) == 2
    assert notebook.written(notebook.text) == spelt(book(cells))


def test_cells_are_separate_programs() -> None:
    """`from __future__` and top-level await may stand in any cell, and a coding line means nothing."""
    sources, problems = load_bytes(
        "/n/a.ipynb", spelt(book(["# coding: latin-1\nx = 'é'", "from __future__ import annotations", "await x"]))
    )
    assert not problems
    assert "é" in sources["/n/a.ipynb"].text
