"""An outcome as a verified run makes it: one conflict fixed, one advised, one refused write rolled back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deinplace.model import (
    Conflict,
    Edit,
    Event,
    FileChange,
    Finding,
    ModuleInfo,
    Outcome,
    Place,
    Problem,
    Raised,
    Rewrite,
    Span,
    TensorInfo,
    Trial,
    Verdict,
)
from deinplace.report.view import View

UNET = """\
import torch.nn.functional as F

def forward(x, residual):
    é = F.relu(x); y = é
    y += residual
    return y
"""
HOSTILE = "a\r\nb ::error::x %0A , <script>alert(1)</script> \x00\x1b[31m \ud800 | `@team` [l](http://x) {0} ]]> & \"'"
TRAIN = "loss = net(x).sum()\nloss.backward()\nopt.step()\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
def outcome(root: Path) -> Outcome:
    unet, train = str(root / "unet.py"), str(root / "train.py")
    info = TensorInfo((2, 8), "float32")
    backward = (Place(train, Span(2, 0, 2, 15)),)
    relu = Place(unet, Span(4, 9, 4, 18), "forward")
    iadd = Place(unet, Span(5, 4, 5, 17), "forward")
    save = Event("ReluBackward0", (relu,), info, role="output")
    first = Conflict("version", save, (Event("aten::add_.Tensor", (iadd,), info),), "ReluBackward0", backward, count=4)
    module = ModuleInfo("ReLU", "body.1", True, (Place(train, Span(1, 7, 1, 13)),))
    hidden = Conflict(
        "hidden",
        Event("MulBackward0", (relu,), TensorInfo((3,), "float64", "cuda:0"), role="input"),
        (Event("aten::relu_", (iadd,), module=module), Event("aten::add_.Tensor", (iadd,), optimizer="SGD")),
        "MulBackward0",
        backward,
    )
    start = UNET.index("y += residual")
    edit = Edit(unet, start, start + len("y += residual"), "y = y + residual")
    rewrite = Rewrite("DIP102", "write `y = y + residual`", (edit,), "safe", 5, unet)
    good = Verdict(
        "confirmed", "", "copy-on-write", "python train.py", "cpu", 2, 80, 0.0, 0.0, parameters=38
    )  # fmt: skip
    bad = Verdict("refuted", "gradient of w differs in forward", max_abs_error=float("inf"))
    raised = Raised(
        "leaf", "a leaf Variable that requires grad is being used in an in-place operation.", (iadd,), tensor=info
    )
    after = UNET.replace("y += residual", "y = y + residual")
    span = Span(5, 4, 5, 17)
    return Outcome(
        "fix",
        (
            Finding("DIP102", "augmented", unet, span, "", "fixed", conflict=first, rewrite=rewrite, verdict=good),
            Finding("DIP101", "flag", unet, span, "", "advised", "not-editable", "clone x first", conflict=hidden),
            Finding("DIP203", "leaf", unet, span, "a leaf is written", "rolled-back", "meaning-differs", raised=raised,
                    rewrite=rewrite, verdict=bad, trials=(Trial(rewrite, bad),)),
        ),
        changes=(FileChange(unet, UNET, after),),
        problems=(Problem(str(root / "old.py"), "is Python 2", 3, "python-2"),),
        notes=("torch.compile ran eagerly",),
        verdict=good,
        written=True,
        runs=4,
        driver="python train.py",
        driver_exit=0,
        files=3,
    )  # fmt: skip


@pytest.fixture
def view(root: Path) -> View:
    return View(str(root), {str(root / "unet.py"): UNET, str(root / "train.py"): TRAIN})


@pytest.fixture
def dry(outcome: Outcome) -> Outcome:
    """A dry run: the first finding would be fixed."""
    return replace(
        outcome, written=False, findings=(replace(outcome.findings[0], state="fixable"), *outcome.findings[1:])
    )


@pytest.fixture
def hostile(dry: Outcome) -> Outcome:
    findings = [replace(f, message=HOSTILE, advice=HOSTILE, conflict=None) for f in dry.findings]
    findings[1] = replace(findings[1], state="suppressed")
    problems = (Problem("", HOSTILE), Problem("/x/a,b:c.py", HOSTILE, 3, "syntax"))
    return replace(dry, findings=tuple(findings), problems=problems, notes=(HOSTILE,))
