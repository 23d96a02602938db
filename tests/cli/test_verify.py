"""`deinplace verify`: two states of a project under one command."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema

Write = Callable[[str, str], Path]

BLOCK = """\
import torch


def forward(net, x):
    y = torch.relu(net(x))
    y += x  # overwrites what relu kept
    return y
"""

TRAIN = """\
import torch

from block import forward

scale = float(open("data/scale.txt").read())
torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    loss = forward(net, torch.randn(2, 4) * scale).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_hand_made_repair_equals_the_failing_revision(cli: Callable, write: Write, tmp_path: Path) -> None:
    write("lib/block.py", BLOCK)
    write("train.py", TRAIN)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "fails")
    write("data/scale.txt", "2.0")
    write("lib/block.py", BLOCK.replace("y += x", "y = y + x"))
    # as an editable install would: an absolute path leads into the working tree
    result = cli("verify", "--base", "HEAD", "--run", "python train.py", env={"PYTHONPATH": str(tmp_path / "lib")})
    assert result.returncode == 0, result.stderr
    assert "The head computes what the base computes\nconfirmed on cpu (gradients of 2 parameters" in result.stdout
    assert "oracle: the base under copy-on-write" in result.stdout
    assert "the base fails by itself: RuntimeError: one of the variables needed for" in result.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == [".git", "data", "lib", "train.py"]


def test_the_first_event_that_differs_is_named(cli: Callable, write: Write, tmp_path: Path) -> None:
    for name, code in (("old", "y = y + x"), ("new", "y = x - y")):
        write(f"{name}/block.py", BLOCK.replace("y += x", code))
        write(f"{name}/train.py", TRAIN.replace("data/scale.txt", "../scale.txt"))
    write("scale.txt", "2.0")
    result = cli(
        "verify", "--base", "old", "--head", "new", "--run", "python train.py",
        "--output-format", "json", "--report", "full=full.txt",
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    schema = json.loads(files("deinplace.report").joinpath("report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)
    (finding,) = report["findings"]
    assert (finding["path"], finding["line"]) == ("new/block.py", 4)
    assert "in forward, block.py:4: call 1 returned something else" in finding["message"]
    assert "then what backward is called on" in finding["message"]
    assert (report["command"], report["verification"]["status"]) == ("verify", "refuted")
    text = (tmp_path / "full.txt").read_text()
    assert "The head does not compute what the base computes" in text
    assert "4 | def forward(net, x):" in text


def test_bad_input_is_one_line_and_exit_2(cli: Callable, write: Write, tmp_path: Path) -> None:
    write("train.py", "print(1)\n")
    for arguments, words in (
        (("--base", "old", "--run", "python train.py"), "--base old: no such folder, and no revision either"),
        (("--base", ".", "--head", "nope", "--run", "python train.py"), "--head nope: no such folder"),
        (("--base", "."), "verify needs a program to compare with"),
        (("--base", ".", "--run", "python other.py"), "other.py: no such file"),
        (("--base", ".", "--run", "python train.py"), "never imports torch"),
        (("--run", "python train.py"), "Missing option '--base'"),
    ):
        result = cli("verify", *arguments, env={"GIT_CEILING_DIRECTORIES": os.path.dirname(tmp_path)})  # noqa: PTH120
        assert (result.returncode, result.stdout) == (2, ""), arguments
        assert words in result.stderr
        assert result.stderr.count("\n") == 1
