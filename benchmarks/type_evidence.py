"""How many places that look like in-place writes are decided without and with type checkers, and how long that takes.

    python benchmarks/type_evidence.py --python PYTHON FOLDER [FOLDER ...]

PYTHON is an interpreter whose environment holds torch. Both checkers are asked about every place, so that every
contradiction shows: between them, with the analysis, and with what a person judged (judged_sites.json).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from deinplace.analysis.census import Belief, Candidate, survey
from deinplace.analysis.imports import import_map
from deinplace.analysis.source import Source
from deinplace.files import Selection, discover, load
from deinplace.typing_evidence import Answer, Question, ask, of_candidate

KINDS = ("tensor", "likely", "not", "unknown")
JUDGED = Path(__file__).with_name("judged_sites.json")
Judgement = tuple[str, str]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("folders", nargs="+")
    options = parser.parse_args()
    judged = Counter[Judgement]()
    for folder in options.folders:
        measure(Path(folder).resolve(), options.python, judged)
    total = judged.total()
    wrong = sum(n for (truth, said), n in judged.items() if said != "unknown" and said != truth)
    print(f"judged by hand: {total} asked, {total - judged_open(judged)} decided by checkers alone, {wrong} wrong")


def judged_open(judged: Counter[Judgement]) -> int:
    """How many judged places the checkers left open."""
    return sum(n for (_, said), n in judged.items() if said == "unknown")


def measure(top: Path, python: str, judged: Counter[Judgement]) -> None:
    """One repository: its rows, and every contradiction."""
    paths, _ = discover([str(top)], Selection(str(top), exclude=()))
    sources, _ = load(paths)
    start = time.monotonic()
    believed = survey(sources)
    spent = {"analysis": time.monotonic() - start}
    asked = questions(sources, list(believed))
    start = time.monotonic()
    found = ask(sources, list(asked.values()), python, every=True)
    spent |= {"types": time.monotonic() - start, **found.seconds}
    answers = dict(zip(asked, found.given, strict=True))
    rows(top.name, believed, answers)
    print(f"{top.name:12} seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in spent.items()))
    for note in found.notes:
        print(f"{top.name:12} {note}")
    truth = judgements(top)
    for site, answer in answers.items():
        said = said_of(answer)
        belief = believed[site]
        column = sources[site.path].position(sources[site.path].offset(site.span.line, site.span.col))[1]
        person = truth.get((Path(site.path).relative_to(top).as_posix(), site.span.line, column))
        if person is not None:
            judged[person, said] += 1
        sides = {said, person or said, "tensor" if belief[0] == "likely" else belief[0]} - {"unknown"}
        if answer.contradicted or (len(sides) > 1 and said != "unknown"):
            where = f"{Path(site.path).relative_to(top)}:{site.span.line}: `{site.target}`"
            print(f"  {where}: analysis {belief}, {answer.why}" + (f", a person says {person}" if person else ""))


def said_of(answer: Answer) -> str:
    """An answer in the census's words."""
    return {"other": "not", "subclass": "tensor"}.get(answer.kind, answer.kind)


def questions(sources: dict[str, Source], sites: list[Candidate]) -> dict[Candidate, Question]:
    """What to ask about each place."""
    imports = {path: import_map(source.tree, "") for path, source in sources.items()}
    made = {s: of_candidate(sources[s.path], s.span, s.form, imports[s.path]) for s in sites}
    return {site: question for site, question in made.items() if question is not None}


def rows(name: str, believed: dict[Candidate, tuple[Belief, str]], answers: dict[Candidate, Answer]) -> None:
    """Counts without types, and where the checkers speak wherever the analysis is not sure."""
    without: Counter[str] = Counter(belief for belief, _ in believed.values())
    joined: Counter[str] = Counter()
    for site, (belief, _) in believed.items():
        answer = answers.get(site, Answer())
        open_ = belief in ("likely", "unknown") and answer.kind != "unknown"
        joined[said_of(answer) if open_ else belief] += 1
    for title, counts in (("analysis", without), ("+ types", joined)):
        shares = "  ".join(f"{k} {counts[k]:5d} {counts[k] / len(believed):6.1%}" for k in KINDS)
        print(f"{name:12} {len(believed):5d} places  {title:9} {shares}")


def judgements(top: Path) -> dict[tuple[str, int, int], str]:
    """What a person says of places in this repository."""
    sites = json.loads(JUDGED.read_text())["sites"]
    return {
        (Path(s["path"]).relative_to(s["package"]).as_posix(), s["line"], s["column"]): s["kind"]
        for s in sites
        if s["package"] == top.name
    }


if __name__ == "__main__":
    main()
