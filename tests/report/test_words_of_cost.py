"""What reports say of the memory that rewrites cost."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest

from deinplace.model import Memory, Outcome
from deinplace.report import render, words
from deinplace.report.view import View

MIB = 1 << 20


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (Memory(24 * MIB, 24 * MIB), "no more memory at the peak (was 24.0 MiB)"),
        (
            Memory(MIB, MIB + 512, 0, 512),
            "512 bytes more at the peak (was 1.0 MiB), 512 bytes more kept for backward",
        ),
        (
            Memory(4096, 2048, 8, 8, 3, 0.1, 0.11),
            (
                "2.0 KiB less at the peak (was 4.0 KiB), no more memory kept for backward, "
                "a step takes +10 % time under the probe; 3 rewrites together"
            ),
        ),
    ],
)
def test_one_line(memory: Memory, text: str) -> None:
    assert words.cost(memory) == text


def test_every_format_that_has_room_for_it_says_so(outcome: Outcome, view: View) -> None:
    cost = Memory(4096, 6144, 8, 8)
    found = tuple(replace(f, memory=cost) if f.state in ("fixed", "fixable") else f for f in outcome.findings)
    costly = replace(outcome, findings=found, memory=cost)
    assert "costs: 2.0 KiB more at the peak (was 4.0 KiB)" in " ".join(render("full", costly, view).split())
    assert "**Costs:** 2.0 KiB more at the peak" in render("markdown", costly, view)
    report = json.loads(render("json", costly, view))
    schema = json.loads(files("deinplace.report").joinpath("report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)
    assert (report["memory"]["bytes_before"], report["memory"]["bytes_after"]) == (4096, 6144)
    assert any(f["memory"] == report["memory"] for f in report["findings"])
    together = replace(outcome, memory=replace(cost, rewrites=2))
    assert "costs: 2.0 KiB more at the peak (was 4.0 KiB), no more memory kept for backward; 2 rewrites together" in (
        render("full", together, view)
    )
