"""What a constructor's calls are followed for: what makes modules and tensors, and what keeps them."""

from __future__ import annotations

import pytest

from deinplace.analysis.builders import Builders
from deinplace.analysis.check import check
from deinplace.analysis.index import Index
from deinplace.analysis.scout import Looker
from deinplace.analysis.source import Source

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
SOURCE = (
    HEAD
    + """
def layer(n): return nn.Linear(n, n)
def through(n): return layer(n)
def handed(block, n): return block(n)
def chosen(name): return nn.ReLU if name == "relu" else nn.GELU
def number(n): return (n - 1) // 2
def asked(m): return isinstance(m, nn.Linear)
def tested(f):
    if f():
        return 1
    return 2
def again(n): return again(n - 1) if n else 0
class Settings:
    def __init__(self, n): self.n = n
    @classmethod
    def made(cls, n): return cls(n)
class Net(nn.Module):
    def __init__(self): super().__init__()
    def build(self): self.fc = nn.Linear(2, 2)
    def rebuild(self): self.build()
    def buffer(self): self.register_buffer("b", torch.zeros(2))
    def note(self): self.size = 3
    def start(self): self.fc.weight.data = torch.zeros(2, 2)
    def look(self): print(torch.zeros(2))
"""
)


@pytest.fixture(scope="module")
def index() -> Index:
    return Index({"a.py": Source.parse("a.py", SOURCE.encode())})


@pytest.mark.parametrize(
    ("name", "makes", "keeps"),
    [
        ("layer", True, False),
        ("through", True, False),
        ("handed", True, False),
        ("chosen", True, False),
        ("number", False, False),
        ("asked", False, False),
        ("tested", False, False),
        ("again", False, False),
        ("Settings.made", False, False),
        ("Net.build", True, True),
        ("Net.rebuild", False, True),
        ("Net.buffer", False, True),
        ("Net.note", False, False),
        ("Net.start", True, False),
        ("Net.look", False, False),
    ],
)
def test_makes_and_keeps(index: Index, name: str, makes: bool, keeps: bool) -> None:
    builders = Builders(Looker(index), index)
    info = index.modules["a.py"].named[name]
    assert (builders.makes(info), builders.keeps(info)) == (makes, keeps)


def test_a_long_way_round_in_a_constructor_hides_no_hazard() -> None:
    """What a base class settles in ten thousand steps costs no finding in `forward`."""
    setting = "\n".join(f"        self.s{n} = self.helper({n}) if self.flag{n} else {n}" for n in range(60))
    helper = "\n".join(f"        if n == {n}: k = k + {n}" for n in range(80))
    text = f"""{HEAD}
class Base(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
{setting}
    def helper(self, n):
        k = n
{helper}
        return k
class Net(Base):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        y = torch.sigmoid(self.fc(x))
        y += 1
        return y
"""
    found = check({"a.py": Source.parse("a.py", text.encode())})
    assert [f.rule for f in found] == ["DIP102"], found
    assert found[0].severity == "error"
