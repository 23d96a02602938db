"""Flags that stand far from the line that fails, and modules in several roles: what `fix` changes, end to end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Outcome
from deinplace.verify import Driver, Options, mend

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        {act}

    def forward(self, x):
        return self.act(self.lin(x).sigmoid())
"""
HEAD = "import torch\nfrom torch import nn\n"
RUN = "\ntorch.manual_seed(0)\nnet = Net()\nloss = net(torch.randn(2, 3)).sum()\nloss.backward()\n"


def net(act: str, before: str = "") -> str:
    return HEAD + before + NET.format(act=act) + RUN


CONFIG_DICT = {
    "train.py": net(
        "self.act = build(act_cfg)",
        "def build(cfg):\n    cfg = dict(cfg)\n    return getattr(nn, cfg.pop('type'))(**cfg)\n",
    ).replace("__init__(self)", "__init__(self, act_cfg=dict(type='ReLU', inplace=True))", 1)
}
TUPLES = {
    "train.py": net(
        "self.act = nn.Sequential(*(KINDS[kind](**options) for kind, options in LAYERS))",
        'LAYERS = [("relu", {"inplace": True})]\nKINDS = {"relu": nn.ReLU}\n',
    )
}
OTHER_FILE = {
    "options.py": 'class Defaults:\n    act = {"negative_slope": 0.1, "inplace": True}\n',
    "train.py": "from options import Defaults\n" + net("self.act = nn.LeakyReLU(**Defaults.act)"),
}
CONSTRUCTORS = {
    "train.py": net(
        "self.act = Middle()",
        "class Act(nn.Module):\n    def __init__(self, overwrite):\n        super().__init__()\n"
        "        self.fn = nn.ELU(1.0, overwrite)\n\n    def forward(self, x):\n        return self.fn(x)\n\n"
        "class Middle(Act):\n    def __init__(self, act_inplace=True):\n        super().__init__(act_inplace)\n",
    )
}
ARGPARSE = {
    "train.py": net(
        "self.act = nn.ReLU(inplace=args.act_inplace)",
        "import argparse\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--act-inplace", default=True)\nargs = parser.parse_args()\n',
    )
}
SETATTR = {
    "train.py": net(
        'self.act = nn.ReLU()\n        for module in self.modules():\n            setattr(module, "inplace", True)'
    )
}
JSON = {
    "config.json": '{\n  "act": {"name": "ReLU", "inplace": true}\n}\n',
    "train.py": net(
        'self.act = nn.ReLU(inplace=config["act"]["inplace"])',
        'import json\nwith open("config.json") as file:\n    config = json.load(file)\n',
    ),
}
LAYERS_FROM_JSON = {
    "layers.json": '[["sigmoid", {}], ["relu", {"inplace": true}]]\n',
    "train.py": HEAD
    + """
import json

with open("layers.json") as file:
    LAYERS = json.load(file)
KINDS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(3, 3)]
        for kind, options in LAYERS:
            layers.append(KINDS[kind](**options))
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return self.body(x)
"""
    + RUN,
}
ROLES = {
    "train.py": HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        parts = [self.lin(x), self.lin(-x)]
        for part in parts:
            self.act(part)
        gate = torch.sigmoid(parts[0])
        return self.act(gate - 0.5) * parts[1] + self.act(gate)
"""
    + RUN
}
READ_AGAIN = {
    "train.py": HEAD
    + """
body = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1))
w = torch.ones(2, 3, requires_grad=True)
x = torch.tanh(w - 1.5)
loss = body(x).sum() + x.pow(2).sum()
loss.backward()
"""
}
THIRD_PARTY = {
    "lib_blocks.py": "from torch import nn\n\nclass Block(nn.Module):\n    def __init__(self, size):\n"
    "        super().__init__()\n        self.gate = nn.Sigmoid()\n        self.act = nn.ReLU(inplace=True)\n\n"
    "    def forward(self, x):\n        return self.act(self.gate(x))\n",
    "train.py": "from lib_blocks import Block\n" + net("self.act = Block(3)"),
}

MENDED = {
    "a dict in a default": (CONFIG_DICT, "dict(type='ReLU', inplace=False)"),
    "a list of tuples": (TUPLES, '[("relu", {"inplace": False})]'),
    "a constant of a class in another file": (OTHER_FILE, '"inplace": False}'),
    "a default that two constructors pass on": (CONSTRUCTORS, "act_inplace=False"),
    "an option of the command line": (ARGPARSE, '"--act-inplace", default=False'),
    "set by name in a loop over modules": (SETATTR, 'setattr(module, "inplace", False)'),
    "a settings file": (JSON, "nn.ReLU(inplace=False)"),
    "layers built from a settings file": (LAYERS_FROM_JSON, 'self.body.get_submodule("2").inplace = False'),
    "one module in two roles": (ROLES, "self.act(gate.clone())"),
    "the caller reads what the module wrote": (READ_AGAIN, "x = x.clone()\nloss = body(x)"),
    "somebody else's block": (THIRD_PARTY, 'get_submodule("act").inplace = False'),
}


def fix(folder: Path, files: Mapping[str, str]) -> Outcome:
    """Mend all files but those of others, whose names begin with lib_."""
    sources = {}
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".py" and not name.startswith("lib_"):
            sources[str(path)] = Source.parse(str(path), path.read_bytes())
    driver = Driver((sys.executable, "train.py"), str(folder), timeout=120)
    return mend(driver, sources, Options(), lambda _: None)


ALIKE = ("a constant of a class in another file", "a list of tuples", "a dict in a default", "somebody else's block")
"""Found in the same way as others."""


@pytest.mark.parametrize(
    ("files", "expected"),
    [pytest.param(*c, id=i, marks=[pytest.mark.slow] if i in ALIKE else []) for i, c in MENDED.items()],
)
def test_finds_the_place_and_proves_it(tmp_path: Path, files: Mapping[str, str], expected: str) -> None:
    outcome = fix(tmp_path, files)
    (change,) = outcome.changes
    assert expected in change.after
    assert outcome.verdict is not None and outcome.verdict.status == "confirmed"
    Path(change.path).write_text(change.after, encoding="utf-8")
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_line_of_the_settings_file_is_named(tmp_path: Path) -> None:
    (finding,) = fix(tmp_path, JSON).findings
    assert finding.rewrite is not None and "config.json:2" in finding.rewrite.note
