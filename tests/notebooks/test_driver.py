"""Notebooks are mended by running them, and run in a real kernel before and after."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError

from .books import Kernel, put, sources

ACROSS = (
    "md:# A fault in three cells",
    "%xmode Plain\n!echo hello\nimport torch\nfrom torch import nn\ntorch.manual_seed(0)",
    "w = torch.randn(4, 4, requires_grad=True)\nx = torch.randn(8, 4)\nh = torch.sigmoid(x @ w)",
    "",
    "%%time\nh += x\nloss = (h * w.sum()).sum()",
    "md:now backward",
    "%time loss.backward()",
    "print(f'{float(w.grad.sum()):.4f}')",
)
FLAG = (
    "import torch\nfrom torch import nn\ntorch.manual_seed(0)",
    (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(4, 4)\n"
        "        self.act = nn.ReLU(inplace=True)\n\n    def forward(self, x):\n        h = torch.sigmoid(self.a(x))\n"
        "        return self.act(h).sum() + h.sum()"
    ),
    "net = Net()\nopt = torch.optim.SGD(net.parameters(), lr=0.1)",
    "for step in range(2):\n    opt.zero_grad()\n    loss = net(torch.ones(3, 4))\n    loss.backward()\n    opt.step()",
    "float(loss)",
)
GAN = (
    (
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\ng = nn.Linear(3, 3)\n"
        "d = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))\n"
        "og = torch.optim.SGD(g.parameters(), lr=0.1)\nod = torch.optim.SGD(d.parameters(), lr=0.1)"
    ),
    "fake = g(torch.ones(5, 3))\nloss_d = d(fake.detach()).mean()\nloss_g = -d(fake).mean()",
    "od.zero_grad()\nloss_d.backward()\nod.step()",
    "og.zero_grad()\nloss_g.backward()\nog.step()",
    "float(g.weight.sum() + d[0].weight.sum())",
)
MAGIC = (
    "%load_ext autoreload\n%autoreload 2",
    "%%bash\necho hi\necho x += 1",
    (
        "import os, torch\nfrom IPython.display import clear_output, display\nos.listdir?\n"
        "files = !echo one; echo two\n"
        "assert files == ['one', 'two']\n%env DEINPLACE_A_TEST=1\nassert os.environ['DEINPLACE_A_TEST'] == '1'"
    ),
    "%%capture caught\ny = torch.ones(3, requires_grad=True)\nz = y.exp()\nprint('unseen')",
    "caught.show()\nz.mul_(2)",
    "from __future__ import annotations\ndisplay(float(z.sum()))\nif True:\n    %time z.sum().backward()",
    "clear_output()\nget_ipython().run_line_magic('autoreload', '2')",
    "y.grad.tolist()",
)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    with kernel.client.setup_kernel():
        yield kernel


def deinplace(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "deinplace", *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


CASES = [
    pytest.param(ACROSS, 5, ["h += x", "h = h + x"], False, id="augmented assignment"),
    pytest.param(FLAG, 2, [], False, id="inplace flag"),
    pytest.param(
        GAN, 4, ["loss_g.backward()", "loss_g.backward(inputs=list(g.parameters()))\nod.step()"], True, id="step order"
    ),
    pytest.param(MAGIC, 5, ["z.mul_(2)", "z = z.mul(2)"], False, id="magics"),
]


@pytest.mark.parametrize(("cells", "at", "edit", "runs"), CASES)
def test_it_fails_before_and_runs_after(
    tmp_path: Path, kernel: Kernel, cells: tuple[str, ...], at: int, edit: list[str], runs: bool
) -> None:
    path = tmp_path / "nb.ipynb"
    before = put(path, *cells)
    with pytest.raises(CellExecutionError, match="modified by an inplace operation"):
        kernel.run(path)
    done = deinplace(tmp_path, "fix", "nb.ipynb", *(() if runs else ("--verify", "off")))
    assert done.returncode == 0, done
    assert f"nb.ipynb:cell {at}:" in done.stdout
    assert f"+++ b/nb.ipynb:cell {at}" in done.stdout
    assert ("1 fixed: 1 confirmed" if runs else "proved from the source, not run") in done.stdout
    after = sources(path)
    if edit:
        assert after[at - 1] == cells[at - 1].replace(*edit)
    changed = [n for n, cell in enumerate(cells) if after[n] != cell.removeprefix("md:")]
    assert len(changed) == (2 if cells is GAN else 1)
    shown = kernel.run(path)
    assert shown[len(cells)].strip()
    if cells is MAGIC:
        assert shown[8] == str([2 * 2.7182817459106445] * 3)
    lines = before.splitlines()
    assert sum(line not in path.read_bytes().splitlines() for line in lines) <= 3


def test_run_names_both_cells_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    before = put(
        folder / "nb.ipynb",
        "import torch, sys, pathlib\nassert pathlib.Path('nb.ipynb').exists() and sys.argv[1] == '--x'",
        MAGIC[2] + "\n!exit 1",
        "%%capture caught\nprint('shown by us')\nasync def go(v):\n    return v",
        "from __future__ import annotations\ncaught.show()\nif True:\n    %time w = 1\n    v = %time w + 1\n"
        "assert v == 2 and await go(3) == 3\nclear_output()\n"
        "def late(x: Nowhere): pass\n_ = get_ipython().run_line_magic('pwd')\n"
        "%cd ..\nassert pathlib.Path('deep').is_dir()\n%cd deep",
        "x = torch.ones(3, requires_grad=True)\ny = x.exp()",
        "1 / 0",
        "never('run')",
        "def f(:",
        "  y += 1  # indented as a whole\n  y.sum().backward()",
        "def g():\n    return 1 / 0",
        "g()",
        tags={6: ["raises-exception"], 7: ["skip-execution"]},
    )
    done = deinplace(tmp_path, "run", "deep/nb.ipynb", "--x")
    assert done.returncode == 1, done
    assert "deep/nb.ipynb:cell 5:2:5" in done.stdout
    assert "deep/nb.ipynb:cell 9:1:3" in done.stdout
    assert "deinplace fix deep/nb.ipynb --x" in done.stdout.replace("\n      ", " ")
    assert 'nb.ipynb:cell 11", line 1, in <module>\n    g()' in done.stderr
    assert 'nb.ipynb:cell 10", line 2, in g\n    return 1 / 0' in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert (folder / "nb.ipynb").read_bytes() == before


def test_a_failure_of_its_own_is_named_by_its_cell(tmp_path: Path) -> None:
    before = put(tmp_path / "nb.ipynb", "import torch", "def f(x):\n    return x / 0", "f(torch.ones)")
    done = deinplace(tmp_path, "fix", "nb.ipynb")
    assert done.returncode == 2
    assert "nb.ipynb:cell 2:2" in done.stderr.splitlines()[-1]
    assert (tmp_path / "nb.ipynb").read_bytes() == before
