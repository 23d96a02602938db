"""How many classes of a model library get a harness of their own: built, called, backward ran.

The library is a folder of Python source, installed or unpacked, which `--python` can import with what it needs:

    python benchmarks/harness.py SITE_PACKAGES/timm/layers --python VENV/bin/python [--sites] [--failed]
    python benchmarks/harness.py COPY/timm --fix --python VENV/bin/python [--failed]

Prints, for module classes and for functions with sites, how many were built, ran forward, ran backward, and the lines
with sites that a harness reached. With `--fix`, what `deinplace fix --all` confirms by itself, without a driver: the
share of the rewrites, by rung, and how many a harness refuted; nothing is written. The folder has to be what `import`
finds, such as a copy in the current folder. Time limits make the last digits depend on the machine.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deinplace.analysis.source import Source, SourceError
from deinplace.model import Outcome
from deinplace.rules import sites
from deinplace.verify import Asked, Options
from deinplace.verify.harness.attempts import Attempt, Item
from deinplace.verify.harness.ladder import Ladder
from deinplace.verify.harness.rest import Offer
from deinplace.verify.harness.synthesise import items, search

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


def fixed(sources: dict[str, Source], options: argparse.Namespace) -> None:
    """What a climb of the whole ladder confirms, and why it does not confirm the rest."""

    def progress(text: str) -> None:
        print(f"{time.monotonic() - start:7.0f} s  {text}", file=sys.stderr, flush=True)

    start = time.monotonic()
    ladder = Ladder(sources, Options(all_sites=True), Asked(str(Path.cwd()), options.python, options.seconds), progress)
    try:
        shares(ladder, ladder.climb(), options)
    finally:
        ladder.close()
    print(f"{time.monotonic() - start:.0f} s")


def shares(ladder: Ladder, outcome: Outcome, options: argparse.Namespace) -> None:
    """The rewrites by what became of them."""
    rungs = {w.driver.title: w.harness.rung for w in ladder.witnesses}
    offers = ladder.offers
    done = [o for o in offers if o.confirmed]
    methods = [o for o in offers if "." in o.site.function.partition(".<locals>")[0]]
    own = [o for o in methods if o.confirmed]
    states = Counter(f"{f.state} {f.reason}".strip() for f in outcome.findings if f.severity != "note")
    print(f"rewrites {len(offers)}  confirmed {len(done)} ({len(done) / max(len(offers), 1):.1%})")
    print(f"  of methods {len(methods)}  confirmed {len(own)} ({len(own) / max(len(methods), 1):.1%})")
    for rung, count in Counter(rungs.get(o.verdict.driver, "?") for o in done if o.verdict).most_common():
        print(f"  by {rung}: {count}")
    print(f"  refuted by a harness, not written: {sum(o.reason == 'refuted' for o in offers)}")
    used, unused = len(ladder.witnesses), len(ladder.misses)
    print(f"  runs {outcome.runs}, harnesses used {used}, of no use {unused}; faults: {dict(states)}")
    left = [(o, _why(o, ladder)) for o in offers if not o.confirmed]
    for kind, count in Counter(why.partition(":")[0] for _, why in left).most_common():
        print(f"  not confirmed: {count} {kind}")
    for offer, why in left if options.failed else ():
        print(f"{offer.site.path}:{offer.site.statement.line} {offer.site.function}: {why}")
    for note in outcome.notes if options.failed else ():
        print(f"note: {note}")


def _why(offer: Offer, ladder: Ladder) -> str:
    """Why no harness confirms a rewrite."""
    if offer.reason:
        return f"{offer.reason}: {offer.trial.verdict.reason if offer.trial else ''}"
    place = (offer.site.path, offer.site.function)
    owner = (place[0], place[1].partition(".<locals>")[0])
    for miss in ladder.misses:
        if owner in miss.harness.exercises or place in miss.harness.exercises:
            return f"no harness: {miss.harness.title}: {miss.reason}"
    if any(owner in w.harness.exercises for w in ladder.witnesses):
        return "its line was not reached"
    return f"no harness was tried: {offer.trial.verdict.reason if offer.trial else ''}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, help="for one class, or one run: 10, with --fix what `fix` takes: 60")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sites", action="store_true", help="only classes and functions that hold sites")
    parser.add_argument("--failed", action="store_true", help="list what failed, and why")
    parser.add_argument("--every", type=int, default=1, help="only every n-th class")
    parser.add_argument("--json", help="file for the attempts' reasons")
    parser.add_argument("--fix", action="store_true", help="what `fix --all` confirms without a driver")
    options = parser.parse_args()
    options.seconds = options.seconds or (Asked("").timeout if options.fix else 10.0)
    sources = parsed(options.paths)
    if options.fix:
        fixed(sources, options)
        return
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
