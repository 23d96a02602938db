"""How the analysis fares against places that a person has judged: wrong, right and undecided.

    python benchmarks/judged_sites.py FOLDER [FOLDER ...] [--verbose]

Each folder holds an unpacked distribution that judged_sites.json names, in the version it names. A place counts as
decided where the analysis says `tensor`, `likely` or `not`; as wrong where it says so and the person says otherwise.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from deinplace.analysis.census import survey
from deinplace.files import Selection, discover, load

JUDGED = Path(__file__).with_suffix(".json")


def main() -> int:
    """Print the table; 1 where a place is decided wrongly, 2 where none is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--verbose", action="store_true", help="list what is wrong or undecided")
    options = parser.parse_args()
    sites = json.loads(JUDGED.read_text())["sites"]
    believed: dict[tuple[str, int, int], tuple[str, str]] = {}
    for folder in options.folders:
        top = Path(folder).resolve()
        paths, _ = discover([str(top)], Selection(str(top), exclude=()))
        sources, _ = load(paths)
        for site, belief in survey(sources).items():
            column = sources[site.path].position(sources[site.path].offset(site.span.line, site.span.col))[1]
            believed[Path(site.path).relative_to(top).as_posix(), site.span.line, column] = belief
    counts: Counter[tuple[str, str]] = Counter()
    missing = 0
    for site in sites:
        found = believed.get((site["path"], site["line"], site["column"]))
        if found is None:
            missing += 1
            continue
        counts[site["kind"], found[0]] += 1
        right = found[0] == site["kind"] or (found[0] == "likely" and site["kind"] == "tensor")
        if options.verbose and not right:
            mark = "undecided" if found[0] == "unknown" else "WRONG"
            print(f"{mark:9} {site['path']}:{site['line']}:{site['column']} {site['target']}: {site['kind']}, {found}")
    return report(counts, missing)


def report(counts: Counter[tuple[str, str]], missing: int) -> int:
    """Print what was counted."""
    total = counts.total()
    wrong = sum(n for (truth, said), n in counts.items() if said not in ("unknown", truth) and (said, truth) != LIKELY)
    undecided = sum(n for (_, said), n in counts.items() if said == "unknown")
    likely = counts["tensor", "likely"]
    for (truth, said), number in sorted(counts.items()):
        print(f"judged {truth:7} believed {said:8} {number:4}")
    if not total:
        print("none of the judged places found: each folder has to hold the package's own folder")
        return 2
    share = (total - undecided) / total
    print(f"{total} judged places, {missing} not found: {wrong} wrong, {share:.1%} decided ({likely} are `likely`)")
    return int(bool(wrong))


LIKELY = ("likely", "tensor")

if __name__ == "__main__":
    raise SystemExit(main())
