"""How the analysis and the rewriter fare on whole repositories, without running any of their code.

    python benchmarks/repositories.py FOLDER [FOLDER ...] [--types] [--no-fix] [--draw N --seed S]

For each folder: files that decode and encode back byte for byte; what is believed of all places that look like writes
in place, from the source alone and with type checkers (`--types`); hazards and possible faults with their share of
the tensor writes; and, by package, what `fix --all --diff --verify off` would change: every changed file is compiled
and checked to differ from the original in the edited statements only. `--draw` lists places at random, for judging.
"""

from __future__ import annotations

import argparse
import difflib
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deinplace.analysis.census import Belief, Candidate, beliefs
from deinplace.analysis.check import wanted_units
from deinplace.analysis.hazard import faults
from deinplace.analysis.index import Index
from deinplace.analysis.run import analyse
from deinplace.analysis.source import Source
from deinplace.files import Selection, discover, load
from deinplace.model import Edit, FileChange
from deinplace.rewrite.apply import CheckError, check
from deinplace.typing_evidence import TypeEvidence
from deinplace.verify.mend import Options
from deinplace.verify.static import fix_statically

KINDS: tuple[Belief, ...] = ("tensor", "likely", "not", "unknown")
GROUP = 40
"""Files that `fix --all` is shown together."""


@dataclass
class Figures:
    """What was counted in one repository."""

    files: int = 0
    unread: list[str] = field(default_factory=list)
    round_trips: int = 0
    plain: Counter[str] = field(default_factory=Counter)
    typed: Counter[str] = field(default_factory=Counter)
    hazards: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    edits: int = 0
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0


def main() -> int:
    """Print one table for all folders; 1 where a file does not survive or a rewrite is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--types", action="store_true", help="ask the installed type checkers as well")
    parser.add_argument("--python", default=sys.executable, help="interpreter whose packages checkers look into")
    parser.add_argument("--no-fix", action="store_true", help="leave out `fix --all`")
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="list N places drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    results: dict[str, Figures] = {}
    drawn: list[Candidate] = []
    for folder in options.folders:
        figures = results[Path(folder).name] = Figures()
        drawn += survey(Path(folder).resolve(), figures, options)
        print(f"{Path(folder).name}: {figures.seconds:.0f} CPU seconds", file=sys.stderr)
    show(results, options.types)
    for place in sorted(random.Random(options.seed).sample(sorted(drawn), min(options.draw, len(drawn)))):
        print(f"{place.path}:{place.span.line}:{place.span.col + 1} {place.form} {place.target}")
    return int(any(f.broken or f.round_trips != f.files for f in results.values()))


def survey(top: Path, figures: Figures, options: argparse.Namespace) -> list[Candidate]:
    """Count one repository."""
    begun = time.process_time()
    paths, problems = discover([str(top)], Selection(str(top), exclude=()))
    sources, unread = load(paths)
    figures.unread = [f"{p.path}: {p.message}" for p in (*problems, *unread)]
    figures.files = len(sources)
    figures.round_trips = sum(s.encode(s.text) == Path(p).read_bytes() == s.data for p, s in sources.items())
    index = Index(sources)
    report = analyse(sources, lenient=True, wanted=wanted_units(index), index=index, thorough=True)
    known = beliefs(index, sources, report)
    figures.plain.update(belief for belief, _ in known.values())
    figures.hazards.update(f.evidence.hazard for f in faults(report) if f.evidence.kind in ("tensor", "likely"))
    if options.types:
        refined = TypeEvidence(sources, options.python, all_sites=True)(report)
        figures.typed.update(belief for belief, _ in beliefs(index, sources, refined).values())
    if not options.no_fix:
        fix(sources, figures)
    figures.seconds = time.process_time() - begun
    return list(known)


def fix(sources: Mapping[str, Source], figures: Figures) -> None:
    """Rewrite everything that may be rewritten, some files of a package at a time."""
    by_package: dict[Path, list[str]] = {}
    for path in sorted(sources):
        by_package.setdefault(Path(path).parent, []).append(path)
    for paths in by_package.values():
        for start in range(0, len(paths), GROUP):
            part = {path: sources[path] for path in paths[start : start + GROUP]}
            outcome = fix_statically(part, Options(all_sites=True, unsafe=True, verify="off"))
            for change in outcome.changes:
                figures.changed += 1
                edits = changed_lines(change)
                figures.edits += len(edits)
                try:
                    compile(check(part[change.path], change.after, edits).data, change.path, "exec")
                except (CheckError, SyntaxError, ValueError) as error:
                    figures.broken.append(f"{change.path}: {error}")


def changed_lines(change: FileChange) -> list[Edit]:
    """A change as edits of whole lines: what lies outside of them must be the same statements as before."""
    before, after = change.before.splitlines(keepends=True), change.after.splitlines(keepends=True)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        Edit(change.path, starts[a], starts[b], "".join(after[c:d]))
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    ]


def show(results: Mapping[str, Figures], types: bool) -> None:
    """One line a repository."""
    print("repository | files | round trips | places | tensor | likely | not | unknown | decided | decided with types")
    for name, figures in results.items():
        total = figures.plain.total() or 1
        shares = " | ".join(f"{figures.plain[k]}" for k in KINDS)
        typed = f"{1 - figures.typed['unknown'] / total:.1%}" if types else "not asked"
        decided = f"{1 - figures.plain['unknown'] / total:.1%}"
        trips = f"{figures.round_trips} of {figures.files}"
        print(f"{name} | {figures.files} | {trips} | {figures.plain.total()} | {shares} | {decided} | {typed}")
    print("repository | tensor writes | hazard | possible | changed files | edits | broken rewrites | unreadable files")
    for name, figures in results.items():
        tensors = figures.hazards.total()
        cells = [name, tensors]
        for kind in ("hazard", "possible"):
            cells.append(f"{figures.hazards[kind]} ({figures.hazards[kind] / (tensors or 1):.1%})")
        cells += [figures.changed, figures.edits, len(figures.broken), len(figures.unread)]
        print(" | ".join(map(str, cells)))
        for line in (*figures.broken, *figures.unread):
            print(f"  {line}")


if __name__ == "__main__":
    raise SystemExit(main())
