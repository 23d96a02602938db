"""How many places that look like in-place writes are tensors, without and with type checkers.

    python benchmarks/type_evidence.py PYTHON FOLDER...

PYTHON is an interpreter whose environment holds torch. Prints a table by repository, the seconds of each layer, and
every place where layers contradict each other.
"""

from __future__ import annotations

import ast
import sys
import time
from collections import Counter
from pathlib import Path

from deinplace.analysis.imports import import_map
from deinplace.analysis.index import Index
from deinplace.analysis.run import Report, analyse
from deinplace.analysis.source import Source, span_of
from deinplace.files import Selection, discover, load
from deinplace.model import Span
from deinplace.typing_evidence import Answer, Question, ask, everywhere

Place = tuple[str, Span]
KINDS = ("tensor", "other", "likely", "unknown")


def local(report: Report) -> dict[Place, str]:
    """Kinds that the analysis alone gives: the least sure of all runs that came to a place."""
    seen: dict[Place, set[str]] = {}
    for writes in report.writes.values():
        for write in writes:
            seen.setdefault((write.place.path, write.place.span), set()).add(write.kind)
    for place, what in report.others.items():
        seen.setdefault(place, set()).add("unknown" if what == "unknown" else "other")
    return {place: _joined(kinds) for place, kinds in seen.items()}


def _joined(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "likely" if kinds == {"likely", "tensor"} else "unknown"


def measured(folder: str, python: str) -> None:
    paths, _ = discover([folder], Selection(folder))
    sources, _ = load(paths)
    asked = places(sources)
    start = time.monotonic()
    index = Index(sources)
    units = {(m.path, info.qualname) for m in index.modules.values() for info in m.functions.values()}
    kinds = local(analyse(sources, lenient=True, wanted=units | {(p, "<module>") for p in sources}, index=index))
    spent = {"analysis": time.monotonic() - start}
    start = time.monotonic()
    found = ask(sources, [q for _, q in asked], python, every=True)
    spent |= {"types": time.monotonic() - start, **found.seconds}
    without: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    wrong: list[tuple[Place, str, Question, Answer]] = []
    for (place, question), answer in zip(asked, found.given, strict=True):
        kind = kinds.get(place, "unknown")
        without[kind] += 1
        decided = kind if kind in ("tensor", "other") or answer.kind == "unknown" else answer.kind
        joined[decided] += 1
        if answer.contradicted or {kind, answer.kind} == {"tensor", "other"}:
            wrong.append((place, kind, question, answer))
    name = Path(folder).name
    for title, counts in (("analysis", without), ("+ types", joined)):
        shares = "  ".join(f"{k} {counts[k]:5d} {counts[k] / len(asked):6.1%}" for k in KINDS)
        print(f"{name:12} {len(asked):5d} places  {title:9} {shares}")
    print(f"{name:12} seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in spent.items()))
    for note in found.notes:
        print(f"{name:12} {note}")
    print(f"{name:12} contradictions: {len(wrong)}")
    for (path, span), kind, question, answer in wrong:
        text = sources[path].segment(question.span)
        print(f"  {Path(path).relative_to(folder)}:{span.line}: `{text}`: analysis says {kind}, {answer.why}")


def places(sources: dict[str, Source]) -> list[tuple[Place, Question]]:
    out: list[tuple[Place, Question]] = []
    for path, source in sources.items():
        found: list[tuple[ast.AST, Question]] = list(everywhere(path, source.tree, import_map(source.tree, "")))
        out += [((path, span_of(node)), question) for node, question in found]
    return out


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for each in sys.argv[2:]:
        measured(str(Path(each).resolve()), sys.argv[1])
