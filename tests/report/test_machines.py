"""Formats for other programs: each by its own schema or grammar, with hostile text, against the files it speaks of."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deinplace.cli.options import Format
from deinplace.config import FORMATS
from deinplace.model import Edit, Outcome, Rewrite
from deinplace.report import parts, render
from deinplace.report.view import View

SCHEMAS = Path(__file__).parents[1] / "fixtures" / "schemas"


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text("utf-8"))


def check(name: str, document: Any) -> None:
    held = schema(name)
    jsonschema.validators.validator_for(held)(held).validate(document)


def outcomes(dry: Outcome, hostile: Outcome) -> list[Outcome]:
    return [dry, hostile, Outcome("check"), replace(dry, command="run", verdict=None)]


def test_the_flag_and_the_settings_know_the_same_formats() -> None:
    assert tuple(Format) == FORMATS


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_can_be_written_whatever_it_holds(kind: str, dry: Outcome, hostile: Outcome, view: View) -> None:
    for each in outcomes(dry, hostile):
        text = render(kind, each, view)
        assert text.endswith("\n") or (kind == "patch" and not each.changes and not text)


def test_sarif_is_valid(dry: Outcome, hostile: Outcome, view: View) -> None:
    for each in outcomes(dry, hostile):
        check("sarif-2.1.0-rtm.5.json", json.loads(render("sarif", each, view)))


def test_sarif_holds_the_conflict_the_fix_and_the_rule(dry: Outcome, view: View) -> None:
    (run,) = json.loads(render("sarif", dry, view))["runs"]
    first = run["results"][0]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "DIP102"
    steps = first["codeFlows"][0]["threadFlows"][0]["locations"]
    lines = [step["location"]["physicalLocation"]["region"]["startLine"] for step in steps]
    assert lines == [4, 5, 2]
    (change,) = first["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "unet.py", "uriBaseId": "SRCROOT"}
    assert change["replacements"][0]["insertedContent"]["text"] == "y = y + residual"


def test_sarif_of_a_refuted_rewrite_offers_no_fix_and_of_a_fixed_one_no_result(outcome: Outcome, view: View) -> None:
    (run,) = json.loads(render("sarif", outcome, view))["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["DIP101", "DIP203"]
    assert all("fixes" not in result for result in run["results"])
    (invocation,) = run["invocations"]
    texts = [note["message"]["text"] for note in invocation["toolExecutionNotifications"]]
    assert any("fixed: write `y = y + residual`" in text for text in texts)


def test_sarif_marks_what_is_suppressed(hostile: Outcome, view: View) -> None:
    (run,) = json.loads(render("sarif", hostile, view))["runs"]
    suppressed = [result for result in run["results"] if "suppressions" in result]
    assert [result["ruleId"] for result in suppressed] == ["DIP101"]


def test_fingerprints_survive_moved_lines_and_tell_equal_lines_apart(dry: Outcome, view: View) -> None:
    again = [*dry.findings, dry.findings[0]]
    marks = parts.fingerprints(again, view)
    assert len(set(marks)) == 4
    (path,) = {f.path for f in again}
    moved = replace(view, texts={**view.texts, path: "# new\n\n" + view.texts[path]})
    spans = [replace(f, span=replace(f.span, line=f.span.line + 2, end_line=f.span.end_line + 2)) for f in again]
    assert parts.fingerprints(spans, moved) == marks


def test_github_commands_are_one_line_each_and_cannot_be_forged(hostile: Outcome, dry: Outcome, view: View) -> None:
    for each in (hostile, dry):
        lines = render("github", each, view).splitlines()
        grammar = re.compile(r"::(error|warning|notice) ((\w+=[^,:\r\n]*)(,\w+=[^,:\r\n]*)*)::[^\r\n]*")
        assert all(grammar.fullmatch(line) for line in lines[:-1])
        assert lines[-1].startswith("Found ")
    assert "file=/x/a%2Cb%3Ac.py,line=3" in render("github", hostile, view)


def test_github_marks_the_exact_place(dry: Outcome, view: View) -> None:
    assert render("github", dry, view).startswith("::error file=unet.py,line=5,endLine=5,col=5,endColumn=18,title=")


def test_gitlab_is_valid_and_its_fingerprints_are_unique(dry: Outcome, hostile: Outcome, view: View) -> None:
    for each in outcomes(dry, hostile):
        document = json.loads(render("gitlab", each, view))
        check("gitlab.json", document)
        assert len({entry["fingerprint"] for entry in document}) == len(document)
    assert len(json.loads(render("gitlab", dry, view))) == 4


def test_junit_counts_what_it_holds(dry: Outcome, hostile: Outcome, view: View) -> None:
    for each in outcomes(dry, hostile):
        root = ET.fromstring(render("junit", each, view).encode("utf-8"))
        assert root.tag == "testsuites"
        for suite in [root, *root.iter("testsuite")]:
            cases = list(suite.iter("testcase"))
            assert cases
            assert int(suite.get("tests", "")) == len(cases)
            for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                assert int(suite.get(attribute, len(list(suite.iter(tag))))) == len(list(suite.iter(tag)))
    assert "<system-out>" in render("junit", replace(dry, findings=(replace(dry.findings[0], state="fixed"),)), view)


def test_rdjson_is_valid(dry: Outcome, hostile: Outcome, view: View) -> None:
    for each in outcomes(dry, hostile):
        check("rdjson.json", json.loads(render("rdjson", each, view)))


def test_a_suggestion_is_what_the_rewrite_makes_of_whole_lines(dry: Outcome, view: View) -> None:
    first, second, third, problem = json.loads(render("rdjson", dry, view))["diagnostics"]
    lines = {"start": {"line": 5}, "end": {"line": 5}}
    assert first["suggestions"] == [{"range": lines, "text": "    y = y + residual"}]
    assert first["location"] == {"path": "unet.py", "range": lines}
    assert [r["location"]["range"]["start"]["line"] for r in first["related_locations"]] == [4, 5, 2]
    # `é` before it is two bytes
    assert first["related_locations"][0]["location"]["range"]["start"] == {"line": 4, "column": 10}
    assert not any("suggestions" in other for other in (second, third, problem))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("edits", "lines", "text"),
    [
        ([("b", "b", "B")], (2, 2), "B"),
        ([("b", "b", "+|b")], (2, 2), "+|b"),
        ([("b", "c", "")], (2, 3), ""),
        ([("a", "a", "A"), ("c", "c", "C")], (1, 3), "A|b|C"),
    ],
    ids=["one-line", "a-line-before", "removed", "two-edits"],
)
def test_replacements_are_whole_lines(
    edits: list[tuple[str, str, str]], lines: tuple[int, int], text: str, end: str, view: View
) -> None:
    held = end.join(("a", "b", "c", "d", ""))
    changes = tuple(Edit("f", held.index(a), held.index(z) + 1, new.replace("|", end)) for a, z, new in edits)
    found = parts.replacement(Rewrite("X", "", changes, "safe", 1, "f"), replace(view, texts={"f": held}))
    assert found is not None
    assert ((found.first, found.last), found.after) == (lines, text.replace("|", end))


def test_a_line_put_before_another_keeps_it(view: View) -> None:
    held = "a\nb\n"
    rewrite = Rewrite("X", "", (Edit("f", 2, 2, "n\n"),), "safe", 2, "f")
    found = parts.replacement(rewrite, replace(view, texts={"f": held}))
    assert found is not None
    assert (found.first, found.last, found.after) == (2, 2, "n\nb")


def test_a_rewrite_of_two_files_is_no_suggestion(view: View) -> None:
    rewrite = Rewrite("X", "", (Edit("f", 0, 1, "n"), Edit("g", 0, 1, "n")), "safe", 1, "f")
    assert parts.replacement(rewrite, replace(view, texts={"f": "a\n", "g": "a\n"})) is None
