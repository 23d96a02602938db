"""The text of a harness, and what of a file is loaded when the rest would run."""

from __future__ import annotations

import ast
import json

import pytest

from deinplace.probe.synthesis.slicing import acts, keeps
from deinplace.probe.synthesis.text import Scene, compose, scene

BODY = ("torch.manual_seed(0)", "model = Block(4)", "out = model(torch.ones(2, 4))", "scalar(out).backward()")


def test_scenes_survive_json() -> None:
    one = Scene("test_block", (("kit.nets", "Block"),), BODY, (("kit.nets", "kit/nets.py"),), 0.5)
    assert scene(json.loads(json.dumps(one.plain()))) == one


def test_scenes_of_one_name_are_numbered_and_all_are_called() -> None:
    text = compose([Scene("test_block", (("nets", "Block"),), BODY)] * 2, "Two.")
    tree = ast.parse(text)
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert names == ["scalar", "test_block", "test_block_2"]
    assert text.endswith('if __name__ == "__main__":\n    test_block()\n    test_block_2()\n')
    assert text.startswith('"""Two."""\n')


def test_only_what_is_needed_is_imported() -> None:
    text = compose([Scene("test_f", (("kit", "f"), ("types", "SimpleNamespace")), ("f(SimpleNamespace(a=1))",))])
    assert "scalar" not in text
    assert "nn" not in text
    assert (
        text.index("from types import SimpleNamespace") < text.index("import torch") < text.index("from kit import f")
    )


KEPT = ["import os", "from a import b", "N = 3", "N: int = 3", "def f(): pass", "class A: pass", "'text'",
        "device = torch.device('cpu')", "try:\n    import x\nexcept ImportError:\n    x = None",
        "if os.name == 'nt':\n    N = 4", "log = logging.getLogger(__name__)"]  # fmt: skip
DROPPED = ["main()", "net = Net()", "for x in y: f(x)", "args = parser.parse_args()", "data = torch.load('x')",
           "if __name__ == '__main__':\n    N = 4", "with open('x') as f: pass", "if a:\n    run()"]  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
def test_definitions_are_kept(text: str) -> None:
    assert keeps(ast.parse(text).body[0])


@pytest.mark.parametrize("text", DROPPED)
def test_actions_are_dropped(text: str) -> None:
    assert not keeps(ast.parse(text).body[0])


@pytest.mark.parametrize(
    "text",
    ["args = p.parse_args()", "def main(): pass\nmain()", "for b in data:\n    net(b).backward()",
     "x = torch.load('x')",
     "for e in range(3):\n    opt.step()", "if cuda:\n    train()"],
)  # fmt: skip
def test_files_that_act_are_known(text: str) -> None:
    assert acts(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    ["import a", "cfgs = generate({'a': 1})", "warnings.filterwarnings('ignore')", "names.append('a')",
     "if __name__ == '__main__':\n    main()", "for n in names:\n    table[n] = 1", "net = Net()"],
)  # fmt: skip
def test_files_that_only_define_are_imported_whole(text: str) -> None:
    assert not acts(ast.parse(text))
