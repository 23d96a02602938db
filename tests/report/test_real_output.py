"""Every format as the real command prints it: from the source alone, and proved by a run."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import programs
import pytest

from deinplace.config import FORMATS

SCHEMAS = Path(__file__).parents[1] / "fixtures" / "schemas"
PYTHON = sys.executable
FORWARD = (
    "import torch\n\n\ndef forward(x: torch.Tensor) -> torch.Tensor:\n"
    "    y = torch.relu(x)\n    y += x\n    return y\n\n\n"
    "x = torch.ones(3, requires_grad=True)\nforward(x).sum().backward()\n"
)


def deinplace(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-m", "deinplace", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def valid(name: str, document: Any) -> Any:
    held = json.loads((SCHEMAS / name).read_text("utf-8"))
    jsonschema.validators.validator_for(held)(held).validate(document)
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("a b")
    (place / "net é.py").write_text(FORWARD, "utf-8")
    (place / "old.py").write_text("print 'x'\n")
    return place


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "patch"])
def test_check_prints_it(kind: str, folder: Path) -> None:
    result = deinplace(folder, "check", "--output-format", kind)
    assert (result.returncode, result.stderr) == (1, "")
    assert "DIP102" in result.stdout
    if kind in ("json", "gitlab", "sarif", "rdjson"):
        document = json.loads(result.stdout)
        schema = {"gitlab": "gitlab.json", "sarif": "sarif-2.1.0-rtm.5.json", "rdjson": "rdjson.json"}.get(kind)
        if schema:
            valid(schema, document)
    elif kind == "junit":
        root = ET.fromstring(result.stdout)
        assert [suite.get("name") for suite in root] == ["net é.py", "old.py"]
    elif kind == "github":
        assert "::error file=old.py,line=1::" in result.stdout.replace("title=deinplace,", "")


def test_sarif_percent_encodes_names(folder: Path) -> None:
    document = json.loads(deinplace(folder, "check", "--output-format", "sarif").stdout)
    (result,) = document["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "net%20%C3%A9.py"


def test_a_file_gets_the_report_and_the_terminal_the_summary(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = deinplace(folder, "check", "--output-format", "html", "--output-file", str(page))
    assert result.stdout == ""
    assert result.stderr.startswith("Found 1 in-place fault")
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one report of each format, all of the same run."""
    place = tmp_path_factory.mktemp("proved")
    (place / "train.py").write_text(programs.FAILING)
    wanted = [f"--report={kind}=out.{kind}" for kind in FORMATS]
    result = deinplace(place, "fix", ".", "--run", f"{PYTHON} train.py", "--diff", "--output-format", "patch", *wanted)
    assert (result.returncode, result.stderr) == (1, "")
    assert (place / "train.py").read_text() == programs.FAILING
    assert result.stdout == (place / "out.patch").read_text()
    return place


@pytest.mark.parametrize("kind", FORMATS)
def test_a_proved_rewrite_is_in_it(kind: str, proved: Path) -> None:
    text = (proved / f"out.{kind}").read_text("utf-8")
    if kind not in ("gitlab", "patch", "json"):
        assert "confirmed on cpu" in text
    if kind == "sarif":
        (found,) = valid("sarif-2.1.0-rtm.5.json", json.loads(text))["runs"][0]["results"]
        (change,) = found["fixes"][0]["artifactChanges"]
        (replacement,) = change["replacements"]
        region = replacement["deletedRegion"]
        lines = programs.FAILING.splitlines(keepends=True)
        row = lines[region["startLine"] - 1]
        start, end = region["startColumn"] - 1, region["endColumn"] - 1
        lines[region["startLine"] - 1] = row[:start] + replacement["insertedContent"]["text"] + row[end:]
        old = "    y += x  # overwrites what relu kept\n"
        assert "".join(lines) == programs.FAILING.replace(old, programs.FIXED_LINE)
    elif kind == "rdjson":
        (found,) = valid("rdjson.json", json.loads(text))["diagnostics"]
        assert [s["text"] for s in found["suggestions"]] == [programs.FIXED_LINE.rstrip("\n")]
    elif kind in ("full", "json", "markdown", "html", "patch"):
        assert programs.FIXED_LINE.strip() in text


def test_the_programs_own_output_stays_out_of_a_document(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('mine')\n" + FORWARD)
    result = deinplace(tmp_path, "run", "--output-format", "rdjson", "train.py")
    assert "mine" in result.stderr
    (found,) = valid("rdjson.json", json.loads(result.stdout))["diagnostics"]
    assert [r["location"]["range"]["start"]["line"] for r in found["related_locations"]] == [6, 7, 12]


def test_a_report_that_cannot_be_is_refused_before_anything_runs(folder: Path) -> None:
    for value in ("pdf=x", "html", "html="):
        result = deinplace(folder, "check", "--report", value)
        assert (result.returncode, result.stdout) == (2, "")
        assert "FORMAT=FILE" in result.stderr
