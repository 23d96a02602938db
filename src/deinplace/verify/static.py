"""`fix` without a driver: rewrites that two abstract runs, before and after, prove to change nothing else."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deinplace.analysis import safety
from deinplace.analysis.hazard import of_hit
from deinplace.analysis.records import Write
from deinplace.analysis.report import Hit, Refine, Report, Unit
from deinplace.analysis.safety import Safety
from deinplace.analysis.source import Source
from deinplace.model import (
    FileChange,
    Finding,
    Outcome,
    Place,
    Raised,
    Rewrite,
    Site,
    Verdict,
)
from deinplace.rewrite.apply import patched
from deinplace.rules import candidates, meant, on_purpose, rule
from deinplace.rules.base import Incident, Project
from deinplace.verify.abstract import AbstractBench
from deinplace.verify.foreseen import incident_of, module_of

if TYPE_CHECKING:
    from deinplace.verify.mend import Options

TRIES = 12
"""Rewrites that are tried for one site."""
SUSPECTED = Safety(False, "possible", "only a run can tell; nothing that was run reaches it (--run, or --unsafe)")
CARRIED = Safety(
    False, "changes-meaning", "a graph is kept over updates of what it was built with: only a run can mend it"
)
UNSEEN = Safety(
    False,
    "changes-meaning",
    "PyTorch does not notice this write: the program may run as it is, and its gradients would change",
)
Offers = tuple[tuple[Site, Rewrite], ...]
Planned = tuple[Site, Rewrite, Safety]


@dataclass(frozen=True)
class Choice:
    """What became of one fault: the rewrite that is proved right, or the reason why there is none."""

    incident: Incident
    hit: Hit | None
    site: Site | None
    rewrite: Rewrite | None
    safety: Safety
    offered: Rewrite | None = None
    """What `--unsafe` would take."""

    @property
    def possible(self) -> bool:
        """True where the analysis cannot tell whether there is a fault."""
        return self.safety is SUSPECTED


def choices(
    sources: Mapping[str, Source],
    unsafe: bool = False,
    allowed: frozenset[str] | None = None,
    refine: Refine | None = None,
) -> list[Choice]:
    """A choice for every fault, in the order in which the program meets them; those that are only possible come last.

    `allowed` holds the codes of the rules that may rewrite; None means all. `refine` puts in what type checkers say.
    """
    bench = AbstractBench(sources, lenient=True, allowed=allowed, refine=refine)
    project = Project(sources)
    out: list[Choice] = []
    done: set[safety.Key] = set()
    while True:
        hit = next((h for h in bench.current.hits if (h.sure or unsafe) and safety.key(h) not in done), None)
        if hit is None:
            made = out if unsafe else _held(out)
            return made + _refusals(bench, project) + _suspects(bench, project)
        done.add(safety.key(hit))
        out.append(_choose(bench, project, hit, unsafe))


def _choose(bench: AbstractBench, project: Project, hit: Hit, unsafe: bool) -> Choice:
    original = next((h for h in bench.before.hits if safety.key(h) == safety.key(hit)), hit)
    incident = incident_of(original)
    refusal = safety.refuses(original.write)
    found = _offers(incident, project)
    site = found[0][0] if found else None
    if hit.write.form == "step":
        return Choice(incident, original, site, None, Safety(False, "step-order", "an optimizer's step made the write"))
    if refusal is not None:
        return Choice(incident, original, site, None, refusal)
    reason = Safety(False, "no-rewrite", "no rewrite is known")
    wanted = safety.key(hit)
    if {"buffer", "parameter"} & original.write.flags:
        # Others hold the very object: module state, optimizers, other processes. It has to stay.
        found = tuple(sorted(found, key=lambda pair: pair[1].rule != "DIP107"))
    answers = _answers(bench.sources.get(original.write.place.path), original.write)
    if answers:
        own = (original.write.place.path, original.write.place.function)
        found = tuple(pair for pair in found if own in pair[1].touches)
    if any(on_purpose(rewrite) for _, rewrite in found):
        kept = meant(rewrite for _, rewrite in found)
        found, reason = tuple(pair for pair in found if pair[1] in kept), CARRIED
    found, reason = _permitted(found, reason, bench.allowed)
    for candidate, rewrite in found[:TRIES]:
        proof, after = bench.proves(rewrite, lambda r: all(safety.key(h) != wanted for h in r.hits), [hit.unit])
        if proof.ok and after is not None:
            if not unsafe and _unseen(bench.before, hit):
                return Choice(incident, original, candidate, None, UNSEEN, offered=rewrite)
            bench.take(rewrite, after)
            return Choice(incident, original, candidate, rewrite, proof)
        if reason.reason_code in ("no-rewrite", "not-mended", "not-editable"):
            reason = proof
    if answers and reason.reason_code == "seen-by-others":
        reason = Safety(False, "meaning-differs", f"an argument is written that the caller reads again: {reason.why}")
    return Choice(incident, original, site, None, reason)


def _unseen(report: Report, hit: Hit) -> bool:
    """True for a write that PyTorch does not notice, where it refuses nothing else: the program may run as it is."""
    if hit.write.cut != "unseen":
        return False
    loud = any(other.sure and other.write.cut != "unseen" for other in report.hits if other.unit == hit.unit)
    return not loud and not any(safety.refused(write) for write in report.writes.get(hit.unit, ()))


def _held(made: list[Choice]) -> list[Choice]:
    """The choices, less rewrites that would let a program run which a write past autograd makes silently wrong."""
    hidden = {c.hit.unit: c.hit for c in made if c.hit is not None and c.hit.write.cut and c.rewrite is None}
    out = []
    for choice in made:
        other = hidden.get(choice.hit.unit) if choice.hit is not None else None
        if other is not None and choice.rewrite is not None:
            line = other.write.place.span.line
            why = f"line {line} writes past autograd what backward needs: mend that first, else this runs, and is wrong"
            choice = replace(choice, rewrite=None, safety=Safety(False, "others-left", why))
        out.append(choice)
    return out


def _suspects(bench: AbstractBench, project: Project) -> list[Choice]:
    """Choices for writes that may be faults: only a run can tell, so that nothing is rewritten for them here."""
    sure = {safety.site_key(hit.write) for hit in bench.before.hits if hit.sure}
    left = {safety.key(hit) for hit in bench.current.hits}
    found: dict[tuple[str, int, int, int, int], Choice] = {}
    for hit in bench.before.hits:
        place = safety.site_key(hit.write)
        if hit.sure or place in sure or place in found or safety.key(hit) not in left:
            continue
        incident = incident_of(hit)
        offers = _offers(incident, project)
        found[place] = Choice(incident, hit, offers[0][0] if offers else None, None, SUSPECTED)
    return list(found.values())


def _refusals(bench: AbstractBench, project: Project) -> list[Choice]:
    """Choices for writes that autograd refuses on the spot."""
    out: list[Choice] = []
    done: set[safety.Key] = set()
    while True:
        todo = ((u, w) for u, writes in bench.current.writes.items() for w in writes if safety.refused(w))
        found = next(((u, w) for u, w in todo if safety.write_key(w) not in done), None)
        if found is None:
            return out
        unit, write = found
        done.add(safety.write_key(write))
        made = [w for writes in bench.before.writes.values() for w in writes]
        original = next((w for w in made if safety.write_key(w) == safety.write_key(write)), write)
        out.append(_choose_refused(bench, project, original, unit))


def _choose_refused(bench: AbstractBench, project: Project, write: Write, unit: Unit) -> Choice:
    category = safety.refused(write)
    raised = Raised(
        category, _REFUSED[category], write.stack, f"aten::{write.op}_", module_of(write), names=write.names
    )
    incident = Incident(raised=raised)
    found = _offers(incident, project)
    site = found[0][0] if found else None
    refusal = safety.refuses(write)
    if refusal is not None:
        return Choice(incident, None, site, None, refusal)
    if _may_be_meant(write):
        why = "a leaf is filled with values that require gradients: whether they should flow is a matter of intent"
        return Choice(incident, None, site, None, Safety(False, "meaning-differs", why))
    wanted = safety.write_key(write)
    others = _meant_to_flow(bench.current) - {wanted}
    reason = Safety(False, "no-rewrite", "no rewrite is known")
    found, reason = _permitted(found, reason, bench.allowed)
    for candidate, rewrite in found[:TRIES]:
        proof, after = bench.proves(rewrite, lambda r: _lacks(r, wanted), [unit])
        if proof.ok and after is not None and not others <= _meant_to_flow(after):
            proof = Safety(False, "meaning-differs", "another write of values that require gradients would be cut off")
        if proof.ok and after is not None:
            bench.take(rewrite, after)
            return Choice(incident, None, candidate, rewrite, proof)
        reason = proof
    return Choice(incident, None, site, None, reason)


def _may_be_meant(write: Write) -> bool:
    """True for a refused write of values that require gradients: whether these should flow is a matter of intent."""
    return safety.refused(write) not in ("", "multi-view", "expanded") and write.rhs != "no"


def _meant_to_flow(report: Report) -> set[safety.Key]:
    return {safety.write_key(w) for writes in report.writes.values() for w in writes if _may_be_meant(w)}


def _offers(incident: Incident, project: Project) -> Offers:
    """What rules offer, less what is only there to be shown."""
    return tuple(pair for pair in candidates(incident, project) if pair[1].applicability != "display")


def _permitted(found: Offers, reason: Safety, allowed: frozenset[str] | None) -> tuple[Offers, Safety]:
    """The offers of the rules that may rewrite, and the reason to give where none of them helps."""
    kept = tuple(pair for pair in found if allowed is None or pair[1].rule in allowed)
    if kept or not found:
        return kept, reason
    return kept, Safety(False, "not-fixable", "the settings (select, fixable, unfixable) keep every rewrite of it back")


def _lacks(report: Report, wanted: safety.Key) -> bool:
    return not any(
        safety.refused(w) and safety.write_key(w) == wanted for writes in report.writes.values() for w in writes
    )


_REFUSED = {
    "leaf": "a leaf Variable that requires grad is being used in an in-place operation.",
    "leaf-view": "a view of a leaf Variable that requires grad is being used in an in-place operation.",
    "inference": "Inplace update to inference tensor outside InferenceMode is not allowed.",
    "expanded": "more than one element of the written-to tensor refers to a single memory location.",
    "cast": "a result with fractions can't be cast to the desired output type of whole numbers.",
    "multi-view": "Output 0 of a function that returns several views is a view and is being modified inplace.",
}


def _answers(source: Source | None, write: Write) -> bool:
    """True where the write goes to an argument of a function that returns something else.

    Whether the caller's next read should see the write is then a matter of intent: only a rewrite inside the function
    that is proved equal may decide it.
    """
    if source is None:
        return False
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef) or source.qualname(node.body[0]) != write.place.function:
            continue
        names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        if not names & set(write.names):
            return False
        results = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None]
        return any(not (isinstance(r, ast.Name) and r.id in names) for r in results)
    return False


def plan(sources: Mapping[str, Source], *, all_sites: bool = False, unsafe: bool = False) -> list[Planned]:
    """Rewrites that are proved right. `all_sites` adds writes that are no fault today."""
    planned = [
        (c.site, c.rewrite, c.safety) for c in choices(sources, unsafe) if c.site is not None and c.rewrite is not None
    ]
    if all_sites:
        planned += everywhere(sources, [r for _, r, _ in planned])
    return planned


def everywhere(sources: Mapping[str, Source], taken: Sequence[Rewrite], refine: Refine | None = None) -> list[Planned]:
    """Writes that no fault comes from, where an out-of-place form is proved to be the same."""
    from deinplace.verify.everywhere import sites_to_free

    return sites_to_free(sources, taken, refine)


def fix_statically(sources: Mapping[str, Source], options: Options) -> Outcome:
    """Find and prove rewrites from the source alone; nothing is written."""
    from deinplace.verify.everywhere import settled

    allowed = options.allows()
    made = choices(sources, options.unsafe, allowed, options.refine)
    rewrites = [c.rewrite for c in made if c.rewrite is not None]
    now = sources
    if options.all_sites:
        rewrites += [
            r for _, r, _ in everywhere(sources, rewrites, options.refine) if allowed is None or r.rule in allowed
        ]
    if rewrites:
        now = patched(sources, rewrites)
        now = settled(now, sources, allowed, options.refine) if options.all_sites else now
    changes = tuple(FileChange(p, sources[p].text, now[p].text) for p in sorted(now) if now[p] is not sources[p])
    findings = tuple(finding(c, bool(changes)) for c in made)
    return Outcome(
        "fix", findings, changes, (), ("no driver: proved from the source, not run",), None, files=len(sources)
    )


def finding(choice: Choice, changed: bool) -> Finding:
    """A fault as reports show it."""
    from deinplace.verify.wording import NOWHERE, UNKNOWN, message

    site, hit = choice.site, choice.hit
    code, name = (site.rule, rule(site.rule).name) if site is not None else UNKNOWN
    raised = choice.incident.raised
    place = hit.write.place if hit is not None else raised.stack[0] if raised is not None else Place("", NOWHERE)
    span = site.span if site is not None else place.span
    path = site.path if site is not None else place.path
    fixed = choice.rewrite is not None
    return Finding(
        code,
        name,
        path,
        span,
        of_hit(hit).message if hit is not None and choice.possible else message(choice.incident),
        "fixable" if fixed else "unsafe" if choice.offered is not None else "advised",
        "" if fixed else choice.safety.reason_code,
        advice="" if fixed else choice.safety.why,
        severity="warning" if choice.possible else "error",
        conflict=choice.incident.conflict,
        raised=choice.incident.raised,
        rewrite=choice.rewrite or choice.offered,
        verdict=Verdict("unconfirmed", choice.safety.why, oracle="abstract run") if fixed else None,
    )


__all__ = ["Choice", "Raised", "choices", "fix_statically", "incident_of", "plan"]
