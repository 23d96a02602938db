"""Puts what was found and proved into findings and verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from deinplace.model import Finding, Place, Rewrite, Site, Span, Verdict
from deinplace.rules import all_rules, rule
from deinplace.rules.base import Incident, Project
from deinplace.verify.attest import Attested, named
from deinplace.verify.drivers import SEED, Driver
from deinplace.verify.recording import RTOL
from deinplace.verify.search import Choice
from deinplace.verify.trial import Bench, Result

NOWHERE = Span(1, 0, 1, 0)
State = Literal["fixed", "fixable", "unsafe", "rolled-back", "advised", "suppressed"]
UNKNOWN = ("DIP000", "in-place-write")


def verdict(result: Result, bench: Bench, driver: Driver) -> Verdict:
    """The verdict on a patch whose program ran by itself and saw what the oracle saw."""
    comparison = result.comparison
    if comparison is None:
        why = "it runs to its end; what it computes changes on purpose, so there is nothing to compare with"
        return Verdict("unconfirmed", why, driver=driver.title, device=devices(bench))
    if not comparison.gradients and bench.oracle is not None and bench.oracle.total("backwards"):
        why = "no gradient was recorded, so there is nothing to compare"
        return Verdict("unconfirmed", why, driver=driver.title, device=devices(bench))
    if bench.noise.unsteady:
        why = (
            "gradients vary from run to run by themselves, so there is nothing firm to compare with; does the program "
            "read the clock, or files that an earlier run of it wrote?"
        )
        return Verdict("unconfirmed", why, driver=driver.title, device=devices(bench), compared=comparison.compared)
    return Verdict(
        "confirmed",
        f"gradients of {comparison.gradients} tensors in {comparison.steps} optimizer steps",
        oracle="copy-on-write" if bench.emulate is None else "copy-on-write, refused writes emulated",
        driver=driver.title,
        device=devices(bench),
        steps=comparison.steps,
        parameters=len(comparison.stepped) or len(comparison.leaves),
        dtype="+".join(sorted(comparison.dtypes)),
        seed=SEED,
        tolerance=RTOL,
        compared=comparison.compared,
        max_abs_error=comparison.max_abs,
        max_rel_error=comparison.max_rel,
    )


def witnessed(found: Attested, driver: Driver) -> Verdict:
    """The verdict on a patch that other oracles than a run of the whole original confirm."""
    gradients = found.compared
    values = "values at backward, and finite differences of the functions that change"
    what = values if gradients is None else f"gradients of {gradients.gradients} tensors in {gradients.steps} steps"
    return Verdict(
        "confirmed", what, oracle=named(found.agree[0], found.agree[1:]), driver=driver.title, device="cpu", seed=SEED,
        steps=gradients.steps if gradients else 0, compared=gradients.compared if gradients else 0,
        max_abs_error=gradients.max_abs if gradients else None, max_rel_error=gradients.max_rel if gradients else None,
    )  # fmt: skip


def devices(bench: Bench) -> str:
    """Where the tensors lived that the oracle run recorded, such as `cpu` or `cpu+cuda`."""
    seen = set(bench.oracle.gather("devices")) if bench.oracle is not None else set()
    return "+".join(sorted(seen)) or "cpu"


def findings(
    choice: Choice, project: Project, proof: Verdict | None, fixed: bool, refused: Result | None
) -> Iterable[Finding]:
    """One finding for each incident of a group; one for the site where no incident led there."""
    for incident in choice.group.incidents or (Incident(),):
        site = _reported(choice, incident, project)
        code, name = (site.rule, rule(site.rule).name) if site is not None else UNKNOWN
        place = _place(incident)
        path = site.path if site is not None else (place.path if place else "")
        span = site.span if site is not None else (place.span if place else NOWHERE)
        done = fixed and choice.rewrite is not None
        state, reason = _state(choice, fixed)
        yield Finding(
            code, name, path, span, message(incident), state, reason,
            advice="" if done else advice(choice, incident, project, refused),
            conflict=incident.conflict, raised=incident.raised,
            rewrite=choice.rewrite or _offered(choice),
            verdict=_verdict(choice, proof if done else None),
            severity="error" if choice.group.incidents else "note",
            trials=choice.trials,
            memory=choice.memory if done else None,
        )  # fmt: skip


def _reported(choice: Choice, incident: Incident, project: Project) -> Site | None:
    """The site to speak of: where clones alone were on offer, and no help, that of the rule which knows the write.

    An optimizer's step has such a rule even where nothing is on offer.
    """
    site = choice.group.site
    if incident.conflict is None:
        return site
    stepped = incident.conflict.write.optimizer is not None
    helpless = choice.reason == "refuted" and rule(site.rule).fallback if site is not None else stepped
    if not helpless:
        return site
    ranked = sorted(all_rules(), key=lambda r: stepped and not r.code.startswith("DIP2"))
    claims = (each.claim(incident, project) for each in ranked if not each.fallback)
    return next((claim for claim in claims if claim is not None), site)


def _offered(choice: Choice) -> Rewrite | None:
    """The rewrite to show where none was chosen: one that only `--unsafe` tries, where that is what is left."""
    held = choice.group.kept_back(False) if choice.reason == "unsafe" else ()
    return next(iter((*held, *choice.group.alternatives)), None)


def _verdict(choice: Choice, proof: Verdict | None) -> Verdict | None:
    """The patch's verdict, unless this rewrite's own lines never ran."""
    own = choice.trials[-1].verdict if choice.trials and choice.reason != "unsafe" else None
    if proof is not None and (own is None or own.status == "confirmed"):
        return proof
    return own


def _state(choice: Choice, fixed: bool) -> tuple[State, str]:
    if choice.rewrite is not None:
        return ("fixable", "") if fixed else ("advised", "others-left")
    if choice.reason == "unsafe":
        return "unsafe", "changes-meaning"
    if choice.reason == "refuted":
        return "rolled-back", "refuted"
    return "advised", choice.reason or "no-rewrite"


def message(incident: Incident) -> str:
    """What happened, in one sentence."""
    if incident.raised is not None:
        text = incident.raised.message.strip().splitlines()
        return text[0] if text else incident.raised.category
    conflict = incident.conflict
    if conflict is None:
        return "writes a tensor in place; the run was the same without"
    node = conflict.node.rsplit("::", 1)[-1]
    saved = f"{node} saved its {conflict.save.role or 'tensor'}"
    place = conflict.save.place
    where = f" at {_short(place)}" if place else ""
    write = conflict.write
    by = f"{write.optimizer}.step()" if write.optimizer else write.op.removeprefix("aten::").split(".")[0]
    if write.op.startswith("foreign::"):
        by = "code that torch does not see"
        by += f", through the memory shared by {write.op.removeprefix('foreign::')}" if write.place else ""
    spot = f" at {_short(write.place)}" if write.place else ""
    tail = "; PyTorch does not notice, gradients are silently wrong" if conflict.kind == "hidden" else ""
    apart = "; the elements do not even overlap, but views share one version counter" if conflict.disjoint else ""
    return f"{saved}{where}, {by}{spot} overwrote it before backward{tail}{apart}"


def advice(choice: Choice, incident: Incident, project: Project, refused: Result | None) -> str:
    """What to do by hand."""
    site = _reported(choice, incident, project)
    elsewhere = _elsewhere(incident, project) if choice.rewrite is None and choice.reason != "diagnosed" else ""
    parts = [elsewhere] if elsewhere else []
    if choice.reason == "not-fixable":
        parts.append("the settings (select, fixable, unfixable) keep every rewrite of it back")
    if choice.reason == "meaning-differs" and choice.trials:
        parts.append(
            f"{choice.trials[0].rewrite.title} would stop the caller from seeing the change; if that is what you mean, "
            "apply it (--unsafe), else clone the tensor where it is saved"
        )
    if site is not None and not (elsewhere and rule(site.rule).fallback):
        own = rule(site.rule).advice(site, project, incident)
        if own:
            parts.append(own)
    if choice.rewrite is not None and refused is not None and refused.reason:
        still = "this rewrite could not be proved" if refused.ended else "with this rewrite the program still stops"
        parts.append(f"{still}: {refused.reason}")
    if not parts:
        parts.append(_plain_advice(incident))
    return "; ".join((*(part.rstrip(".") for part in parts[:-1]), parts[-1]))


def _elsewhere(incident: Incident, project: Project) -> str:
    """Says that the write stands in a file that was not given; empty where it does not."""
    place = incident.conflict.write.place if incident.conflict is not None else None
    if place is None or not project.sources or project.get(place.path) is not None:
        return ""
    return (
        f"the write is in {place.path}, which is not among the files to be changed: where it is yours, name it, too, "
        "as a PATH"
    )


def _plain_advice(incident: Incident) -> str:
    if incident.conflict is not None:
        write, save = incident.conflict.write, incident.conflict.save
        where = f" at {_short(write.place)}" if write.place else ""
        lines = [f"make the write{where} out of place"]
        if save.place:
            lines.append(f"or clone the tensor where it is saved, {_short(save.place)}")
        return ", ".join(lines)
    if incident.raised is not None and incident.raised.category == "second-backward":
        return "compute anew what both passes share, or add the losses up and run one backward"
    return "write the new value to a new tensor instead"


def _place(incident: Incident) -> Place | None:
    if incident.conflict is not None:
        return incident.conflict.write.place or incident.conflict.save.place
    if incident.raised is None:
        return None
    return incident.raised.stack[0] if incident.raised.stack else None


def _short(place: Place) -> str:
    return f"{place.path.rsplit('/', 1)[-1]}:{place.span.line}"
