"""`pytest --deinplace` in suites of its own, as real runs of pytest."""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ("pytester",)
Pytester = pytest.Pytester

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        h = torch.sigmoid(self.a(x))
        h += x
        return h.sum()
"""
SUITE = """
import pytest
import torch
from net import Net


@pytest.mark.parametrize("seed", [0, 1])
def test_trains(seed):
    torch.manual_seed(seed)
    net = Net()
    net(torch.randn(2, 4)).backward()
    assert net.a.weight.grad is not None


def test_expects_it():
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Net()(torch.randn(2, 4)).backward()


def test_leaf():
    w = torch.ones(3, requires_grad=True)
    w += 1


def test_fails_otherwise():
    assert torch.ones(1) == 2


def test_is_silently_wrong():
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    y.data.mul_(2)
    y.sum().backward()


def test_wraps_it():
    try:
        Net()(torch.randn(2, 4)).backward()
    except RuntimeError as error:
        raise ValueError("training failed") from error
"""


@pytest.fixture(autouse=True)
def environment(pytester: Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTEST_ADDOPTS", "DEINPLACE_PROBE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "160")
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider\n")


def run(pytester: Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*loaded(), *arguments, timeout=200)


def loaded() -> tuple[str, ...]:
    """The entry point, or the plugin by its module where an installation does not know of it yet."""
    known = any(point.name == "deinplace" for point in entry_points(group="pytest11"))
    return () if known else ("-p", "deinplace.pytest_plugin")


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    return {word: number for word, number in result.parseoutcomes().items() if word in ("passed", "failed", "errors")}


def test_a_failing_backward_names_both_lines_and_the_rewrite(pytester: Pytester) -> None:
    """In workers of pytest-xdist, whose reports travel; the fix is tried without them."""
    pytester.makepyfile(net=NET, test_suite=SUITE)
    result = run(pytester, "--deinplace", "-n1")
    assert outcomes(result) == {"passed": 2, "failed": 5}
    text = result.stdout.str()
    assert "probe/control.py" not in text, "frames of ours are no business of the reader's"
    section = text[re.search(r"_ test_trains\[0\] _", text).start() :]  # type: ignore[union-attr]
    section = section[: section.index("\n____")]
    for words in (
        "- deinplace -",
        "net.py:11:13",
        "net.py:12:9",
        "saved here",
        "overwritten here",
        "+        h = h + x",
    ):
        assert words in section
    assert "PyTorch refuses this write" in text
    summary = text[re.search(r"=+ deinplace =+", text).start() :]  # type: ignore[union-attr]
    lines = [line for line in summary.splitlines() if re.match(r"\S+\.py:\d+:\d+: DIP\d+", line)]
    assert len(lines) == 3, lines
    assert re.search(r"net\.py:12:9: DIP102 .*\n    failed: .*test_trains.*test_trains.*test_wraps_it", summary)
    assert re.search(
        r"y\.data\.mul_\(2\).*wrong gradients\n    passed: test_suite\.py::test_is_silently_wrong", summary
    )
    assert "pytest --deinplace-fix" in summary


WORDS = """
import torch
from torch.autograd import Function

class Double(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b
    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, grad * a

def leaf():
    return torch.ones(2, 3, requires_grad=True)

def output(): x = leaf(); y = x.exp(); y += 1; return y
def input(): x = leaf() * 2; y = x * x; x.mul_(2); return y
def other(): x, w = leaf(), torch.ones(3, 2, dtype=torch.float32); y = x @ w; w.zero_(); return y
def second(): x = leaf(); b = (x * 2).chunk(3, 1)[1]; y = b.exp() + 0; z = y.tanh(); z[0] = 1; return z
def custom(): x = leaf() * 1; w = leaf() * 3; y = Double.apply(x, w); w.add_(1); return y
def scalar(): x = torch.tensor(2.0, requires_grad=True); y = x.sqrt(); y.mul_(3); return y
def doubles(): x = leaf().double(); y = x.sigmoid(); y[0] += 1; return y
def linear():
    net = torch.nn.Linear(3, 3); net2 = torch.nn.Linear(3, 1)
    y = net2(net(torch.ones(1, 3)))
    with torch.no_grad(): net2.weight.add_(1)
    return y

def test_words():
    for case in (output, input, other, second, custom, scalar, doubles, linear):
        for anomaly in (False, True):
            try:
                with torch.autograd.set_detect_anomaly(anomaly, check_nan=False):
                    case().sum().backward()
            except RuntimeError as error:
                print("said", case.__name__, anomaly, error)
"""
VARIED = """
import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))


def test_seeds_are_left_alone():
    assert torch.initial_seed() != 0

def test_func_transforms():
    f = lambda x: (x ** 2).sum()
    assert torch.func.grad(f)(torch.ones(3)).tolist() == [2, 2, 2]
    assert torch.func.vmap(torch.func.hessian(f))(torch.ones(2, 3)).shape == (2, 3, 3)

def test_saved_tensors_hooks():
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t), t.clone())[1], lambda t: t):
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
    y += 1
    y.sum().backward()
    assert len(seen) == 1 and torch.allclose(x.grad, torch.ones(3).exp())

def test_mutation_allowed_by_torch():
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y += 1
        y.sum().backward()
    assert torch.allclose(x.grad, torch.ones(3).exp())

def test_second_backward():
    y = (torch.ones(3, requires_grad=True) ** 2).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()

def test_double_backward():
    x = torch.ones(3, requires_grad=True)
    (g,) = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [6, 6, 6]
    assert torch.autograd.gradgradcheck(torch.sigmoid, torch.ones(2, dtype=torch.double, requires_grad=True))

def test_checkpoint():
    net, x = small(), torch.ones(2, 3, requires_grad=True)
    checkpoint(net, x, use_reentrant=False).sum().backward()
    assert x.grad is not None

def test_copies():
    net = small()
    again = pickle.loads(pickle.dumps(copy.deepcopy(net)))
    assert list(again.state_dict()) == list(net.state_dict())

def test_trace_script_fx():
    net = small().eval()
    traced = torch.jit.trace(net, torch.ones(1, 3))
    assert torch.allclose(traced(torch.ones(1, 3)), net(torch.ones(1, 3)))
    assert len(list(torch.fx.symbolic_trace(net).graph.nodes)) == 5

def test_inference_mode():
    with torch.inference_mode():
        assert small()(torch.ones(1, 3)).is_inference()

def test_amp():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = small()(torch.ones(2, 3)).sum()
    loss.backward()

def test_thread():
    out = []
    thread = threading.Thread(target=lambda: out.append(small()(torch.ones(1, 3)).sum().backward()))
    thread.start()
    thread.join()
    assert out == [None]

@pytest.mark.parametrize("foreach", [False, True])
def test_optimizer(foreach):
    net = small()
    opt = torch.optim.Adam(net.parameters(), foreach=foreach)
    for _ in range(2):
        opt.zero_grad()
        net(torch.ones(2, 3)).sum().backward()
        opt.step()

def test_versions():
    x = torch.zeros(2)
    x += 1
    assert x._version == 1
    torch._foreach_add_([x], 1)
    assert x._version == 2
"""


def test_passing_tests_pass_as_before_and_errors_say_what_pytorch_says(pytester: Pytester) -> None:
    """The version check is made in PyTorch's place: its words must be the same.

    Where an input was saved, PyTorch names the node that made it what it is by now, which only PyTorch can tell.
    """
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as plain, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(WORDS, names)
        names["test_words"]()
    pytester.makepyfile(test_varied=VARIED, test_words=WORDS)
    result = run(pytester, "--deinplace", "-s", "-W", "ignore")
    assert outcomes(result) == {"passed": 16}, result.stdout.str()
    assert "= deinplace =" not in result.stdout.str()
    lines = (plain.getvalue().splitlines(), result.outlines)
    said = [[line[line.index("said ") :] for line in each if "said " in line] for each in lines]
    assert len(said[0]) == 16
    for told, watched in zip(*said, strict=True):
        case = told.split()[1]
        if case in ("custom", "linear"):
            told, watched = (re.sub(r"which is output 0 of \w+", "", text) for text in (told, watched))
        assert told == watched


def test_fix_writes_what_the_tests_confirm(pytester: Pytester) -> None:
    pytester.makepyfile(net=NET, test_suite=SUITE)
    result = run(pytester, "--deinplace-fix", "-q", "-k", "trains or otherwise or silently")
    assert outcomes(result) == {"passed": 1, "failed": 3}
    assert "2 fixed: 2 confirmed" in result.stdout.str(), result.stdout.str()
    assert re.search(r"- deinplace -+\ntest_suite\.py:10: DIP102", result.stdout.str())
    assert "y.data.mul_(2)" not in Path("test_suite.py").read_text()
    assert Path("net.py").read_text() == NET.strip().replace("h += x", "h = h + x")


def test_without_torch_there_is_a_note(pytester: Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(
        sitecustomize="import sys\nsys.modules['torch'] = None\n", test_plain="def test_plain():\n    pass\n"
    )
    path = os.pathsep.join(filter(None, (str(pytester.path), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    result = run(pytester, "--deinplace-fix", "-n1")
    assert outcomes(result) == {"passed": 1}
    assert "torch was never imported: there was nothing to watch" in result.stdout.str()


def test_without_the_flag_nothing_is_loaded(pytester: Pytester) -> None:
    code = """
        import sys

        def test_what_is_loaded():
            loaded = {name for name in sys.modules if name.startswith(("deinplace", "torch", "libcst"))}
            assert loaded <= {"deinplace", "deinplace.pytest_plugin"}, loaded
    """
    pytester.makepyfile(code)
    assert outcomes(run(pytester)) == {"passed": 1}


def test_the_options_of_a_run_are_kept() -> None:
    from deinplace.pytest_fix import kept

    given = [
        "tests/a.py",
        "--deinplace-fix",
        "-n",
        "4",
        "-k",
        "x and y",
        "-p",
        "no:cacheprovider",
        "--data=here",
        "-vv",
    ]
    assert kept(given, ["tests/a.py"]) == ["-p", "no:cacheprovider", "--data=here"]
