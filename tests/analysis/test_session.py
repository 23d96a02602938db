"""A rewrite inside a function runs again what enters it, and says what a run of everything would say."""

from __future__ import annotations

import pytest

from deinplace.analysis.index import Index
from deinplace.analysis.report import Report
from deinplace.analysis.run import analyse
from deinplace.analysis.safety import compare
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


LIBRARY = """\
import torch

total = torch.zeros(3)
total += 1.0


def grown(x):
    y = torch.exp(x)
    y += 1
    return y
"""
SCRIPT = """\
import torch
from library import grown, total

kept = grown(torch.ones(3))
kept += total
last = kept


def show():
    z = torch.ones(2)
    z += last[:2]
    return z
"""


def _two(library: str = LIBRARY, script: str = SCRIPT) -> dict[str, Source]:
    texts = {"/p/library.py": library, "/p/script.py": script}
    return {path: Source.parse(path, text.encode()) for path, text in texts.items()}


def _source(text: str) -> dict[str, Source]:
    return {"/a.py": Source.parse("/a.py", text.encode())}


def _edit(text: str, old: str, new: str, path: str = "/a.py") -> Edit:
    at = text.index(old)
    return Edit(path, at, at + len(old), new)


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


@pytest.mark.parametrize(
    ("name", "old", "new", "units", "same"),
    [
        ("library", "y += 1", "y = y + 1", {"<module>", "grown"}, True),
        ("library", "y += 1", "y = y + 2", {"<module>", "grown"}, False),
        ("script", "kept += total", "kept = kept + total", {"<module>", "show"}, True),
        ("script", "kept += total", "last = kept + total", {"<module>", "show"}, False),
        ("script", "z += last[:2]", "z = z + last[:2]", {"show"}, True),
        ("script", "z += last[:2]", "z = z + last[1:]", {"show"}, False),
    ],
)
def test_in_a_large_project_programs_run_on_their_own(
    name: str, old: str, new: str, units: set[str], same: bool
) -> None:
    session = Session(_two(), Terms(), lenient=False, every=True, large=True)
    script = ("/p/script.py", "<module>")
    assert script not in session.report.traces
    text = LIBRARY if name == "library" else SCRIPT
    edits = [_edit(text, old, new, f"/p/{name}.py")]
    entering = session.entering(edits)
    assert entering is not None
    assert {unit for _, unit in entering} == units
    first = session.first(edits, entering)
    before = session.report if first is None else merged(session.report, first)
    assert session.first(edits, entering) is None, "it says so once"
    part = session.rerun(_two(**{name: text.replace(old, new)}), edits, entering)
    assert part is not None
    assert set(part.traces) == set(entering)
    assert compare(before, part, entering).ok is same


@pytest.mark.parametrize(
    "script",
    [
        "import pkg.state\n",
        "try:\n    from pkg.state import f\nexcept ImportError:\n    from other import f\n",
        "def g():\n    from pkg import state\n    return state\n\n\ndef h():\n    from other import state\n",
    ],
)
def test_who_imports_a_file_is_found_wherever_it_says_so(script: str) -> None:
    texts = {
        "/p/pkg/__init__.py": "",
        "/p/pkg/state.py": "import torch\n",
        "/p/other.py": "f = None\n",
        "/p/s.py": script,
    }
    index = Index({path: Source.parse(path, text.encode()) for path, text in texts.items()})
    assert {"/p/pkg/__init__.py", "/p/pkg/state.py"} <= index.imported


def test_in_a_large_project_nobody_tells_what_an_imported_top_level_does() -> None:
    session = Session(_two(), Terms(), lenient=False, large=True)
    assert session.entering([_edit(LIBRARY, "total += 1.0", "total = total + 1.0", "/p/library.py")]) is None
