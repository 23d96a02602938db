"""Wrong rewrites are refuted: each mutant below runs to its end, and differs from what the original meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deinplace.verify.drivers import Driver, Laboratory, Settings
from deinplace.verify.recording import Comparison, compare, noise_floor

PROGRAM = """\
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(40, 30), nn.BatchNorm1d(30))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
cache = torch.zeros(8)
def step(x):
    y = torch.relu(net(x))
    y += x[:, :30]
    cache.add_(1)
    return y
for i in range(2):
    optimizer.zero_grad()
    loss = step(torch.randn(5, 40)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""
RIGHT = "    y = y + x[:, :30]\n"
MUTANTS = {
    "a term dropped": "    pass\n",
    "another operator": "    y = y - x[:, :30]\n",
    "detached": "    y = y.detach() + x[:, :30] + 0 * y\n",
    "another order of operands that loses a gradient": "    y = x[:, :30] + y.detach() + net(x) * 0\n",
    "half precision": "    y = (y.half() + x[:, :30].half()).float()\n",
    "one element wrong by a thousandth": (
        "    y = y + x[:, :30]; y = y + nn.functional.pad(torch.full((1, 1), 1e-3), (0, 29, 0, 4))\n"
    ),
    "a random number drawn": "    y = y + x[:, :30] + 0 * torch.rand(1)\n",
    "another type": "    y = y.double() + x[:, :30]\n",
    "a buffer changed": "    y = y + x[:, :30]; net[1].running_mean.mul_(1.001)\n",
    "a global left behind": "    y = y + x[:, :30]; cache.add_(1)\n",
}


def run(lab: Laboratory, folder: Path, text: str, watch: bool) -> object:
    path = str(folder / "train.py")
    settings = Settings(
        watch=watch, record=True, functions={path: ("step",)}, overlay={path: text.encode()} if text != PROGRAM else {}
    )
    return lab.run(Driver((sys.executable, "train.py"), str(folder)), settings)


def judged(folder: Path, replacement: str) -> Comparison:
    """The comparison of a rewritten program with the oracle."""
    (folder / "train.py").write_text(PROGRAM)
    with Laboratory() as lab:
        oracle = run(lab, folder, PROGRAM, watch=True)
        other = run(lab, folder, PROGRAM.replace("    y += x[:, :30]\n", replacement), watch=False)
        return compare(oracle, other, Comparison())  # type: ignore[arg-type]


def test_the_right_rewrite_is_equal(tmp_path: Path) -> None:
    comparison = judged(tmp_path, RIGHT)
    assert comparison.differences == []
    assert (comparison.steps, comparison.max_abs) == (2, 0.0)
    assert comparison.gradients >= 8


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_wrong_rewrite_is_refuted(tmp_path: Path, mutant: str) -> None:
    assert judged(tmp_path, mutant).hard


def test_two_runs_of_one_program_give_the_noise_floor(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time, torch\nnow = time.time()\nt = torch.full((4,), now % 1)\nx = torch.ones(3)\n"
    )
    driver = Driver((sys.executable, "train.py"), str(tmp_path))
    with Laboratory() as lab:
        first, second = (lab.run(driver, Settings(record=True)) for _ in range(2))
        noise = noise_floor(first, second)
    assert {label for _, _, label in (*noise.noise, *noise.unstable)} == {"now", "t"}


TRANSFORMED = """\
import torch
from torch.func import grad, vmap
x = torch.ones(2, 300)
per = vmap(grad(lambda p: (p.clone().add_(1) ** 2).sum() * {factor}))(x)
nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)
torch.nested.to_padded_tensor(nested * 2, 0.0).sum().backward()
"""


def test_values_inside_transforms_and_nested_tensors_are_compared(tmp_path: Path) -> None:
    driver = Driver((sys.executable, "train.py"), str(tmp_path))
    with Laboratory() as lab:
        runs = []
        for factor in ("1", "1", "2"):
            (tmp_path / "train.py").write_text(TRANSFORMED.format(factor=factor))
            runs.append(lab.run(driver, Settings(record=True)))
        assert [one.exit_code for one in runs] == [0, 0, 0]
        assert compare(runs[0], runs[1], Comparison()).differences == []
        assert compare(runs[0], runs[2], Comparison()).hard


FORKED = """\
import os, sys, multiprocessing, torch
def work():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    y += 1
    (y * {factor}).sum().backward()
def train():
    for _ in range(40):
        x = torch.ones(3, requires_grad=True)
        x.sum().backward()
{main}
"""
ENDS = {
    "multiprocessing": (
        "train(); p = multiprocessing.get_context('fork').Process(target=work); p.start(); p.join(); train()"
    ),
    "fork": "os.waitpid(os.fork() or work() or os._exit(0), 0)",
    "exit without handlers": "work(); sys.stdout.flush(); os._exit(0)",
}


@pytest.mark.parametrize("main", ENDS.values(), ids=ENDS.keys())
def test_a_process_that_runs_no_exit_handlers_is_compared(tmp_path: Path, main: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(FORKED.format(factor=1, main=main))
    driver = Driver((sys.executable, "train.py"), str(tmp_path))
    with Laboratory() as lab:
        oracle = lab.run(driver, Settings(watch=True, record=True))
        same, other = (
            lab.run(driver, Settings(watch=True, record=True, overlay={str(path): text.encode()}))
            for text in (FORKED.format(factor=1, main=main), FORKED.format(factor=2, main=main))
        )
        assert compare(oracle, same, Comparison()).differences == []
        assert compare(oracle, same, Comparison()).gradients == (81 if "train()" in main else 1)
        assert compare(oracle, other, Comparison()).hard


def test_the_workers_of_a_loader_leave_their_parents_recording_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\nw = torch.ones(3, requires_grad=True)\n"
        "for _ in range(3):\n    for x in DataLoader(torch.ones(8, 3), 2, num_workers=2):\n"
        "        (w * x).sum().backward()\n"
    )
    driver = Driver((sys.executable, "train.py"), str(tmp_path))
    with Laboratory() as lab:
        first, second = (lab.run(driver, Settings(record=True)) for _ in range(2))
        comparison = compare(first, second, Comparison())
    assert (comparison.differences, comparison.gradients) == ([], 12)


def test_a_forked_child_does_not_repeat_what_its_parent_saw(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FORKED.format(factor=1, main="work(); os.waitpid(os.fork() or os._exit(0), 0)"))
    with Laboratory() as lab:
        run = lab.run(Driver((sys.executable, "train.py"), str(tmp_path)), Settings(watch=True))
    assert len(run.processes) == 2
    assert (len(run.gather("conflicts")), run.total("backwards")) == (1, 1)


SEVERAL = """\
import torch
torch.manual_seed(0)
first, second = (torch.ones(n, requires_grad=True) for n in (2, 3))
one, two = torch.optim.SGD([first], lr=0.1), torch.optim.SGD([second], lr=0.1)
(first * 2).sum().backward()
(second * 3).sum().backward()
one.step()
first.requires_grad_(False)
two.step()
"""


def test_optimizers_keep_their_names_when_their_steps_change_places(tmp_path: Path) -> None:
    swapped = SEVERAL.replace("one.step()\n", "").replace("two.step()\n", "two.step()\none.step()\n")
    with Laboratory() as lab:
        runs = []
        for name, text in (("a", SEVERAL), ("b", swapped)):
            (tmp_path / f"{name}.py").write_text(text)
            driver = Driver((sys.executable, f"{name}.py"), str(tmp_path))
            runs.append(lab.run(driver, Settings(watch=False, record=True)))
        comparison = compare(runs[0], runs[1], Comparison(), reordered=True, calls=False)
    assert (comparison.differences, comparison.steps) == ([], 2)
