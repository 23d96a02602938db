"""Every place of a project that looks like a write in place, and what the analysis believes of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from deinplace.analysis import facts, prefilter
from deinplace.analysis.check import wanted_units
from deinplace.analysis.imports import dotted_path
from deinplace.analysis.index import Index, ModuleInfo
from deinplace.analysis.report import Report
from deinplace.analysis.run import analyse
from deinplace.analysis.source import Source, span_of
from deinplace.model import Span

Belief = Literal["tensor", "likely", "not", "unknown"]
_RANK: dict[str, int] = {"unknown": 0, "not": 1, "likely": 2, "tensor": 3}
_OPEN = frozenset(("unknown", "Ref", "Bound", "Part", "Super"))
"""What a run saw at a place without learning what kind of value it is."""


@dataclass(frozen=True, order=True)
class Candidate:
    """A node that looks like a write in place. `form` is `aug`, `item`, `attribute`, `method`, `flag` or `out`."""

    path: str
    span: Span
    form: str
    target: str


def candidates(source: Source, module: ModuleInfo) -> Iterator[Candidate]:
    """Places of a file that look like writes, in order.

    Left out are calls whose name alone shows that they write no data themselves: `requires_grad_()`, the functions of
    `torch.nn.init`, functions that are imported or defined here (what they write, they write in their own body),
    and `inplace=` with anything but True.
    """
    if not prefilter.may_hold_site(source.data):
        return
    for node in ast.walk(source.tree):
        form = _form(node, module.imports) if prefilter.writes(node) else ""
        if form:
            yield Candidate(source.path, span_of(node), form, source.segment(_target(node, form, module.imports)))


def _form(node: ast.AST, imports: Mapping[str, str]) -> str:
    if isinstance(node, ast.AugAssign):
        return "aug"
    if isinstance(node, ast.Assign):
        return "item" if any(isinstance(t, ast.Subscript) for t in node.targets) else "attribute"
    assert isinstance(node, ast.Call)
    for keyword in node.keywords:
        value = keyword.value
        if keyword.arg == "inplace":
            return "flag" if isinstance(value, ast.Constant) and value.value is True else ""
        if keyword.arg == "out":
            return "" if isinstance(value, ast.Constant) and value.value is None else "out"
    path = dotted_path(node.func)
    if path and path[0] in imports:
        called = ".".join((imports[path[0]], *path[1:]))
        entry = facts.function(called) if not called.startswith("torch.nn.init.") else None
    else:
        entry = facts.method(node.func.attr) if isinstance(node.func, ast.Attribute) else None
    return "method" if entry is not None and entry.in_place and entry.effect == "data" else ""


def _target(node: ast.AST, form: str, imports: Mapping[str, str]) -> ast.AST:
    part: ast.AST = node
    if isinstance(node, ast.AugAssign):
        part = node.target
    elif isinstance(node, ast.Assign):
        part = next(t for t in node.targets if isinstance(t, (ast.Subscript, ast.Attribute)))
    elif isinstance(node, ast.Call):
        part = node.func.value if form == "method" and isinstance(node.func, ast.Attribute) else node.func
        if form == "method" and isinstance(part, ast.Name) and part.id in imports and node.args:
            part = node.args[0]
    return part


def beliefs(index: Index, sources: Mapping[str, Source], report: Report) -> dict[Candidate, tuple[Belief, str]]:
    """What is believed of each candidate, and why: of several runs, the one that knows most."""
    seen: dict[tuple[str, Span], tuple[Belief, str]] = {}
    for (path, span), what in report.others.items():
        seen[path, span] = ("unknown" if set(what.split(" or ")) & _OPEN else "not", what)
    for key, name in report.flags.items():
        seen[key] = ("tensor", f"constructs {name}")
    for writes in report.writes.values():
        for write in writes:
            for place in (write.place, *write.flagged):
                known = seen.get((place.path, place.span))
                if known is None or _RANK[write.kind] > _RANK[known[0]]:
                    seen[place.path, place.span] = (write.kind, write.why)
    found: dict[Candidate, tuple[Belief, str]] = {}
    for path, source in sources.items():
        imports = index.modules[path].imports
        for candidate in candidates(source, index.modules[path]):
            belief = seen.get((path, candidate.span), ("unknown", "never reached"))
            found[candidate] = belief if belief[0] != "unknown" else _by_name(candidate, imports) or belief
    return found


def _by_name(candidate: Candidate, imports: Mapping[str, str]) -> tuple[Belief, str] | None:
    """What the called function's name says of its `inplace` or `out`: NumPy's, or one of torch's that take a model."""
    root, _, rest = candidate.target.partition(".")
    called = f"{imports[root]}.{rest}" if root in imports and rest else imports.get(root, "")
    if candidate.form == "out" and called.startswith("numpy."):
        return "not", "ndarray"
    if candidate.form == "flag" and called.startswith("torch.") and not facts.module(called):
        return None if facts.function(called) else ("not", f"{called} takes a model")
    return None


def survey(sources: Mapping[str, Source]) -> dict[Candidate, tuple[Belief, str]]:
    """What a reading of the whole project leads to believe of each place that looks like a write in place."""
    index = Index(sources)
    report = analyse(sources, lenient=True, wanted=wanted_units(index), index=index, thorough=True)
    return beliefs(index, sources, report)
