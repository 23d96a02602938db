"""Differential fuzzing: random programs before and after `fix` without a driver, judged by what their callers see.

    python benchmarks/fuzz.py [--programs N] [--first SEED] [--jobs N] [--keep FOLDER]
    python benchmarks/fuzz.py --road --programs N     the whole road, `fix --all --run`, ten programs at a time

Each program (tests/properties/random_programs.py) is judged in two modes, default and `--all`, by values, gradients,
arguments after the call, aliases and exceptions. The oracle is the program as it is, or, where that fails at backward
or a hidden write corrupts it, the program with every saved tensor cloned. Exit 1 where one was miscompiled or crashed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "properties"))
import equivalence
import random_programs

BAD = ("miscompiled", "crashed")
BATCH = 10
MAIN = """import importlib, sys
import torch
for name in {names}:
    torch.manual_seed(0)
    try:
        print(name, importlib.import_module(name).main())
    except RuntimeError as error:
        print(name, error)
"""


def static(seed: int) -> list[tuple[str, str, str, str]]:
    """Outcome, mode, detail and rewritten text of one program in both modes; and the rules that rewrote it."""
    text = random_programs.program(Random(seed))
    out = []
    for mode in ("default", "all"):
        verdict, detail, after = equivalence.judged(text, mode == "all")
        out.append((verdict, mode, f"{seed}: {detail}" if verdict in BAD else detail, after))
    return out


def road(seeds: list[int], keep: Path | None) -> Iterator[tuple[str, str, str, str]]:
    """The same for `fix --all --run` over a folder of programs."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        before = {f"p{seed}": random_programs.program(Random(seed)) for seed in seeds}
        for name, text in before.items():
            (folder / f"{name}.py").write_text(text)
        (folder / "main.py").write_text(MAIN.format(names=sorted(before)))
        command = [sys.executable, "-m", "deinplace", "fix", ".", "--all", "--run", f"{sys.executable} main.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            yield "crashed", "road", f"{seeds}: {done.stderr[-300:]}", ""
        for name, text in before.items():
            after = (folder / f"{name}.py").read_text()
            verdict, detail = equivalence.compared(text, after)
            yield verdict, "road", f"{name}: {detail}" if verdict in BAD else detail, after
            if keep and verdict in BAD:
                _kept(keep, name, text, after)


def _kept(keep: Path, name: str, before: str, after: str) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    (keep / f"{name}.py").write_text(before)
    (keep / f"{name}.after.py").write_text(after)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=Path, help="put what went wrong into this folder")
    parser.add_argument("--road", action="store_true")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.programs)
    count: Counter[tuple[str, str]] = Counter()
    bad = 0
    for verdict, mode, detail, after in _results(args, seeds):
        count[mode, verdict] += 1
        if verdict == "rewritten, equal":
            count[mode, detail] += 1
        if verdict in BAD:
            bad += 1
            print(mode, verdict, detail, flush=True)
            if args.keep and after and not args.road:
                seed = int(detail.split(":")[0])
                _kept(args.keep, f"p{seed}-{mode}", random_programs.program(Random(seed)), after)
    for (mode, what), number in sorted(count.items()):
        print(f"{mode:8} {number:7} {what}")
    print(f"{len(seeds)} programs: {bad} miscompiled or crashed")
    return int(bad > 0)


def _results(args: argparse.Namespace, seeds: range) -> Iterator[tuple[str, str, str, str]]:
    if args.road:
        for start in range(0, len(seeds), BATCH):
            yield from road(list(seeds[start : start + BATCH]), args.keep)
        return
    with ProcessPoolExecutor(args.jobs) as pool:
        for results in pool.map(static, seeds, chunksize=8):
            yield from results


if __name__ == "__main__":
    sys.exit(main())
