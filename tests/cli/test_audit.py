"""`deinplace audit`: which in-place writes are needed out of place, which are safe, and where one more would be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from deinplace.model import ModuleInfo, Place, Span
from deinplace.report import audit
from deinplace.report.view import View
from deinplace.verify.audit import Audit, Row

Write = Callable[[str, str], Path]

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU())
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def forward(x):
    y = net(x)
    gate = torch.sigmoid(y)
    gate += 1  # needed: sigmoid keeps its result
    z = gate + y
    z *= 2  # safe: add keeps nothing
    u = z - 1  # possible: z is nobody's any more
    v = u * 3  # possible: so is u
    w = v + 1  # not possible: v is read below
    k = (w + v).exp()
    m = k + 1  # not possible: exp keeps k
    return m.sum() + y.sum()


for step in range(2):
    opt.zero_grad()
    loss = forward(torch.randn(4, 8))
    loss.backward()
    opt.step()
"""


def line(mark: str) -> int:
    return next(n for n, text in enumerate(PROGRAM.splitlines(), 1) if mark in text)


def test_every_site_that_ran_and_what_it_saves(cli: Callable, write: Write, tmp_path: Path) -> None:
    write("train.py", PROGRAM)
    result = cli("audit", ".", "--run", "python train.py", "--output-format", "json")
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert (report["command"], report["runs"]) == ("audit", 1)
    rows = {(row["standing"], row["line"], row["operation"]): row for row in report["sites"]}
    size = 4 * 8 * 4
    needed = rows.pop(("needed", line("# needed"), "add_"))
    assert needed["why"] == f"backward of SigmoidBackward0 needs it (line {line('torch.sigmoid')} of train.py)"
    safe = rows.pop(("safe", line("# safe"), "mul_"))
    assert (safe["bytes"], safe["count"]) == (size, 2)
    layer = rows.pop(("safe", line("y = net(x)"), "relu_"))
    assert (layer["bytes"], layer["module"], layer["made"]) == (size, "ReLU", {"path": "train.py", "line": 5})
    for mark, operation in (("u = z - 1", "sub"), ("v = u * 3", "mul")):
        assert rows.pop(("possible", line(mark), operation))["bytes"] == size
    plain = rows.pop(("possible", line("y = net(x)"), "relu"), None)
    assert plain is not None and plain["module"] == "ReLU", "the second ReLU keeps its result only"
    assert not {key for key in rows if key[1] in (line("w = v"), line("m = k"), line("gate = "))}
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]


def test_tables() -> None:
    place = Place("/p/a.py", Span(2, 4, 2, 10), "f")
    made = (Place("/p/a.py", Span(1, 0, 1, 9)),)
    rows = (
        Row("needed", place, "add_", 64, 2, "backward of ExpBackward0 needs it"),
        Row("safe", place, "relu_", 2048, 1, "", ModuleInfo("ReLU", "act", True, made)),
        Row("possible", place, "mul", 4096, 1, "nothing saved, not read again"),
        Row("possible", place, "sub", 8192, 1),
    )
    found = Audit(rows, ("a note",), "python a.py", 1)
    seen = View("/p", {"/p/a.py": "act = ReLU()\n    x += y | z\n"})
    text = audit.render("full", found, seen)
    assert "a.py:2  add_    2x  backward of ExpBackward0 needs it" in text
    assert "a.py:2  relu_ (ReLU act, made at a.py:1)  2.0 KiB  1x  x += y" in text
    assert text.index("sub -> sub_") < text.index("mul -> mul_"), "what saves most comes first"
    assert text.endswith("1 needed out of place, 1 safe in place, 2 could be in place\n")
    table = audit.render("markdown", found, seen)
    assert "| `a.py:2` | add\\_ |  | 2x | backward of ExpBackward0 needs it |" in table and "> a note" in table


def test_bad_input_is_one_line_and_exit_2(cli: Callable, write: Write) -> None:
    write("train.py", PROGRAM)
    for arguments, words in (
        ((), "audit needs a program to look at"),
        (("--run", "python train.py", "--output-format", "sarif"), "audit has no format sarif; it has full, markdown"),
        (("nope.py", "--run", "python train.py"), "nope.py: no such file or folder"),
    ):
        result = cli("audit", *arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert words in result.stderr and result.stderr.count("\n") == 1
