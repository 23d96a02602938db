"""What people do today about a modified saved tensor, beside deinplace, on the same failing programs in one run.

    python benchmarks/peers.py [--programs DIR] [--only NAME ...] [--jobs N] [--json FILE] [--scan PATH ...]

`--programs` holds a folder for each program: program.py, which fails today, and reference.py, its repair by hand.

    located   a line that the repair changes (or its neighbour) is named
    lines     so many lines are named, in the median
    fixed     the program runs to its end
    right     and every gradient that an optimizer consumed, and every value at the end, equals the repair's, or what
              the program gives when each saved tensor is cloned (the gradients that the code as written means)
    wrong     runs to its end, and something differs
    time      CPU time of a run that came out right, beside that of the repair by hand (geometric mean)
    memory    bytes that its tensors hold at most, likewise

Runtime modes (anomaly mode, allow_mutation_on_saved_tensors) wrap the whole program, as their pages say;
`functionalize` wraps each outermost call of a module, since torch refuses backward() inside of it.
`--scan` adds what looking at a tree costs, by benchmarks/scan.py.
"""

from __future__ import annotations

import argparse
import difflib
import json
import multiprocessing
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peer_child import record

HERE = Path(__file__).resolve().parent
FLAG = re.compile(r"\binplace\s*=\s*True\b")
AUGMENTED = re.compile(r"^(\s*)([\w.\[\]:, -]+?)\s*(\*\*|//|[-+*/@%&|^])=\s*(.+?)(\s*#.*)?$", re.MULTILINE)
METHOD = re.compile(r"^(\s*)([\w.]+)\.([a-z][a-z_]*[a-z])_\((.*)\)$", re.MULTILINE)
FRAME = re.compile(r'File "[^"]*program\.py", line (\d+)')
RTOL, ATOL, TIMEOUT = 1e-4, 1e-6, 600


@dataclass(frozen=True)
class Peer:
    """One cure: what it does to the program's text, and the mode that the program then runs in."""

    name: str
    rewrite: Callable[[Path], str | None]
    mode: str = "plain"
    repairs: bool = True
    """False where it only says more about the failure."""


@dataclass(frozen=True)
class Result:
    located: bool
    lines: int
    fixed: bool
    right: bool
    time: float | None = None
    memory: float | None = None


def _replaced(program: Path) -> None:
    """Every in-place form that a search finds becomes the other form."""
    text = FLAG.sub("inplace=False", program.read_text())
    text = AUGMENTED.sub(r"\1\2 = \2 \3 (\4)\5", text)
    program.write_text(METHOD.sub(r"\1\2 = \2.\3(\4)", text))


def _flags(program: Path) -> None:
    program.write_text(FLAG.sub("inplace=False", program.read_text()))


def _nothing(program: Path) -> None:
    """The text stays as it is."""


def _deinplace(program: Path) -> str:
    """The lines that the report names, as frames of a traceback have them."""
    report = program.with_name("report.json")
    command = [
        sys.executable, "-m", "deinplace", "fix", ".", "--run", f"{sys.executable} program.py",
        "--output-format", "json", "--output-file", str(report),
    ]  # fmt: skip
    subprocess.run(command, cwd=program.parent, capture_output=True, timeout=TIMEOUT, check=False)
    return "\n".join(f'File "{program}", line {line}' for line in _lines(json.loads(report.read_text())))


def _lines(node: Any) -> Iterator[int]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "line" and isinstance(value, int):
                yield value
            else:
                yield from _lines(value)
    elif isinstance(node, list):
        for value in node:
            yield from _lines(value)


PEERS = (
    Peer("PyTorch's message", _nothing, repairs=False),
    Peer("anomaly mode", _nothing, "anomaly", repairs=False),
    Peer("search and replace", _replaced),
    Peer("inplace=False only", _flags),
    Peer("allow_mutation", _nothing, "mutation"),
    Peer("functionalize", _nothing, "functionalize-modules"),
    Peer("deinplace fix", _deinplace),
)


def equal(left: Path, right: Path) -> bool:
    """True where two recordings agree; names that only one program has do not count."""
    import torch

    a, b = (torch.load(path, weights_only=True) for path in (left, right))

    def close(x: Any, y: Any) -> bool:
        if x is None or y is None:
            return x is y
        return x.shape == y.shape and torch.allclose(x, y.to(x.dtype), rtol=RTOL, atol=ATOL, equal_nan=True)

    steps = len(a["steps"]) == len(b["steps"]) and all(
        len(x) == len(y) and all(map(close, x, y)) for x, y in zip(a["steps"], b["steps"], strict=True)
    )
    return steps and all(close(a["names"][name], b["names"][name]) for name in a["names"].keys() & b["names"].keys())


def costs(reference: Path, got: Path) -> tuple[float | None, float | None]:
    """Time and peak bytes of a run beside those of the repair by hand."""
    import torch

    a, b = (torch.load(path, weights_only=True) for path in (reference, got))
    return b["seconds"] / a["seconds"], b["peak"] / a["peak"] if a["peak"] else None


def changed(program: Path, reference: Path) -> set[int]:
    """Lines of the program that the repair changes, and their neighbours."""
    a, b = program.read_text().splitlines(), reference.read_text().splitlines()
    out: set[int] = set()
    for tag, start, end, _, _ in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            out.update(range(start, end + 2))
    return out


def judge(folder: Path) -> dict[str, Result]:
    """Every peer on one program."""
    lines = changed(folder / "program.py", folder / "reference.py")
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        wanted, literal = Path(temporary) / "reference.pt", Path(temporary) / "literal.pt"
        error = record("plain", folder / "reference.py", wanted, TIMEOUT)
        if error is not None:
            sys.exit(f"{folder}: the repair does not run:\n{error}")
        accepted = [wanted]
        if record("literal", folder / "program.py", literal, TIMEOUT) is None:
            accepted.append(literal)
        for peer in PEERS:
            work = Path(temporary) / peer.name.replace(" ", "-")
            shutil.copytree(folder, work, ignore=shutil.ignore_patterns("reference.py", "__pycache__"))
            said = peer.rewrite(work / "program.py")
            got = work / "recording.pt"
            error = record(peer.mode, work / "program.py", got, TIMEOUT)
            named = {int(line) for line in FRAME.findall(said or error or "")}
            if said is None and error is None:  # a cure by text names what it changed
                named = changed(folder / "program.py", work / "program.py")
            fixed = error is None
            right = fixed and any(equal(each, got) for each in accepted)
            results[peer.name] = Result(
                bool(named & lines), len(named), fixed, right, *(costs(wanted, got) if right else (None, None))
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=HERE / "programs")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scan", type=Path, nargs="*", default=[], metavar="PATH")
    parser.add_argument("--torchfix", help="the torchfix command, where it has an environment of its own")
    args = parser.parse_args()
    folders = sorted(path.parent for path in args.programs.glob("*/program.py"))
    folders = [folder for folder in folders if not args.only or folder.name in args.only]
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("fork")) as pool:
        table = dict(zip((f.name for f in folders), pool.map(judge, folders), strict=True))
    show(table)
    if args.json:
        plain = {name: {peer: vars(r) for peer, r in results.items()} for name, results in table.items()}
        args.json.write_text(json.dumps(plain, indent=1) + "\n")
    for path in args.scan:
        scanned(path.resolve(), args.torchfix)


def show(table: Mapping[str, Mapping[str, Result]]) -> None:
    """One row for each peer."""
    print(f"| {len(table)} programs | located (lines named) | fixed | right | made wrong | time | memory |")
    print("|---|---|---|---|---|---|---|")
    for peer in PEERS:
        rows = [results[peer.name] for results in table.values()]
        counts = [sum(r.fixed for r in rows), sum(r.right for r in rows), sum(r.fixed and not r.right for r in rows)]
        ratios = [_mean([r.time for r in rows]), _mean([r.memory for r in rows])]
        shown = [*map(str, counts), *ratios] if peer.repairs else ["-"] * 5
        lines = statistics.median(r.lines for r in rows)
        print(f"| {peer.name} | {sum(r.located for r in rows)} ({lines:g}) | {' | '.join(shown)} |")


def _mean(ratios: Sequence[float | None]) -> str:
    known = [r for r in ratios if r]
    return f"{statistics.geometric_mean(known):.2f}" if known else "-"


def scanned(path: Path, torchfix: str | None) -> None:
    """CPU seconds of deinplace check and of other tools on one tree."""
    import scan

    commands = scan.commands(path, ["warm", "all cores", "fix"])
    tool = torchfix or shutil.which("torchfix", path=scan._paths())
    if tool:
        commands["torchfix, all rules"] = (tool, "--select", "ALL", str(path))
    with tempfile.TemporaryDirectory() as cache:
        costs = {name: scan.run(command, {"DEINPLACE_CACHE_DIR": cache}) for name, command in commands.items()}
    print(f"\n| one look at {path.name} | CPU seconds |\n|---|---|")
    for name, cost in costs.items():
        print(f"| {name.replace('check', 'deinplace check')} | {cost.cpu:.2f} {cost.ended} |")


if __name__ == "__main__":
    main()
