"""The last rung: builds the user's classes and calls their functions with arguments found by trial."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deinplace.analysis.source import Source
from deinplace.probe.synthesis import slicing
from deinplace.probe.synthesis.text import scene
from deinplace.rules import sites
from deinplace.verify.harness.attempts import Attempt, Item, targets, written
from deinplace.verify.harness.model import Harness, Miss, Target

SEARCH = Path(slicing.__file__).parent
"""What runs in the user's interpreter."""
MEMORY = 8 * 2**30
"""Bytes that a search may take."""
LONGEST = 45.0
"""A search takes at most so many times what one target may: what it did not come to is told."""


def harnesses(
    sources: Mapping[str, Source], wanted: Sequence[Target], cwd: str, python: str, seconds: float = 20.0
) -> tuple[list[Harness], list[Miss]]:
    """Harnesses for as many functions as can be called, and what was in vain."""
    attempts = search(sources, items(sources, wanted), cwd, python, seconds)
    misses = []
    for attempt in attempts:
        if not attempt.telling:
            title = f"{os.path.relpath(attempt.item.path, cwd)}: {attempt.item.name}"
            reason = attempt.reason or "the lines in question never ran"
            misses.append(Miss(Harness("synthesis", title, attempt.root or cwd, targets([attempt])), reason))
    return written(attempts), misses


def items(sources: Mapping[str, Source], wanted: Iterable[Target]) -> list[Item]:
    """Functions put together by what has to be built for them: methods by their class."""
    lines: dict[tuple[str, str], set[int]] = {}
    methods: dict[tuple[str, str], dict[str, None]] = {}
    wanted = tuple(wanted)
    found = {path: _lines(sources[path]) for path in {p for p, _ in wanted} & sources.keys()}
    for path, function in wanted:
        if path not in sources or not function or function == "<module>":
            continue
        outer = function.partition(".<locals>")[0]
        owner, _, method = outer.rpartition(".")
        key = (path, owner or method)
        own = lines.setdefault(key, set())
        methods.setdefault(key, {})
        if owner:
            methods[key][method] = None
        own.update(found[path].get(function, ()))
    return [Item(path, name, frozenset(own), tuple(methods[path, name])) for (path, name), own in lines.items()]


def _lines(source: Source) -> dict[str, set[int]]:
    """First lines of the statements with sites, by function."""
    out: dict[str, set[int]] = {}
    for site in sites(source):
        out.setdefault(site.function, set()).add(site.statement.line)
    return out


def search(
    sources: Mapping[str, Source], wanted: Sequence[Item], cwd: str, python: str, seconds: float = 20.0
) -> list[Attempt]:
    """Search in a child process; an attempt for each item, whatever came of it."""
    if not wanted:
        return []
    if not hasattr(os, "fork"):
        return [Attempt(item, reason="a search needs a system on which processes fork") for item in wanted]
    folder = tempfile.mkdtemp(prefix="deinplace-")
    try:
        files = list(_files(sources, wanted, cwd))
        request = {"files": files, "out": folder, "seconds": seconds, "memory": MEMORY}
        Path(folder, "request.json").write_text(json.dumps(request), "utf-8")
        _run([python, str(SEARCH), str(Path(folder, "request.json"))], folder, _bound(files, seconds))
        return _attempts(Path(folder), wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bound(files: Sequence[Mapping[str, Any]], seconds: float) -> float:
    each = sum(70 + (6 * seconds + 2) * len(file["targets"]) for file in files)
    return 60 + min(each, LONGEST * seconds)


def _run(command: Sequence[str], folder: str, seconds: float) -> None:
    """Run the search; whatever it started ends with it."""
    for name in ("tmp", "home"):
        Path(folder, name).mkdir()
    env = dict(os.environ)
    env.pop("DEINPLACE_PROBE", None)
    env.update(PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0", TORCHDYNAMO_DISABLE="1", HF_HUB_OFFLINE="1")
    env.update(TMPDIR=f"{folder}/tmp", HOME=f"{folder}/home", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    log = Path(folder, "log.txt")
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out,
            start_new_session=True,
        )  # fmt: skip
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                child.kill()
            child.wait()


def _files(sources: Mapping[str, Source], wanted: Sequence[Item], cwd: str) -> Iterator[dict[str, Any]]:
    """The request's files, each with its targets and the ways to import it."""
    seen = constructions(sources.values())
    for path in dict.fromkeys(item.path for item in wanted):
        found = list(ways(path, cwd, slicing.acts(sources[path].tree)))
        package = _package(path)
        yield {
            "path": path,
            "ways": found,
            "trace": str(package or Path(path).parent),
            "targets": [
                {"name": i.name, "lines": sorted(i.lines), "methods": i.methods, "seen": seen.get(i.name, ())}
                for i in wanted
                if i.path == path
            ],
        }


def _package(path: str) -> Path | None:
    """Folder of the outermost package that holds a file."""
    folder = Path(path).parent
    top = None
    while (folder / "__init__.py").exists():
        top, folder = folder, folder.parent
    return top


def ways(path: str, cwd: str, acts: bool) -> Iterator[tuple[str, str, bool]]:
    """(folder for `sys.path`, module name, in slices only) in the order in which to try them.

    A file that acts is loaded in slices first, unless it is part of a package: those are there to be imported, and what
    they load would import them whole.
    """
    file = Path(path)
    package = _package(path)
    starts = [package.parent] if package is not None else [file.parent]
    if file.is_relative_to(cwd):
        starts += [p for p in (Path(cwd), *reversed(file.parents)) if p.is_relative_to(cwd)]
    for sliced in (True, False) if acts and package is None else (False, True):
        for start in dict.fromkeys(starts):
            parts = list(file.relative_to(start).with_suffix("").parts)
            if parts[-1] == "__init__" and len(parts) > 1:
                parts.pop()
            if all(part.isidentifier() for part in parts):
                yield str(start), ".".join(parts), sliced


def constructions(sources: Iterable[Source]) -> dict[str, tuple[str, ...]]:
    """Calls with literal arguments only, by the last name of what is called: `UNet(3, 2)`."""
    found: dict[str, dict[str, None]] = {}
    for source in sources:
        for node in source.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            values = [*node.args, *(k.value for k in node.keywords)]
            if name[:1].isupper() and values and all(map(_literal, values)) and all(k.arg for k in node.keywords):
                words = [ast.unparse(a) for a in node.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords]
                found.setdefault(name, {})[f"{name}({', '.join(words)})"] = None
    return {name: tuple(texts) for name, texts in found.items()}


def _literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _attempts(folder: Path, wanted: Sequence[Item]) -> list[Attempt]:
    """The last word on each item."""
    told: dict[tuple[str, str], dict[str, Any]] = {}
    log = (folder / "log.txt").read_text("utf-8", "replace").strip().splitlines()
    ended = "the search ended before it came to it" + (f": {log[-1][:200]}" if log else "")
    results = folder / "results.jsonl"
    for line in results.read_text("utf-8").splitlines() if results.exists() else ():
        entry = json.loads(line)
        told.setdefault((entry["path"], entry["name"]), {}).update(entry)
    out = []
    for item in wanted:
        entry = told.get((os.path.realpath(item.path), item.name)) or told.get((item.path, item.name))
        missing = told.get((item.path, ""), {"reason": ended})
        out.append(_attempt(item, entry if entry is not None else missing))
    return out


def _attempt(item: Item, entry: Mapping[str, Any]) -> Attempt:
    return Attempt(
        item,
        entry.get("root", ""),
        entry.get("built", False),
        entry.get("forward", False),
        entry.get("backward", False),
        entry.get("module", False),
        entry.get("seen", False),
        tuple(scene(data) for data in entry.get("scenes", ())),
        {path: frozenset(lines) for path, lines in entry.get("reached", {}).items()},
        "" if entry.get("scenes") else entry.get("reason") or entry.get("ended", ""),
    )
