"""What looking at a whole repository costs, in one run: ratios to `ast.parse`, to other tools, warm, and as it grows.

    python benchmarks/scan.py --repo transformers=PATH [--repo NAME=PATH ...] [--part PATH] [--rounds N]

Every figure is CPU time of a process of its own and of its children; rounds alternate between all that is measured, and
the least of the rounds counts. `ast.parse` means: of those files of the repository that the prefilter lets through.
`--part` is a folder of a repository that torchfix can manage, such as torchvision/models/detection. Tools that are not
installed are left out; `--torchfix` names one that lives in an environment of its own, since it pins an old LibCST.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PARSE = """
import ast, sys, time
from pathlib import Path
from deinplace.analysis.prefilter import may_hold_site
held = [data for p in sorted(Path(sys.argv[1]).rglob("*.py")) if may_hold_site(data := p.read_bytes())]
start = time.process_time()
for data in held:
    ast.parse(data)
print(time.process_time() - start, len(held), sum(data.count(b"\\n") for data in held))
"""
DEINPLACE = (sys.executable, "-m", "deinplace")
PLAIN = ("--types", "off", "-q", "--output-format", "json")
GOALS = {"check, cold": 2.0, "fix --all --diff": 3.0}


@dataclass
class Cost:
    """What one process took, the least of several rounds."""

    cpu: float = float("inf")
    wall: float = float("inf")
    peak: int = 0
    """MiB of the process itself."""
    ended: str = ""

    def least(self, other: Cost) -> None:
        self.cpu, self.wall = min(self.cpu, other.cpu), min(self.wall, other.wall)
        self.peak, self.ended = max(self.peak, other.peak), other.ended


@dataclass
class Repository:
    """A tree, and what was measured on it."""

    name: str
    path: Path
    parse: float = float("inf")
    files: int = 0
    lines: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)


def run(command: Sequence[str], env: dict[str, str] | None = None, limit: float = 3600) -> Cost:
    """One process, and all that it waits for."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})}
    )
    killed = False
    while (done := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        time.sleep(0.005)
        if not killed and time.perf_counter() - start > limit:
            process.kill()
            killed = True
    _, status, used = done
    process.returncode = os.waitstatus_to_exitcode(status)
    ended = f"cut at {limit:.0f} s" if killed else "" if process.returncode in (0, 1) else f"exit {process.returncode}"
    return Cost(used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss // 1024, ended)


def parse(repository: Repository) -> None:
    """The yardstick."""
    out = subprocess.run(
        [sys.executable, "-c", PARSE, str(repository.path)], capture_output=True, text=True, check=True
    )
    seconds, files, lines = out.stdout.split()
    repository.parse = min(repository.parse, float(seconds))
    repository.files, repository.lines = int(files), int(lines)


def commands(path: Path, skip: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What is measured on a repository."""
    check = (*DEINPLACE, "check", str(path), *PLAIN)
    found: dict[str, tuple[str, ...]] = {
        "check, cold": (*check, "--jobs", "1"),
        "check, warm": check,
        "check, all cores": (*check, "--no-cache"),
        "fix --all --diff": (*DEINPLACE, "fix", str(path), "--all", "--diff", "--verify", "off", *PLAIN),
    }
    ruff, grep = shutil.which("ruff", path=_paths()), shutil.which("ast-grep", path=_paths())
    if ruff:
        found["ruff, default rules"] = (ruff, "check", "--no-cache", "-q", "--isolated", "--exit-zero", str(path))
    if grep:
        found["ast-grep, one pattern"] = (grep, "run", "-l", "python", "-p", "$A += $B", str(path))
    return {name: command for name, command in found.items() if not any(word in name for word in skip)}


def _paths() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def measure(repository: Repository, skip: Sequence[str], limit: float) -> None:
    """One round; it begins with an empty cache."""
    parse(repository)
    with tempfile.TemporaryDirectory() as cache:
        for name, command in commands(repository.path, skip).items():
            cost = run(command, {"DEINPLACE_CACHE_DIR": cache}, limit)
            repository.costs.setdefault(name, Cost()).least(cost)
            print(f"  {repository.name}: {name}: {cost.cpu:.2f} s {cost.ended}", file=sys.stderr, flush=True)


def growth(path: Path, limit: float) -> list[tuple[int, Cost]]:
    """`check` on 1, 2, 4 and 8 copies of a tree."""
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for times in (1, 2, 4, 8):
            for n in range(times):
                shutil.copytree(path, Path(folder, f"copy{n}", path.name), dirs_exist_ok=True)
            out.append((times, run((*DEINPLACE, "check", folder, *PLAIN, "--no-cache", "--jobs", "1"), None, limit)))
    return out


def torchfix(part: Path, given: str | None) -> tuple[Cost, Cost] | None:
    """torchfix and `check` on the same folder."""
    tool = given or shutil.which("torchfix", path=_paths())
    if not tool:
        return None
    theirs = run((tool, "--select", "ALL", str(part)))
    return theirs, run((*DEINPLACE, "check", str(part), *PLAIN, "--no-cache", "--jobs", "1"))


def verdict(met: bool) -> str:
    """In a word."""
    return "met" if met else "MISSED"


def show(repository: Repository) -> None:
    """The table of a repository."""
    print(f"\n{repository.name}: {repository.files} files, {repository.lines} lines pass the prefilter")
    print(f"  {'ast.parse of these':26} {repository.parse:8.2f} s CPU")
    cold = repository.costs.get("check, cold")
    for name, cost in repository.costs.items():
        ratio = cost.cpu / repository.parse
        text = f"  {name:26} {cost.cpu:8.2f} s CPU {cost.wall:8.2f} s wall {cost.peak:6} MiB {ratio:7.2f} x ast.parse"
        if name in GOALS:
            text += f"  goal {GOALS[name]:.1f} x: {verdict(ratio <= GOALS[name] and not cost.ended)}"
        if name == "check, warm" and cold is not None:
            text += f"  {cost.cpu / cold.cpu:.3f} of cold, goal 0.050: {verdict(cost.cpu * 20 <= cold.cpu)}"
        print(text, cost.ended)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repo", action="append", default=[], metavar="NAME=PATH", help="a tree to measure")
    parser.add_argument("--part", type=Path, help="a folder for torchfix, and for the measure of growth")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that one process may take")
    parser.add_argument("--torchfix", help="the torchfix command")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="WORD", help="leave out what has this in its name"
    )
    options = parser.parse_args()
    repositories = []
    for text in options.repo:
        name, _, path = text.rpartition("=")
        repositories.append(Repository(name or Path(path).name, Path(path).resolve()))
    for _ in range(options.rounds):
        for repository in repositories:
            measure(repository, options.skip, options.limit)
    for repository in repositories:
        show(repository)
    if options.part is None:
        return
    grown = growth(options.part, options.limit)
    first, last = grown[0][1].cpu, grown[-1][1].cpu
    print(f"\ngrowth of check on copies of {options.part}")
    for times, cost in grown:
        print(f"  {times} x {cost.cpu:8.2f} s CPU {cost.peak:6} MiB {cost.ended}")
    print(f"  8 x the tree took {last / first:.2f} x the time; linear (at most 10 x): {verdict(last <= 10 * first)}")
    pair = torchfix(options.part, options.torchfix)
    if pair is not None:
        theirs, ours = pair
        ratio = theirs.cpu / ours.cpu
        print(f"\ntorchfix {theirs.cpu:.2f} s CPU {theirs.ended}, check {ours.cpu:.2f} s: {ratio:.1f} x", end="")
        print(f"  goal 100 x: {verdict(ratio >= 100)}")


if __name__ == "__main__":
    main()
