"""A rewrite inside a function runs again what enters it, and says what a run of everything would say."""

from __future__ import annotations

import pytest

from deinplace.analysis.run import Report, analyse
from deinplace.analysis.session import Session, merged
from deinplace.analysis.source import Source
from deinplace.analysis.terms import Terms
from deinplace.model import Edit

TEXT = """\
import torch


def helper(x):
    y = torch.exp(x)
    y += 1
    return y


class Net(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.line = torch.nn.Linear(width, width)

    def forward(self, x):
        return helper(self.line(x))

    def other(self, x):
        z = torch.sigmoid(x)
        z *= 2
        return z
"""
CALL = "helper(torch.ones(3, requires_grad=True)).sum().backward()\n"


def _source(text: str) -> dict[str, Source]:
    return {"/a.py": Source.parse("/a.py", text.encode())}


def _edit(text: str, old: str, new: str) -> Edit:
    at = text.index(old)
    return Edit("/a.py", at, at + len(old), new)


def _seen(report: Report) -> object:
    hits = [(h.unit, h.write.op, h.save.op, h.write.place.span) for h in report.hits]
    return hits, report.traces, {unit: [w.op for w in writes] for unit, writes in report.writes.items()}


@pytest.mark.parametrize(("old", "new"), [("y += 1", "y = y + 1"), ("z *= 2", "z = z * 2")])
def test_the_same_as_a_run_of_everything(old: str, new: str) -> None:
    terms = Terms()
    session = Session(_source(TEXT), terms, lenient=False)
    edit = _edit(TEXT, old, new)
    units = session.entering([edit])
    assert units == ({("/a.py", "helper"), ("/a.py", "Net.forward")} if "y" in old else {("/a.py", "Net.other")})
    after = _source(TEXT.replace(old, new))
    part = session.rerun(after, [edit], units)
    assert part is not None
    assert part.traces.keys() == units
    assert _seen(merged(session.report, part)) == _seen(analyse(after, terms, lenient=False))


def test_programs_and_top_levels_run_again_as_a_whole() -> None:
    session = Session(_source(TEXT + CALL), Terms(), lenient=False)
    assert session.entering([_edit(TEXT, "y += 1", "y = y + 1")]) is None, "the program enters it"
    assert session.entering([_edit(TEXT, "import torch\n", "import torch \n")]) is None
    assert session.entering([_edit(TEXT, "z *= 2", "z = z * 2")]) == {("/a.py", "Net.other")}


def test_functions_that_come_or_go_are_no_rewrite() -> None:
    session = Session(_source(TEXT), Terms(), lenient=False)
    edit = _edit(TEXT, "y += 1", "y = (lambda: y + 1)()\n    def more(): pass")
    units = session.entering([edit])
    assert units
    assert session.rerun(_source(TEXT.replace("y += 1", edit.new)), [edit], units) is None
