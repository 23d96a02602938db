"""What a repaired program costs: peak bytes and step time of deinplace's patch, of a repair by hand, and of the
original under `allow_mutation_on_saved_tensors`, in one run.

    python benchmarks/repaired_cost.py [--steps N] [--rounds N]

Peak bytes are counted from the allocator's own events (`torch.profiler`, one step after a warm-up), exact on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "repaired"
WAYS = ("by hand", "deinplace", "allow_mutation")


def measure(name: str, mutation: bool, steps: int) -> None:
    """Child: peak bytes above the start of a step, and the seconds of each step."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.set_num_threads(1)
    sys.path.insert(0, str(Path.cwd()))
    program = importlib.import_module(name)
    allow = torch.autograd.graph.allow_mutation_on_saved_tensors

    def step() -> None:
        with allow() if mutation else contextlib.nullcontext():
            program.step()

    for _ in range(3):
        step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(json.dumps({"peak": peak(trace), "times": times}))


def peak(trace: object) -> int:
    """Highest sum of the allocator's events."""
    events = trace.profiler.kineto_results.events()  # type: ignore[attr-defined]
    moves = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    level = top = 0
    for _, size in moves:
        level += size
        top = max(top, level)
    return top


def child(folder: Path, name: str, way: str, steps: int) -> dict[str, object]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", name, "--steps", str(steps)]
    command += ["--mutation"] if way == "allow_mutation" else []
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), check=True
    )
    return dict(json.loads(done.stdout))


def repaired(folder: Path, name: str) -> None:
    """Let deinplace mend a copy of the program."""
    shutil.copy(PROGRAMS / f"{name}.py", folder / f"{name}.py")
    command = [sys.executable, "-m", "deinplace", "fix", f"{name}.py", "--run", f"{sys.executable} {name}.py"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (folder / f"{name}.py").rename(folder / f"{name}_mended.py")
    shutil.copy(PROGRAMS / f"{name}.py", folder / f"{name}.py")
    shutil.copy(PROGRAMS / f"{name}_reference.py", folder / f"{name}_reference.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child")
    parser.add_argument("--mutation", action="store_true")
    args = parser.parse_args()
    if args.child:
        measure(args.child, args.mutation, args.steps)
        return
    for path in sorted(PROGRAMS.glob("*_reference.py")):
        name = path.stem.removesuffix("_reference")
        with tempfile.TemporaryDirectory() as tmp:
            folder = Path(tmp)
            repaired(folder, name)
            modules = dict(zip(WAYS, (f"{name}_reference", f"{name}_mended", name), strict=True))
            results: dict[str, list[dict[str, object]]] = {way: [] for way in WAYS}
            for _ in range(args.rounds):
                for way, module in modules.items():
                    results[way].append(child(folder, module, way, args.steps))
        show(name, results)


def show(name: str, results: dict[str, list[dict[str, object]]]) -> None:
    """Print a row for each way, with ratios to the repair by hand."""
    base: tuple[float, float] | None = None
    for way, rounds in results.items():
        top = max(int(str(r["peak"])) for r in rounds)
        median = statistics.median(t for r in rounds for t in r["times"])  # type: ignore[attr-defined]
        base = base or (top, median)
        print(
            f"{name:8} {way:16} peak {top / 2**20:8.2f} MiB ({top / base[0]:5.2f} x)"
            f"   step {median * 1000:8.2f} ms ({median / base[1]:5.2f} x)"
        )


if __name__ == "__main__":
    main()
