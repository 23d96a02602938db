"""How many classes of a model library get a harness of their own: built, called, backward ran.

The library is a folder of Python source, installed or unpacked, which `--python` can import with what it needs:

    python benchmarks/harness.py SITE_PACKAGES/timm/layers --python VENV/bin/python [--seconds 10] [--failed]

Prints, for module classes and for functions with sites, how many were built, ran forward, ran backward, and the lines
with sites that a harness reached. Time limits make the last digits depend on the machine.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deinplace.analysis.source import Source, SourceError
from deinplace.rules import sites
from deinplace.verify.harness.synthesise import Attempt, Item, items, search

FILES = 10
"""Files of one search."""


def parsed(paths: Sequence[str]) -> dict[str, Source]:
    """Sources below some folders, by path."""
    out = {}
    for folder in paths:
        top = Path(folder).resolve()
        for path in [top] if top.is_file() else sorted(top.rglob("*.py")):
            try:
                out[str(path)] = Source.parse(str(path), path.read_bytes())
            except SourceError as error:
                print(f"{path}: {error}", file=sys.stderr)
    return out


def classes(source: Source) -> Iterator[Item]:
    """Classes of a file that have a base: the child says which of them are modules."""
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and node.bases:
            yield Item(source.path, node.name)


def with_sites(sources: dict[str, Source]) -> list[Item]:
    """Classes and functions that hold sites."""
    wanted = [(s.path, s.function) for source in sources.values() for s in sites(source)]
    return items(sources, dict.fromkeys(wanted))


def attempted(sources: dict[str, Source], wanted: list[Item], options: argparse.Namespace) -> list[Attempt]:
    """All searches, `--jobs` at once, a few files each."""
    paths = list(dict.fromkeys(item.path for item in wanted))
    hands = [set(paths[n : n + FILES]) for n in range(0, len(paths), FILES)]

    def run(hand: set[str]) -> list[Attempt]:
        own = [item for item in wanted if item.path in hand]
        found = search(sources, own, str(Path.cwd()), options.python, options.seconds)
        print(f"{sum(a.forward for a in found)} of {len(found)}", file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        return [a for found in pool.map(run, hands) for a in found]


def table(title: str, attempts: Sequence[Attempt]) -> None:
    """One line of the result."""
    total = max(len(attempts), 1)
    built = sum(a.built for a in attempts)
    forward = sum(a.forward for a in attempts)
    backward = sum(a.backward for a in attempts)
    asked = sum(len(a.item.lines) for a in attempts)
    ran = sum(len(a.item.lines & a.reached.get(a.item.path, frozenset())) for a in attempts)
    lines = f"  lines {ran}/{asked} ({ran / asked:.1%})" if asked else ""
    print(
        f"{title:<22} {len(attempts):5}  built {built:4} ({built / total:.1%})  forward {forward:4} "
        f"({forward / total:.1%})  backward {backward:4} ({backward / total:.1%}){lines}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sites", action="store_true", help="only classes and functions that hold sites")
    parser.add_argument("--failed", action="store_true", help="list what failed, and why")
    parser.add_argument("--every", type=int, default=1, help="only every n-th class")
    parser.add_argument("--json", help="file for the attempts' reasons")
    options = parser.parse_args()
    sources = parsed(options.paths)
    wanted = with_sites(sources) if options.sites else [i for s in sources.values() for i in classes(s)]
    start = time.monotonic()
    attempts = attempted(sources, wanted[:: options.every], options)
    table("module classes", [a for a in attempts if a.module])
    if options.sites:
        table("other", [a for a in attempts if not a.module])
    table("all", attempts)
    print(f"{time.monotonic() - start:.0f} s")
    if options.failed:
        for a in attempts:
            if not a.forward or not a.complete:
                missed = sorted(a.item.lines - a.reached.get(a.item.path, frozenset()))
                lines = f" lines {missed}" if missed else ""
                print(f"{a.item.path}:{a.item.name}: built={a.built} forward={a.forward} {a.reason}{lines}")
    if options.json:
        data = [{"path": a.item.path, "name": a.item.name, "built": a.built, "reason": a.reason} for a in attempts]
        Path(options.json).write_text(json.dumps(data, indent=1), "utf-8")


if __name__ == "__main__":
    main()
