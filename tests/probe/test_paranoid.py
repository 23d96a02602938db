"""Writes that go past torch: found by comparing what was saved with what is there when backward reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deinplace.verify.drivers import Driver, Laboratory, Run, Settings
from deinplace.verify.incidents import conflicts

NUMPY = """
import torch
w = torch.ones(3, requires_grad=True)
x = w * 2
y = x * x
x.detach().numpy()[0] = 5.0
y.sum().backward()
assert w.grad.tolist() == GRAD, w.grad
"""

FROM_NUMPY = """
import numpy as np
import torch
memory = np.ones(3, dtype=np.float32)
feature = torch.from_numpy(memory)
w = torch.ones(3, requires_grad=True)
y = feature * w
memory[:] = 7.0
y.sum().backward()
"""

DLPACK = """
import numpy as np
import torch
w = torch.ones(3, requires_grad=True)
x = w * 2
y = x.exp()
np.from_dlpack(y.detach())
other = torch.from_dlpack(y.detach())
import ctypes
ctypes.memset(y.data_ptr(), 0, 12)
y.sum().backward()
"""

UNTOUCHED = """
import torch
w = torch.tensor([1.0, float("nan")], requires_grad=True)
x = w * 2
y = (x * x).exp()
print(x.detach().numpy().sum())
y.sum().backward()
"""


def run(folder: Path, text: str, paranoid: bool) -> Run:
    (folder / "program.py").write_text(text.lstrip(), encoding="utf-8")
    driver = Driver((sys.executable, "program.py"), str(folder), timeout=120, paranoid=paranoid)
    with Laboratory() as lab:
        return lab.run(driver, Settings(watch=True))


PROGRAMS = {"numpy": (NUMPY.replace("GRAD", "[8.0, 8.0, 8.0]"), 5), "from_numpy": (FROM_NUMPY, 4)}


@pytest.mark.parametrize(("text", "line"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_names_the_line_that_shared_the_memory(tmp_path: Path, text: str, line: int) -> None:
    done = run(tmp_path, text, paranoid=True)
    assert done.exit_code == 0, done.stderr
    (found,) = conflicts(done)
    assert found.kind == "hidden" and found.write.place is not None
    assert found.write.place.span.line == line


def test_without_it_the_gradient_is_silently_wrong(tmp_path: Path) -> None:
    done = run(tmp_path, NUMPY.replace("GRAD", "[20.0, 8.0, 8.0]"), paranoid=False)
    assert done.exit_code == 0, done.stderr
    assert conflicts(done) == ()


def test_raw_pointers(tmp_path: Path) -> None:
    (found,) = conflicts(run(tmp_path, DLPACK, paranoid=True))
    assert (found.kind, found.save.role) == ("hidden", "output")


def test_memory_that_is_only_read_is_no_conflict(tmp_path: Path) -> None:
    done = run(tmp_path, UNTOUCHED, paranoid=True)
    assert done.exit_code == 0, done.stderr
    assert conflicts(done) == ()
