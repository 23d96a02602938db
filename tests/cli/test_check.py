"""`deinplace check`: what can break backward; with `--all`, every tensor write with what is known of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Write = Callable[[str, str], Path]
NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.act = nn.ReLU(inplace=True)
        self.count = 0

    def forward(self, x):
        self.count += 1
        y = self.conv(x)
        y += 1
        z = torch.relu(y)
        {write}
        return self.act(z + 1)
"""


def test_all_lists_harmless_writes_as_notes(cli: Callable, write: Write) -> None:
    write("net.py", NET.format(write="z = z * 2"))
    plain = cli("check", "net.py")
    assert (plain.returncode, "Found no in-place faults" in plain.stdout) == (0, True)
    said = cli("check", "net.py", "--all", "--output-format", "concise")
    assert said.returncode == 0, "what breaks nothing is no reason to fail"
    assert [line.split(" ", 2)[:2] for line in said.stdout.splitlines()[:2]] == [
        ["net.py:9:20:", "DIP101"],
        ["net.py:15:9:", "DIP102"],
    ]
    assert "Found no in-place faults in 1 file; 2 writes that break nothing listed" in said.stdout
    assert ":13:" not in said.stdout, "a number is no tensor"


def test_all_tells_faults_from_notes(cli: Callable, write: Write) -> None:
    write("net.py", NET.format(write="z *= 2"))
    said = cli("check", "net.py", "--all", "--output-format", "json")
    assert said.returncode == 1
    found = json.loads(said.stdout)["findings"]
    assert {f["range"]["start"]["line"]: f["severity"] for f in found} == {9: "note", 15: "note", 17: "error"}
    assert all(f["evidence"]["kind"] == "tensor" for f in found)
    counted = cli("check", "net.py", "--all", "--statistics", "--select", "DIP102")
    assert "2 DIP102 augmented-assignment" in counted.stdout
    assert "DIP101" not in counted.stdout
