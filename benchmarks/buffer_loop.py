"""What `deinplace` makes of a loop that fills a buffer, beside the loop written by hand with a list and torch.stack.

Prints seconds (best of `--repeat`) and peak bytes of live tensors for forward and backward, and the ratio of the two.
The program that fails, with every saved tensor cloned, is shown as well: its backward is quadratic.

    python benchmarks/buffer_loop.py [--steps 100 1000 4000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deinplace.analysis.source import Source
from deinplace.rewrite.apply import apply, check
from deinplace.rules import static_candidates
from deinplace.rules.base import Project
from deinplace.rules.buffer_loop import BufferLoop

Program = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]

FAILING = """
import torch

def program(w, x, steps):
    out = torch.zeros(x.shape[0], steps, x.shape[1])
    out[:, 0] = x
    for t in range(1, steps):
        out[:, t] = torch.tanh(out[:, t - 1] @ w)
    return out
"""

BY_HAND = """
import torch

def program(w, x, steps):
    out = [x]
    for t in range(1, steps):
        out.append(torch.tanh(out[-1] @ w))
    return torch.stack(out, dim=1)
"""


class Live(TorchDispatchMode):
    """Counts bytes of storages that operators make, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor.untyped_storage())
        return result

    def note(self, storage: Any) -> None:
        key = storage._cdata
        if key in self.seen:
            return
        self.seen.add(key)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.drop, key, storage.nbytes())

    def drop(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.now -= size


def rewritten() -> str:
    """The failing program after the rule's first rewrite."""
    source = Source.parse("program.py", FAILING.encode())
    site = next(iter(BufferLoop().find(source)))
    _, rewrite = static_candidates(site, Project({source.path: source}))[0]
    return check(source, apply(source, rewrite.edits), rewrite.edits).text


def built(text: str) -> Program:
    """The function that a program's text defines."""
    space: dict[str, Program] = {}
    exec(compile(text, "program.py", "exec"), space)
    return space["program"]


def once(program: Program, steps: int, cloned: bool) -> tuple[float, torch.Tensor]:
    """Seconds for forward and backward, and the gradient."""
    torch.manual_seed(0)
    w, x = (torch.randn(32, 32) / 8).requires_grad_(), torch.randn(4, 32)
    hooks: Any = torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
    start = time.perf_counter()
    with hooks if cloned else nullcontext():
        program(w, x, steps).sum().backward()
    assert w.grad is not None
    return time.perf_counter() - start, w.grad


def peak(program: Program, steps: int) -> int:
    """Peak bytes of live tensors."""
    with Live() as live:
        once(program, steps, cloned=False)
    return live.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1000, 4000])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = rewritten()
    print(text)
    ours, hand, failing = built(text), built(BY_HAND), built(FAILING)
    heads = ("steps", "ours s", "hand s", "ratio", "ours MiB", "hand MiB", "ratio", "as it was s")
    print("{:>6} {:>8} {:>8} {:>6} {:>9} {:>9} {:>6} {:>12}".format(*heads))
    for steps in options.steps:
        pairs = [(once(ours, steps, False), once(hand, steps, False)) for _ in range(options.repeat)]
        torch.testing.assert_close(pairs[0][0][1], pairs[0][1][1])
        a, b = min(p[0][0] for p in pairs), min(p[1][0] for p in pairs)
        m, n = peak(ours, steps), peak(hand, steps)
        old = once(failing, steps, True)[0]
        size = f"{m / 2**20:9.2f} {n / 2**20:9.2f} {m / n:6.2f}"
        print(f"{steps:6d} {a:8.4f} {b:8.4f} {a / b:6.2f} {size} {old:12.3f}", flush=True)


if __name__ == "__main__":
    main()
