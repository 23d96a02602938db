"""What the probe sees of saves and writes, on real programs in real child processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from deinplace.verify import account, incidents
from deinplace.verify.drivers import Settings

from .harness import line_of, watched

CONFLICTS = {
    "output saved, augmented assignment": """
        import torch
        w = torch.randn(3, requires_grad=True)
        y = torch.relu(w * 2)  # save
        y += 1  # write
        y.sum().backward()
    """,
    "input saved, subscript write": """
        import torch
        w = torch.randn(3, requires_grad=True)
        h = w * 2
        s = h * h  # save
        h[0] = 1  # write
        s.sum().backward()
    """,
    "list of tensors, foreach": """
        import torch
        w = torch.randn(3, requires_grad=True)
        h = w * 2
        s = h.exp()  # save
        torch._foreach_mul_([s], 2.0)  # write
        s.sum().backward()
    """,
    "out= argument": """
        import torch
        w = torch.randn(3, requires_grad=True)
        s = (w * 2).exp()  # save
        with torch.no_grad():
            torch.add(torch.ones(3), 1, out=s)  # write
        s.sum().backward()
    """,
    "nested hooks of the user": """
        import torch
        w = torch.randn(3, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (t, 1), lambda p: p[0]):
            s = (w * 2).exp()  # save
        s += 1  # write
        s.sum().backward()
        assert torch.allclose(w.grad, 2 * (w * 2).exp()), w.grad
    """,
    "save_on_cpu": """
        import torch
        w = torch.randn(3, requires_grad=True)
        with torch.autograd.graph.save_on_cpu():
            s = (w * 2).exp()  # save
        s += 1  # write
        s.sum().backward()
        assert torch.allclose(w.grad, 2 * (w * 2).exp()), w.grad
    """,
    "custom Function": """
        import torch
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x
            @staticmethod
            def backward(ctx, g):
                return 2 * ctx.saved_tensors[0] * g
        w = torch.randn(3, requires_grad=True)
        h = w * 2
        y = Square.apply(h)  # save
        h += 1  # write
        y.sum().backward()
        assert torch.allclose(w.grad, 8 * w), w.grad
    """,
    "another thread": """
        import threading, torch
        def work():
            w = torch.randn(3, requires_grad=True)
            s = (w * 2).exp()  # save
            s += 1  # write
            s.sum().backward()
        t = threading.Thread(target=work); t.start(); t.join()
    """,
    "double backward": """
        import torch
        w = torch.randn(3, requires_grad=True)
        s = (w * 2).exp()  # save
        g, = torch.autograd.grad(s.sum(), w, create_graph=True)
        s += 1  # write
        g.sum().backward()
        assert torch.allclose(w.grad, 4 * (w * 2).exp()), w.grad
    """,
    "reentrant checkpoint": """
        import torch
        from torch.utils.checkpoint import checkpoint
        w = torch.randn(3, requires_grad=True)
        h = w * 2
        y = checkpoint(torch.sin, h, use_reentrant=True)  # save
        h += 1  # write
        y.sum().backward()
        assert torch.allclose(w.grad, 2 * torch.cos(w * 2)), w.grad
    """,
    "autocast and GradScaler": """
        import torch
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.sigmoid(net(torch.randn(2, 4)))  # save
            y += 1  # write
        scaler.scale(y.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    """,
}


@pytest.mark.parametrize("text", CONFLICTS.values(), ids=CONFLICTS.keys())
def test_names_both_lines_and_lets_the_program_run_on(tmp_path: Path, text: str) -> None:
    with watched(tmp_path, text) as run:
        assert run.exit_code == 0, run.stderr
        (conflict,) = incidents.conflicts(run)
    save, write = conflict.save.place, conflict.write.place
    assert save is not None and write is not None
    assert (save.span.line, write.span.line) == (line_of(tmp_path, "save"), line_of(tmp_path, "write"))
    assert conflict.kind == "version"


SILENT = {
    "fresh copy": "y = torch.relu(w * 2)\ny = y + 1\ny.sum().backward()",
    "nothing saved": "y = w + 2\ny += 1\ny.sum().backward()",
    "saved but never needed": "y = torch.relu(w * 2)\ny += 1\n(w * 3).sum().backward()",
    "graph freed before the write": "y = torch.relu(w * 2)\ny.sum().backward()\nwith torch.no_grad():\n    y += 1",
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT.keys())
def test_stays_silent(tmp_path: Path, text: str) -> None:
    program = f"import torch\nw = torch.randn(3, requires_grad=True)\n{text}\n"
    with watched(tmp_path, program) as run:
        assert run.exit_code == 0, run.stderr
        assert incidents.incidents(run) == ()
        assert run.total("saves") + run.total("backwards") > 0


def test_tells_views_apart_that_do_not_overlap(tmp_path: Path) -> None:
    text = """
        import torch
        w = torch.randn(3, 2, requires_grad=True)
        h = w * 1
        y = h[:, 0] * h[:, 0]
        h[:, 1] += 1
        y.sum().backward()
    """
    with watched(tmp_path, text) as run:
        (conflict,) = incidents.conflicts(run)
    assert (conflict.kind, conflict.disjoint) == ("version", True)


def test_sees_writes_that_the_version_counter_misses(tmp_path: Path) -> None:
    text = """
        import torch
        w = torch.randn(3, requires_grad=True)
        h = w * 1
        y = h * h
        h.data.mul_(5)
        y.sum().backward()
        assert torch.allclose(w.grad, 2 * w), w.grad
    """
    with watched(tmp_path, text) as run:
        assert run.exit_code == 0, run.stderr
        (conflict,) = incidents.conflicts(run)
    assert conflict.kind == "hidden"


def test_names_the_optimizer_and_the_line_of_the_step(tmp_path: Path) -> None:
    text = """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        optimizer = torch.optim.Adam(net.parameters())
        y = net(torch.randn(2, 3))
        y.sum().backward(retain_graph=True)
        optimizer.step()  # write
        y.mean().backward()
    """
    with watched(tmp_path, text) as run:
        found = incidents.conflicts(run)
    assert {c.write.optimizer for c in found} == {"Adam"}
    assert {c.write.place.span.line for c in found if c.write.place} == {line_of(tmp_path, "write")}


def test_a_layer_remembers_where_it_was_built_and_flagged(tmp_path: Path) -> None:
    text = """
        import copy, torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU())  # build
        for m in net.modules():
            if isinstance(m, nn.ReLU):
                m.inplace = True  # flag
        net = copy.deepcopy(net)
        net(torch.randn(2, 3)).sum().backward()
    """
    with watched(tmp_path, text) as run:
        (conflict,) = incidents.conflicts(run)
    module = conflict.write.module
    assert module is not None and (module.cls, module.name, module.inplace) == ("ReLU", "2", True)
    assert module.constructed[0].span.line == line_of(tmp_path, "build")
    assert module.flagged[0].span.line == line_of(tmp_path, "flag")


def test_a_closer_look_names_expressions_and_aliases(tmp_path: Path) -> None:
    text = """
        import torch
        w = torch.randn(3, requires_grad=True)
        h = other = w * 2
        s = torch.dot(h, w)  # save
        h += 1  # write
        s.backward()
    """
    path = str(tmp_path / "program.py")
    look = Settings(watch=True, look={"saves": ((path, 5),), "writes": ((path, 6),)})
    with watched(tmp_path, text, look) as run:
        (conflict,) = incidents.conflicts(run)
    assert conflict.write.names == ("h", "other")
    assert [(s.line, s.col) for s in conflict.save.expressions] == [(5, 14)]


RAISED = {
    "leaf": "w += 1",
    "leaf-view": "w[0] = 1",
    "multi-view": "a, b = (w * 1).chunk(2)\na += 1",
    "expanded": "y = (w * 1).sum().expand(4)\ny += 1",
    "second-backward": "y = (w * w).sum()\ny.backward()\ny.backward()",
    "inference": "with torch.inference_mode():\n    y = torch.ones(2)\ny += 1",
    "cast": "y = torch.ones(2, dtype=torch.int64)\ny *= 0.5",
    "out-grad": "y = torch.empty(4)\ntorch.mul(w, 2, out=y)",
}


@pytest.mark.parametrize(("category", "text"), RAISED.items(), ids=RAISED.keys())
def test_knows_the_errors_that_autograd_raises_at_once(tmp_path: Path, category: str, text: str) -> None:
    program = f"import torch\nw = torch.randn(4, requires_grad=True)\n{text}\n"
    with watched(tmp_path, program) as run:
        assert run.exit_code == 1
        (raised,) = incidents.raised(run)
    assert raised.category == category
    assert raised.stack[0].span.line == len(program.splitlines())


def test_the_compiler_is_imported_by_the_program_alone(tmp_path: Path) -> None:
    text = """
        import sys
        import torch
        assert "torch._dynamo" not in sys.modules
        w = torch.randn(3, requires_grad=True)
        s = w.exp()
        s += 1
        s.sum().backward()
        assert "torch._dynamo" not in sys.modules

        import torch._dynamo
        s = w.exp()
        s += 1  # once more
        s.sum().backward()
    """
    with watched(tmp_path, text) as run:
        assert run.exit_code == 0
        found = [account.conflict(data) for data in run.gather("conflicts")]
        assert {place.span.line for conflict in found for place in conflict.writes[0].stack} == {7, 13}


def test_compiled_code_runs_eagerly_and_is_noted(tmp_path: Path) -> None:
    text = """
        import torch
        w = torch.randn(3, requires_grad=True)
        @torch.compile
        def f(x):
            y = x.exp()
            y += 1
            return y
        f(w * 2).sum().backward()
    """
    with watched(tmp_path, text) as run:
        assert run.exit_code == 0, run.stderr
        assert len(incidents.conflicts(run)) == 1
        assert run.gather("notes") == [] and any(p.account["compiled"] for p in run.processes)


def test_stands_aside_for_function_transforms(tmp_path: Path) -> None:
    text = """
        import torch
        print(torch.func.grad(lambda x: (x * x).sum())(torch.ones(2)).tolist())
        w = torch.ones(2, requires_grad=True)
        s = w.exp(); s += 1; s.sum().backward()
    """
    with watched(tmp_path, text) as run:
        assert (run.exit_code, run.stdout) == (0, "[2.0, 2.0]\n"), run.stderr
        assert len(incidents.conflicts(run)) == 1
        assert run.gather("notes")


def test_follows_child_processes_and_loader_workers(tmp_path: Path) -> None:
    text = """
        import subprocess, sys, torch
        from torch.utils.data import DataLoader
        if len(sys.argv) > 1:
            w = torch.ones(2, requires_grad=True)
            s = w.exp(); s += 1; s.sum().backward()
        else:
            print(sum(x.sum().item() for x in DataLoader(torch.ones(4, 2), num_workers=1)))
            subprocess.run([sys.executable, "program.py", "child"], check=True)
    """
    with watched(tmp_path, text) as run:
        assert (run.exit_code, run.stdout) == (0, "8.0\n"), run.stderr
        assert len(incidents.conflicts(run)) == 1


def test_keeps_an_existing_sitecustomize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.chained = True\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with watched(tmp_path, "import sys\nassert chained\nprint(any('startup' in p for p in sys.path))\n") as run:
        assert (run.exit_code, run.stdout, run.attached) == (0, "False\n", True), run.stderr


def test_says_that_it_could_not_attach(tmp_path: Path) -> None:
    with watched(tmp_path, "print(1)", command=(sys.executable, "-I", "program.py")) as run:
        assert run.exit_code == 0
        assert not run.attached


def test_max_steps_ends_the_program(tmp_path: Path) -> None:
    text = """
        import torch
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    """
    with watched(tmp_path, text, max_steps=3) as run:
        assert run.exit_code == 0
        assert run.total("steps") == 3


def test_the_account_is_plain_data(tmp_path: Path) -> None:
    with watched(tmp_path, CONFLICTS["output saved, augmented assignment"]) as run:
        data = json.loads(json.dumps(run.gather("conflicts")))
    assert account.conflict(data[0]).node == "ReluBackward0"


def test_memory_that_a_tensor_gave_up_is_somebody_elses(tmp_path: Path) -> None:
    text = """
        import torch
        w = torch.ones(4, requires_grad=True)
        a = w * w
        w.data = w.data * 2
        others = [torch.ones(4) for _ in range(200)]
        w.data = w.data * 2
        for other in others:
            other += 1
        a.sum().backward()
        assert w.grad.tolist() == [8.0] * 4, w.grad
    """
    with watched(tmp_path, text) as run:
        assert run.exit_code == 0, run.stderr
        assert incidents.conflicts(run) == ()
