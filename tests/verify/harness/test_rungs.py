"""Which files, tests and examples of a project become harnesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.verify.harness import tests as rung_b
from deinplace.verify.harness.examples import examples
from deinplace.verify.harness.imports import module_of
from deinplace.verify.harness.model import Harness
from deinplace.verify.harness.programs import programs
from deinplace.verify.harness.rungs import attempts
from deinplace.verify.harness.tests import passing

TRAIN = "import torch\nx = torch.ones(1, requires_grad=True)\nx.sum().backward()\n"
MAIN = "import torch\n\n\ndef main():\n    torch.ones(1, requires_grad=True).sum().backward()\n\n\n"


def project(folder: Path, texts: dict[str, str]) -> dict[str, Source]:
    out = {}
    for name, text in texts.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        out[str(path)] = Source.parse(str(path), text.encode())
    return out


NO_PROGRAM = {
    "a module of functions": MAIN,
    "forward only": "import torch\nprint(torch.relu(torch.ones(1)))\n",
    "a main block without training anywhere": "import torch\nif __name__ == '__main__':\n    print(torch.ones(1))\n",
    "a method that nobody calls": "class A:\n    def f(self, x):\n        x.backward()\n",
}
PROGRAM = {
    "top level": TRAIN,
    "a main block": MAIN + "if __name__ == '__main__':\n    main()\n",
    "a call of a function": MAIN + "main()\n",
    "a call of a function's function": MAIN + "def outer():\n    return main()\n\n\nouter()\n",
    "a method of a class that is built": (
        "class Trainer:\n    def __init__(self, x):\n        x.backward()\n\n\nTrainer(make())\n"
    ),
    "gradients by hand": "import torch\ng = torch.autograd.grad(f(x), x)\n",
}


@pytest.mark.parametrize("why", NO_PROGRAM)
def test_not_a_program(why: str, tmp_path: Path) -> None:
    assert programs(project(tmp_path, {"a": NO_PROGRAM[why]}), str(tmp_path)) == []


@pytest.mark.parametrize("why", PROGRAM)
def test_a_program(why: str, tmp_path: Path) -> None:
    (found,) = programs(project(tmp_path, {"a": PROGRAM[why]}), str(tmp_path))
    assert (found.command, found.root, found.title) == (("python", "a.py"), str(tmp_path), "python a.py")


def test_a_program_with_relative_imports_runs_as_a_module(tmp_path: Path) -> None:
    sources = project(tmp_path, {"pkg/__init__": "", "pkg/train": "from . import x\n" + TRAIN})
    (found,) = programs(sources, str(tmp_path))
    assert found.command == ("python", "-m", "pkg.train")
    assert found.root == str(tmp_path)


def test_a_program_of_a_package_is_tried_as_a_file_first(tmp_path: Path) -> None:
    sources = project(tmp_path, {"pkg/__init__": "", "pkg/train": "from pkg import x\n" + TRAIN})
    tried = [(h.root, h.command) for h in attempts(programs(sources, str(tmp_path))[0])]
    assert tried == [
        (str(tmp_path), ("python", "pkg/train.py")),
        (str(tmp_path / "pkg"), ("python", "train.py")),
        (str(tmp_path), ("python", "-m", "pkg.train")),
    ]


def test_tests_are_no_programs_but_a_rung_of_their_own(tmp_path: Path) -> None:
    sources = project(tmp_path, {"pkg/__init__": "", "pkg/net": "class Net:\n    pass\n"})
    texts = {
        "tests/test_net": "from pkg.net import Net\n",
        "tests/test_package": "from pkg import Net\n",
        "tests/test_other": "from pkg.other import Net\nimport json\n",
    }
    everything = {**sources, **project(tmp_path, texts)}
    assert programs(everything, str(tmp_path)) == []
    target = (str(tmp_path / "pkg" / "net.py"), "Net.forward")
    found = rung_b.tests(sources, [target], str(tmp_path))
    assert [harness.title for harness in found] == ["pytest tests/test_net.py", "pytest tests/test_package.py"]
    assert found[0].exercises == (target,)


NET = '''import torch
from torch import nn


class Net(nn.Module):
    """A net.

    >>> net = Net(4)
    >>> net(torch.randn(2, 4)).shape
    torch.Size([2, 4])
    """
'''


def test_an_example_in_a_docstring_becomes_a_test(tmp_path: Path) -> None:
    sources = project(tmp_path, {"net": NET})
    (found,) = examples(sources, [(str(tmp_path / "net.py"), "Net.forward")], str(tmp_path))
    assert "from net import Net\n" in found.text
    assert "    net = Net(4)\n    result1 = net(torch.randn(2, 4))\n    backward(net, result1)\n" in found.text
    compile(found.text, "harness", "exec")


def test_an_example_in_a_readme_becomes_a_test(tmp_path: Path) -> None:
    sources = project(tmp_path, {"net": NET.replace(">>>", "...")})
    (tmp_path / "README.md").write_text(
        "# Net\n\n```python\nfrom net import Net\n\nx = torch.ones(4)\nNet(4)(x)\n```\n"
    )
    (found,) = examples(sources, [(str(tmp_path / "net.py"), "Net.forward")], str(tmp_path))
    assert found.title == "example in README.md"
    assert "    x = torch.ones(4).requires_grad_().clone()\n" in found.text


def test_examples_of_other_classes_or_unknown_names_are_left_alone(tmp_path: Path) -> None:
    sources = project(tmp_path, {"net": NET.replace("Net(4)", "Net(config)")})
    assert examples(sources, [(str(tmp_path / "net.py"), "Net.forward")], str(tmp_path)) == []
    assert examples(sources, [(str(tmp_path / "net.py"), "Other.forward")], str(tmp_path)) == []


def test_names_of_modules(tmp_path: Path) -> None:
    names = ("src/pkg/__init__", "src/pkg/sub/__init__", "src/pkg/sub/net", "alone")
    project(tmp_path, dict.fromkeys(names, ""))
    assert module_of(str(tmp_path / "src/pkg/sub/net.py"), str(tmp_path)) == (str(tmp_path / "src"), "pkg.sub.net")
    assert module_of(str(tmp_path / "src/pkg/__init__.py"), str(tmp_path)) == (str(tmp_path / "src"), "pkg")
    assert module_of(str(tmp_path / "alone.py"), str(tmp_path)) == (str(tmp_path), "alone")


PRINTED = """..F
=========================== short test summary info ============================
FAILED tests/test_a.py::test_b[x - y] - AssertionError: no
FAILED tests/test_a.py::test_c
ERROR tests/test_a.py::test_d - RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.
{counts}
"""


@pytest.mark.parametrize("counts", ["2 failed, 3 passed, 1 error in 0.1s", "2 failed, 1 error in 0.1s"])
def test_what_fails_with_an_in_place_error_is_kept(counts: str) -> None:
    harness = Harness("tests", "pytest test_a.py", ".", command=("python", "-m", "pytest", "test_a.py"))
    found = passing(harness, PRINTED.format(counts=counts))
    assert found is not None
    assert found.command[4:] == (
        "--deselect", "tests/test_a.py::test_b[x - y]", "--deselect", "tests/test_a.py::test_c",
    )  # fmt: skip
    assert passing(found, PRINTED.format(counts=counts)) is None


@pytest.mark.parametrize(
    "printed", ["FAILED a.py::test_b\n1 failed in 0.1s", "ERROR a.py\n1 error in 0.1s", "3 passed in 0.1s", ""]
)
def test_without_any_test_that_passes_there_is_nothing_to_run(printed: str) -> None:
    assert passing(Harness("tests", "pytest a.py", ".", command=("python", "-m", "pytest", "a.py")), printed) is None
