"""`--paranoid`: writes that go past torch are reported by `run` and mended by `fix`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

PROGRAM = """\
import torch

w = torch.ones(3, requires_grad=True)
x = w * 2
y = x * x
x.detach().numpy()[0] = 5.0
y.sum().backward()
"""


def test_run_names_the_line_that_shares_the_memory(cli: Callable, write: Callable[[str, str], Path]) -> None:
    write("train.py", PROGRAM)
    quiet = cli("run", "train.py")
    assert (quiet.returncode, "train.py:6" in quiet.stdout) == (0, False)
    loud = cli("run", "--paranoid", "train.py")
    assert loud.returncode == 1
    assert "train.py:6" in loud.stdout and "train.py:5" in loud.stdout
    assert "wrong gradients" in loud.stdout


def test_fix_clones_where_the_tensor_is_saved(cli: Callable, write: Callable[[str, str], Path]) -> None:
    path = write("train.py", PROGRAM)
    result = cli("fix", ".", "--run", "python train.py", "--paranoid")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "y = x.clone() * x.clone()" in path.read_text()


def test_settings_may_ask_for_it(cli: Callable, write: Callable[[str, str], Path]) -> None:
    write("train.py", PROGRAM)
    write("deinplace.toml", "paranoid = true\n")
    assert cli("run", "train.py").returncode == 1
