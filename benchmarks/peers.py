"""What people do today about a modified saved tensor, beside deinplace, on the same failing programs in one run.

    python benchmarks/peers.py [--programs DIR] [--only NAME ...] [--jobs N] [--json FILE]

`--programs` holds a folder for each program: program.py, which fails today, and reference.py, its repair by hand.

    located   a line that the repair changes (or its neighbour) is named
    runs      the program runs to its end
    right     and every gradient that an optimizer consumed, and every value at the end, equals the repair's
    wrong     runs to its end, and something differs

Runtime modes (anomaly mode, allow_mutation_on_saved_tensors, functionalize) wrap the whole program.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FLAG = re.compile(r"\binplace\s*=\s*True\b")
AUGMENTED = re.compile(r"^(\s*)([\w.\[\]:, -]+?)\s*(\*\*|//|[-+*/@%&|^])=\s*(.+?)(\s*#.*)?$", re.MULTILINE)
METHOD = re.compile(r"^(\s*)([\w.]+)\.([a-z][a-z_]*[a-z])_\((.*)\)$", re.MULTILINE)
FRAME = re.compile(r'File "[^"]*program\.py", line (\d+)')
RTOL, ATOL, TIMEOUT = 1e-4, 1e-6, 300


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
    runs: bool
    right: bool


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
    Peer("functionalize", _nothing, "functionalize"),
    Peer("deinplace fix", _deinplace),
)


def child(mode: str, script: str, out: str) -> None:
    """Run a script in a mode and save what its training saw."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(script).parent))
    steps: list[list[Any]] = []

    def consumed(optimizer: Any, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        steps.append([None if p.grad is None else p.grad.detach().clone() for p in parameters])

    register_optimizer_step_pre_hook(consumed)
    graph = torch.autograd.graph
    modes: dict[str, Callable[[], Any]] = {
        "anomaly": torch.autograd.detect_anomaly,
        "mutation": graph.allow_mutation_on_saved_tensors,
    }
    with modes.get(mode, contextlib.nullcontext)():
        if mode == "functionalize":
            names: dict[str, Any] = {}
            torch.func.functionalize(lambda: names.update(runpy.run_path(script, run_name="__main__")))()
        else:
            names = runpy.run_path(script, run_name="__main__")
    torch.save({"steps": steps, "names": dict(_frozen(names))}, out)


def _frozen(names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tensors, numbers and the state of modules among a program's globals."""
    import torch

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


def changed(program: Path, reference: Path) -> set[int]:
    """Lines of the program that the repair changes, and their neighbours."""
    a, b = program.read_text().splitlines(), reference.read_text().splitlines()
    out: set[int] = set()
    for tag, start, end, _, _ in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            out.update(range(start, end + 2))
    return out


def record(mode: str, script: Path, out: Path) -> str | None:
    """None where the script ran to its end in a process of its own, else its standard error."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", __file__, "--child", mode, str(script), str(out)]
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
    try:
        done = subprocess.run(
            command, cwd=script.parent, capture_output=True, text=True, env=env, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    return None if done.returncode == 0 else done.stderr


def judge(folder: Path) -> dict[str, Result]:
    """Every peer on one program."""
    lines = changed(folder / "program.py", folder / "reference.py")
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        wanted = Path(temporary) / "reference.pt"
        error = record("plain", folder / "reference.py", wanted)
        if error is not None:
            sys.exit(f"{folder}: the repair does not run:\n{error}")
        for peer in PEERS:
            work = Path(temporary) / peer.name.replace(" ", "-")
            shutil.copytree(folder, work, ignore=shutil.ignore_patterns("reference.py", "__pycache__"))
            said = peer.rewrite(work / "program.py")
            got = work / "recording.pt"
            error = record(peer.mode, work / "program.py", got)
            named = {int(line) for line in FRAME.findall(said or error or "")}
            if said is None and error is None:  # a cure by text names what it changed
                named = changed(folder / "program.py", work / "program.py")
            results[peer.name] = Result(bool(named & lines), error is None, error is None and equal(wanted, got))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=HERE / "programs")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    folders = sorted(path.parent for path in args.programs.glob("*/program.py"))
    folders = [folder for folder in folders if not args.only or folder.name in args.only]
    with ThreadPoolExecutor(args.jobs) as pool:
        table = dict(zip((f.name for f in folders), pool.map(judge, folders), strict=True))
    print(f"| {len(table)} programs | located | runs | right | made wrong |\n|---|---|---|---|---|")
    for peer in PEERS:
        rows = [results[peer.name] for results in table.values()]
        counts = [sum(r.runs for r in rows), sum(r.right for r in rows), sum(r.runs and not r.right for r in rows)]
        shown = [str(count) for count in counts] if peer.repairs else ["-"] * 3
        print(f"| {peer.name} | {sum(r.located for r in rows)} | {' | '.join(shown)} |")
    if args.json:
        plain = {name: {peer: vars(r) for peer, r in results.items()} for name, results in table.items()}
        args.json.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5])
    else:
        main()
