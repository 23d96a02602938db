"""The JSON report: valid by its schema, and every place in it is found in the files."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from deinplace.model import Outcome
from deinplace.report import render
from deinplace.report.view import View


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(files("deinplace.report").joinpath("report.schema.json").read_text("utf-8"))


def report(outcome: Outcome, view: View) -> Any:
    return json.loads(render("json", outcome, view), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_schema_is_a_schema(schema: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_reports_are_valid(outcome: Outcome, view: View, schema: Any) -> None:
    for each in (outcome, Outcome("check"), replace(outcome, command="run", driver_exit=None, verdict=None)):
        jsonschema.Draft202012Validator(schema).validate(report(each, view))


def test_the_schema_is_closed(outcome: Outcome, view: View, schema: Any) -> None:
    document = report(outcome, view)
    document["findings"][0]["surprise"] = 1
    assert not jsonschema.Draft202012Validator(schema).is_valid(document)


def test_both_ends_and_the_rewrite_have_path_and_line(outcome: Outcome, view: View) -> None:
    finding = report(outcome, view)["findings"][0]
    save, (write,) = finding["conflict"]["save"], finding["conflict"]["writes"]
    assert (save["path"], save["line"], save["operation"], save["role"]) == ("unet.py", 4, "relu", "output")
    assert (write["path"], write["line"], write["source"]) == ("unet.py", 5, "y += residual")
    assert [(p["path"], p["line"]) for p in finding["conflict"]["backward"]] == [("train.py", 2)]
    assert (finding["rewrite"]["path"], finding["rewrite"]["line"]) == ("unet.py", 5)
    (edit,) = finding["rewrite"]["edits"]
    assert edit["range"] == {"start": {"line": 5, "column": 5}, "end": {"line": 5, "column": 18}}


def test_columns_count_code_points_from_one(outcome: Outcome, view: View) -> None:
    save = report(outcome, view)["findings"][0]["conflict"]["save"]
    assert save["range"] == {"start": {"line": 4, "column": 9}, "end": {"line": 4, "column": 18}}


def test_an_error_that_is_not_finite_is_null(outcome: Outcome, view: View) -> None:
    verification = report(outcome, view)["findings"][2]["verification"]
    assert verification["max_abs_error"] is None
    assert verification["status"] == "refuted"
    assert verification["reason"]


def test_positions_of_edits_in_files_with_other_line_ends(view: View) -> None:
    texts = {"a": "x\r\ny\rz\n"}
    there = replace(view, texts=texts)
    assert [there.position("a", offset) for offset in (0, 1, 3, 4, 5, 6)] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (3, 1),
        (3, 2),
    ]
    assert there.position("a", 2) == (1, 3)
