"""Every report names a place in a notebook so that its reader finds it, and what is suppressed there stays silent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import deinplace.report

from .books import put

CELLS = (
    "md:# Faults",
    "%matplotlib inline\nimport torch",
    "v = torch.ones(3, requires_grad=True)\né = torch.sigmoid(v); é += 2\né.sum().backward()",
    "def broken(:",
    "x = torch.ones(3, requires_grad=True)\ny = x.exp()",
    '%time y += 1  # "quoted"\ny.sum().backward()',
)
FAULT = "import torch\nw = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(w)\nh += w\nh.sum().backward()"
SCHEMAS = Path(__file__).parent.parent / "fixtures" / "schemas"
KINDS = ("concise", "json", "sarif", "github", "gitlab", "rdjson", "junit", "patch", "markdown", "html")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a notebook, and what `fix --diff` says of it in every format."""
    folder = tmp_path_factory.mktemp("reports")
    put(folder / "nb.ipynb", *CELLS)
    more = [word for kind in KINDS for word in ("--report", f"{kind}={kind}.out")]
    done = command(folder, "fix", "--diff", "--verify", "off", "nb.ipynb", *more)
    assert done.returncode == 1, done
    return folder, {kind: (folder / f"{kind}.out").read_text() for kind in KINDS} | {"full": done.stdout + done.stderr}


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "deinplace", *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_people_are_told_cells(reports: tuple[Path, dict[str, str]]) -> None:
    said = reports[1]
    for kind in ("full", "concise"):
        assert "nb.ipynb:cell 3:2:23: DIP102" in said[kind], said[kind]
        assert "nb.ipynb:cell 6:1:7: DIP102" in said[kind]
        assert "nb.ipynb:cell 4:1: is not valid Python (line 1:" in said[kind]
    assert "--- a/nb.ipynb:cell 3\n+++ b/nb.ipynb:cell 3\n@@" in said["full"]
    assert '-%time y += 1  # "quoted"\n+%time y = y + 1  # "quoted"' in said["full"]
    assert "1 | %time y += 1" in said["full"]
    for kind, text in said.items():
        assert "ipython>" not in text, kind
        assert "%% deinplace" not in text, kind
        if kind != "patch":
            assert re.search(r"cell 3\b", text), kind
    case = ET.fromstring(said["junit"]).findall("testsuite")
    assert [suite.get("name") for suite in case] == ["nb.ipynb:cell 3", "nb.ipynb:cell 6", "nb.ipynb:cell 4"]


def test_json_has_the_cell_apart(reports: tuple[Path, dict[str, str]]) -> None:
    report = json.loads(reports[1]["json"])
    schema = json.loads(Path(deinplace.report.__file__).with_name("report.schema.json").read_text())
    jsonschema.validate(report, schema)
    assert [(f["path"], f["cell"], f["line"]) for f in report["findings"]] == [("nb.ipynb", 3, 2), ("nb.ipynb", 6, 1)]
    assert [(c["path"], c["cell"]) for c in report["changes"]] == [("nb.ipynb", 3), ("nb.ipynb", 6)]
    assert [(p["path"], p["cell"], p["line"]) for p in report["problems"]] == [("nb.ipynb", 4, 1)]


def edited(text: str, edits: list[tuple[tuple[int, int], tuple[int, int], str]]) -> str:
    """A text after edits given by 1-based lines and columns."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for (line, col), (end_line, end_col), new in sorted(edits, reverse=True):
        text = text[: starts[line - 1] + col - 1] + new + text[starts[end_line - 1] + end_col - 1 :]
    return text


def test_programs_are_told_places_and_edits_of_the_file(reports: tuple[Path, dict[str, str]]) -> None:
    folder, said = reports
    text = (folder / "nb.ipynb").read_text()
    lines = text.splitlines()
    wanted = [n for n, line in enumerate(lines, 1) if "é += 2" in line or "y += 1" in line]
    sarif = json.loads(said["sarif"])
    jsonschema.validate(sarif, json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text()))
    results = sarif["runs"][0]["results"]
    regions = [r["locations"][0]["physicalLocation"]["region"] for r in results]
    assert [region["startLine"] for region in regions] == wanted
    for region, code in zip(regions, ("é += 2", "y += 1"), strict=True):
        assert lines[region["startLine"] - 1][region["startColumn"] - 1 : region["endColumn"] - 1] == code
    github = re.findall(r"^::error file=nb.ipynb,line=(\d+),.*nb\.ipynb:cell (\d+):", said["github"], re.MULTILINE)
    assert github == [(str(wanted[0]), "3"), (str(wanted[1]), "6")]
    assert [entry["location"]["lines"]["begin"] for entry in json.loads(said["gitlab"])][:2] == wanted
    mended = json.loads(text)
    for cell, old, new in ((2, "é += 2", "é = é + 2"), (5, "y += 1", "y = y + 1")):
        mended["cells"][cell]["source"] = [line.replace(old, new) for line in mended["cells"][cell]["source"]]
    fixes = [c["replacements"][0] for r in results for f in r["fixes"] for c in f["artifactChanges"]]
    edits = [(*ends(f["deletedRegion"]), f["insertedContent"]["text"]) for f in fixes]
    assert json.loads(edited(text, edits)) == mended
    for diagnostic in json.loads(said["rdjson"])["diagnostics"][:2]:
        change = diagnostic["suggestions"][0]
        first, last = change["range"]["start"]["line"], change["range"]["end"]["line"]
        json.loads("\n".join([*lines[: first - 1], change["text"], *lines[last:]]))
    subprocess.run(["git", "apply", "--check", "patch.out"], cwd=folder, check=True)
    assert said["patch"].count("\n+") == 3


def ends(region: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    return (region["startLine"], region["startColumn"]), (region["endLine"], region["endColumn"])


def test_comments_silence_a_cell_and_can_be_put_there(tmp_path: Path) -> None:
    path = tmp_path / "nb.ipynb"
    put(
        path,
        "import torch",
        "def f(a, b):\n    h = torch.sigmoid(a)\n    h += b  # deinplace: ignore[DIP102] meant\n    return h",
    )
    assert command(tmp_path, "check", "nb.ipynb").returncode == 0
    put(path, FAULT)
    assert command(tmp_path, "check", ".").returncode == 1
    assert command(tmp_path, "check", "--add-ignore", "nb.ipynb").returncode == 0
    assert "h += w  # deinplace: ignore[DIP102]" in path.read_text()
    assert command(tmp_path, "check", ".").returncode == 0


def test_folders_are_searched_and_other_languages_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "a.ipynb", FAULT)
    (tmp_path / ".ipynb_checkpoints").mkdir()
    put(tmp_path / ".ipynb_checkpoints" / "a-checkpoint.ipynb", FAULT)
    (tmp_path / "r.ipynb").write_text('{"nbformat": 4, "cells": [], "metadata": {"kernelspec": {"language": "R"}}}')
    done = command(tmp_path, "fix", ".", "--verify", "off")
    assert (done.returncode, done.stdout.count("[fixed]")) == (0, 1), done
    assert "h = h + w" in (tmp_path / "a.ipynb").read_text()
    assert command(tmp_path, "check", "r.ipynb").returncode == 2


def test_standard_input_is_filtered(tmp_path: Path) -> None:
    data = put(tmp_path / "a.ipynb", FAULT)
    words = [sys.executable, "-m", "deinplace", "fix", "-", "--stdin-filename", "new.ipynb"]
    done = subprocess.run(words, cwd=tmp_path, input=data, capture_output=True, check=False)
    assert done.stdout == data.replace(b"h += w", b"h = h + w"), done
    assert b"new.ipynb:cell 1:4:1" in done.stderr


def test_without_nbformat_there_is_one_clear_line(tmp_path: Path) -> None:
    before = put(tmp_path / "a.ipynb", FAULT)
    code = "import sys; sys.modules['nbformat'] = None; from deinplace.cli import main; main()"
    for arguments, expected in ((("check", "a.ipynb"), 1), (("fix", "--verify", "off", "a.ipynb"), 2)):
        words = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == expected, done
    assert done.stderr == "deinplace: notebooks are rewritten with nbformat: pip install 'deinplace[notebooks]'\n"
    assert (tmp_path / "a.ipynb").read_bytes() == before
