"""Faults that hide one another: what a later pass finds is told in lines of the file on disk."""

from __future__ import annotations

from pathlib import Path

from .test_mend import fix, runs

HIDDEN = """
import torch

def scaled(gates):
    value, gate = gates.chunk(2, dim=-1)
    value.tanh_()
    gate.sigmoid_()
    return value * gate

def shifted(x):
    y = torch.exp(x)
    y += 1
    return y

w = torch.randn(2, 4, requires_grad=True)
loss = (scaled(w * 2) + shifted(w[:, :2])).sum()
loss.backward()
"""


def test_every_finding_names_a_line_of_the_original(tmp_path: Path) -> None:
    outcome = fix(tmp_path, HIDDEN)
    runs(tmp_path, outcome)
    lines = HIDDEN.lstrip().splitlines()
    assert {lines[f.span.line - 1].strip() for f in outcome.findings} >= {"value.tanh_()", "y += 1"}
    assert {f.state for f in outcome.findings} == {"fixable"}
    for finding in outcome.findings:
        if finding.conflict is not None and finding.conflict.save.place is not None:
            saving = lines[finding.conflict.save.place.span.line - 1]
            assert any(word in saving for word in ("exp(", "tanh_(", "sigmoid_(", "value * gate")), saving


def test_moves_places_back_over_inserted_and_edited_lines(tmp_path: Path) -> None:
    from deinplace.analysis.source import Source
    from deinplace.model import Place, Span
    from deinplace.verify.lines import back, moved

    before = Source.parse("a.py", b"a = 1\nb = 2\nc = 3\n")
    after = Source.parse("a.py", b"a = 1\nx = 0\nb = 22\nc = 3\n")
    move = back({"a.py": before}, {"a.py": after})
    places = tuple(Place("a.py", Span(line, 0, line, 5)) for line in (1, 2, 3, 4))
    assert [p.span.line for p in moved(places, move)] == [1, 2, 2, 3]
