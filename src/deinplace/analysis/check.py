"""`check`: findings for in-place writes that break, or may break, a backward pass; nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from deinplace.analysis import prefilter, suppress
from deinplace.analysis.hazard import Fault, faults
from deinplace.analysis.index import Index
from deinplace.analysis.report import Refine, Report, Unit
from deinplace.analysis.run import Spread, analyse
from deinplace.analysis.source import Source
from deinplace.analysis.wanted import suspects, worth_a_look
from deinplace.model import Finding


def check(
    sources: Mapping[str, Source],
    config: object = None,
    *,
    all_sites: bool = False,
    select: Collection[str] | None = None,
    ignore: Collection[str] = (),
    refine: Refine | None = None,
    spread: Spread | None = None,
    failed: Callable[[str, str], None] | None = None,
) -> tuple[Finding, ...]:
    """Hazards and possible faults in these files; with `all_sites` every tensor that is written in place.

    `select` and `ignore` hold rule codes or names. `refine` puts in what type checkers say. `spread` hands the work on
    to other processes; `failed` is told each file that could not be analysed there, and why.
    """
    index = Index(sources)
    wanted = wanted_units(index) if all_sites else suspects(index, worth_a_look(index))
    if not wanted:
        return tuple(f for path in sorted(sources) for f in suppress.apply(sources[path], ()))
    report = analyse(sources, lenient=True, wanted=wanted, index=index, traced=False, spread=spread)
    for path, reason in report.failed.items():
        if failed is not None:
            failed(path, reason)
    if refine is not None:
        report = refine(_with_nodes(report, sources) if spread is not None else report)
    by_path: dict[str, list[Finding]] = {path: [] for path in sources}
    for fault in faults(report):
        if fault.place.path in by_path and _shown(fault, all_sites) and _chosen(fault.rule, select, ignore):
            by_path[fault.place.path].append(_finding(fault))
    out: list[Finding] = []
    for path in sorted(by_path):
        found = sorted(by_path[path], key=lambda f: (f.span, f.rule))
        out += suppress.apply(sources[path], found)
    return tuple(out)


def _with_nodes(report: Report, sources: Mapping[str, Source]) -> Report:
    """The report with the nodes of this process in place of the copies that another one sent."""
    for writes in report.writes.values():
        for n, write in enumerate(writes):
            source = sources.get(write.place.path)
            if write.node is None or write.kind == "tensor" or source is None:
                continue
            same = (node for node in source.by_span.get(write.place.span, ()) if type(node) is type(write.node))
            writes[n] = replace(write, node=next(same, None))
    return report


def wanted_units(index: Index) -> set[Unit]:
    """Functions that hold something that looks like a write, and the top level of the files that do."""
    wanted: set[Unit] = set()
    for path, module in index.modules.items():
        if not prefilter.may_hold_site(module.source.data):
            continue
        wanted.add((path, "<module>"))
        found = {info.qualname for node, info in module.functions.items() if prefilter.holds_site(node)}
        wanted |= {(path, name) for name in found}
        # A class that builds modules which work in place: its forward is where that shows.
        wanted |= {(path, f"{name.rpartition('.')[0]}.forward") for name in found if name.endswith(".__init__")}
    return wanted


def _shown(fault: Fault, all_sites: bool) -> bool:
    hazard = fault.evidence.hazard
    return hazard in ("hazard", "possible") or (all_sites and fault.evidence.kind == "tensor")


def _chosen(rule: tuple[str, str], select: Collection[str] | None, ignore: Collection[str]) -> bool:
    names = {rule[0], rule[1]}
    return (select is None or bool(names & set(select))) and not names & set(ignore)


def _finding(fault: Fault) -> Finding:
    severity = {"hazard": "error", "possible": "warning"}.get(fault.evidence.hazard, "note")
    return Finding(
        fault.rule[0],
        fault.rule[1],
        fault.place.path,
        fault.place.span,
        fault.message,
        "advised",
        "static",
        severity=severity,  # type: ignore[arg-type]
        evidence=fault.evidence,
    )
