"""What watching costs: one training step of a 20-block residual network, plain and under four watchers, in one run.

    python benchmarks/probe_cost.py [--steps N] [--rounds N]

Each mode runs in a process of its own; rounds alternate between the modes. Prints the median seconds of a step and the
ratio to `allow_mutation_on_saved_tensors`. Threads are limited to one, so that the ratios hold on a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STARTUP = Path(__file__).resolve().parent.parent / "src" / "deinplace" / "probe" / "startup"
MODES = ("plain", "anomaly mode", "allow_mutation", "deinplace")


def train(mode: str, steps: int) -> None:
    """Child: train, print the seconds of each step after a warm-up."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
            self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.act(self.norm_one(self.one(x)))
            y = self.norm_two(self.two(y))
            y += x
            return self.act(y)

    width = 16
    net = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *(Block(width) for _ in range(20)), nn.Flatten(1))
    head = nn.Linear(width * 16 * 16, 10)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
    x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
    times = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        context: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if mode == "anomaly mode":
            context = torch.autograd.detect_anomaly(check_nan=False)
        elif mode == "allow_mutation":
            context = torch.autograd.graph.allow_mutation_on_saved_tensors()
        with context:
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(net(x)), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    print(json.dumps(times[2:]))


def measure(mode: str, steps: int) -> list[float]:
    """Parent: one round of a mode."""
    env = dict(os.environ, OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        if mode == "deinplace":
            settings = Path(folder, "settings.json")
            settings.write_text(json.dumps({"out": folder, "watch": True}), encoding="utf-8")
            env.update(DEINPLACE_PROBE=str(settings), PYTHONPATH=str(STARTUP))
        command = [sys.executable, "-W", "ignore", __file__, "--child", mode, "--steps", str(steps)]
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return list(json.loads(result.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=MODES)
    args = parser.parse_args()
    if args.child:
        train(args.child, args.steps)
        return
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(args.rounds):
        for mode in MODES:
            times[mode] += measure(mode, args.steps)
    base = statistics.median(times["allow_mutation"])
    for mode in MODES:
        median = statistics.median(times[mode])
        print(f"{mode:16} {median * 1000:8.1f} ms a step   {median / base:5.2f} x allow_mutation")


if __name__ == "__main__":
    main()
