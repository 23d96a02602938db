"""Differential fuzzing: random programs before and after `fix`, judged by what their callers see.

    python benchmarks/fuzz.py [--programs N] [--first SEED] [--jobs N] [--keep FOLDER]
    python benchmarks/fuzz.py --road --programs N     `fix --run` and `fix --all --run`, ten programs at a time

Each program (tests/properties/random_programs.py) is judged in two modes, default and `--all`, by values, gradients,
arguments after the call, aliases, shared memory and exceptions. The oracle is the program as it is, or, where that
fails at backward or a hidden write corrupts it, the program with every saved tensor cloned. Without `--road` only the
source is looked at, as with `--verify off`. The account ends with what the programs held, and which rewrites of which
rules were taken how often. Exit 1 where one was miscompiled or crashed.
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
from dataclasses import dataclass
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
    except (RuntimeError, ValueError) as error:  # programs raise `ValueError` of their own
        print(name, error)
"""


@dataclass(frozen=True)
class Result:
    """One program in one mode."""

    seed: int
    judged: equivalence.Judged
    tags: frozenset[str] = frozenset()


def static(seed: int) -> list[Result]:
    """One program in both modes, from its source alone."""
    text, tags = random_programs.described(Random(seed))
    return [Result(seed, judged, tags) for judged in equivalence.both_modes(text)]


def road(seeds: list[int]) -> Iterator[Result]:
    """Programs in one folder, by `fix --run` and `fix --all --run`."""
    for mode in ("default", "all"):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            before = {seed: random_programs.program(Random(seed)) for seed in seeds}
            for seed, text in before.items():
                (folder / f"p{seed}.py").write_text(text)
            (folder / "main.py").write_text(MAIN.format(names=[f"p{seed}" for seed in seeds]))
            command = [sys.executable, "-m", "deinplace", "fix", ".", "--run", f"{sys.executable} main.py", "-q"]
            command += ["--all"] * (mode == "all")
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 1):
                yield Result(seeds[0], equivalence.Judged(f"road {mode}", "crashed", done.stderr[-300:], ""))
            for seed, text in before.items():
                after = (folder / f"p{seed}.py").read_text()
                verdict, detail = equivalence.compared(text, after)
                yield Result(seed, equivalence.Judged(f"road {mode}", verdict, detail, after))


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
    tags: Counter[str] = Counter()
    rules: Counter[tuple[str, str, str]] = Counter()
    for result in _results(args, seeds):
        judged = result.judged
        count[judged.mode, judged.verdict] += 1
        if judged.mode.endswith("default"):
            tags.update(result.tags)
        rules.update((judged.mode, *pair) for pair in judged.rules)
        if judged.verdict in BAD:
            print(judged.mode, judged.verdict, f"{result.seed}: {judged.detail}", flush=True)
            if args.keep:
                name = f"p{result.seed}-{judged.mode.replace(' ', '-')}"
                _kept(args.keep, name, random_programs.program(Random(result.seed)), judged.after)
    for (mode, what), number in sorted(count.items()):
        print(f"{mode:12} {number:7} {what}")
    print("programs that hold: " + ", ".join(f"{tag} {number}" for tag, number in tags.most_common()))
    for (mode, code, title), number in sorted(rules.items()):
        print(f"{mode:12} {number:7} {code} {title}")
    bad = sum(number for (_, what), number in count.items() if what in BAD)
    wrong = sum(number for (_, what), number in count.items() if what == "miscompiled")
    print(
        f"{len(seeds)} programs, {count.total()} rewritten files compared: miscompiled {wrong}, crashed {bad - wrong}"
    )
    return int(bad > 0)


def _results(args: argparse.Namespace, seeds: range) -> Iterator[Result]:
    with ProcessPoolExecutor(args.jobs) as pool:
        if args.road:
            groups = [list(seeds[start : start + BATCH]) for start in range(0, len(seeds), BATCH)]
            for results in pool.map(_listed_road, groups):
                yield from results
            return
        for results in pool.map(static, seeds, chunksize=16):
            yield from results


def _listed_road(seeds: list[int]) -> list[Result]:
    return list(road(seeds))


if __name__ == "__main__":
    sys.exit(main())
