"""Runs one script in a mode, in a process of its own, and saves what its training saw, and what that cost.

`anomaly` and `mutation` are contexts around forward and backward; `functionalize-modules` transforms each outermost
call of a module, since torch refuses backward() inside a transform; `literal` clones every tensor when it is saved, so
that backward sees what the forward computed. Each script runs again in the warm process, for its CPU time, and once
under the profiler, for the bytes that its tensors hold at most.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

LEAST, MOST, ENOUGH = 5, 100, 0.5
"""Timed runs at least and at most, and CPU seconds that are enough."""


def once(mode: str, script: str) -> dict[str, Any]:
    """The globals of a script that ran in a mode."""
    modes: dict[str, Callable[[], Any]] = {
        "anomaly": torch.autograd.detect_anomaly,
        "literal": functools.partial(
            torch.autograd.graph.saved_tensors_hooks, lambda t: t.detach().clone(), lambda t: t
        ),
        "mutation": torch.autograd.graph.allow_mutation_on_saved_tensors,
        "functionalize-modules": functional_modules,
    }
    with modes.get(mode, contextlib.nullcontext)():
        return runpy.run_path(script, run_name="__main__")


@contextlib.contextmanager
def functional_modules() -> Iterator[None]:
    """Every outermost call of a module is functionalized."""
    plain = torch.nn.Module.__call__
    inside = False

    @functools.wraps(plain)
    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return plain(module, *args, **kwargs)
        inside = True
        try:
            return torch.func.functionalize(functools.partial(plain, module, **kwargs))(*args)
        finally:
            inside = False

    torch.nn.Module.__call__ = call  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        torch.nn.Module.__call__ = plain  # type: ignore[method-assign]


def frozen(names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tensors, numbers and the state of modules among a program's globals."""
    for name, value in sorted(names.items()):
        if isinstance(value, torch.nn.Module):
            for key, tensor in value.state_dict().items():
                yield f"{name}.{key}", tensor.detach().clone()
        elif isinstance(value, torch.Tensor):
            yield name, value.detach().clone()
            if value.is_leaf and value.grad is not None:
                yield f"{name}.grad", value.grad.detach().clone()
        elif isinstance(value, int | float) and not name.startswith("__"):
            yield name, torch.tensor(float(value))


def seconds(mode: str, script: str) -> float:
    """CPU seconds of one more run."""
    with contextlib.redirect_stdout(io.StringIO()):
        begun = time.process_time()
        once(mode, script)
        return time.process_time() - begun


def peak(mode: str, script: str) -> int:
    """Bytes that were allocated at most at one time."""
    from torch.profiler import profile

    with contextlib.redirect_stdout(io.StringIO()), profile(profile_memory=True) as profiler:
        once(mode, script)
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def recording(mode: str, script: str) -> dict[str, Any]:
    """What a script's optimizers consumed and left behind, and its cost."""
    steps: list[list[Any]] = []

    def consumed(optimizer: Any, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        steps.append([None if p.grad is None else p.grad.detach().clone() for p in parameters])

    hook = register_optimizer_step_pre_hook(consumed)
    names = dict(frozen(once(mode, script)))
    hook.remove()
    rounds = [seconds(mode, script)]
    while len(rounds) < LEAST or (sum(rounds) < ENOUGH and len(rounds) < MOST):
        rounds.append(seconds(mode, script))
    return {"names": names, "steps": steps, "seconds": min(rounds), "peak": peak(mode, script)}


def record(mode: str, script: Path, out: Path, limit: int) -> str | None:
    """None where a script ran to its end in a process of its own, else its standard error."""
    said = out.with_suffix(".err")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(limit)
            os.chdir(script.parent)
            sys.path.insert(0, str(script.parent))
            with (
                said.open("w") as stream,
                contextlib.redirect_stderr(stream),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                try:
                    torch.save(recording(mode, str(script)), out)
                    code = 0
                except BaseException:  # noqa: BLE001  the parent reads what it was
                    traceback.print_exc(file=stream)
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return None if status == 0 else said.read_text() or f"status {status}"
