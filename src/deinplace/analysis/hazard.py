"""Hazard, possible, harmless: what a write can break, in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from deinplace.analysis.records import Save, Write
from deinplace.analysis.report import Hit, Report
from deinplace.model import Evidence, Place, Span

RULES = {
    "flag": ("DIP101", "inplace-flag"),
    "aug": ("DIP102", "augmented-assignment"),
    "method": ("DIP103", "inplace-method"),
    "function": ("DIP104", "inplace-function"),
    "[]=": ("DIP105", "subscript-write"),
    "+=": ("DIP105", "subscript-write"),
    "setattr": ("DIP105", "subscript-write"),
    "out": ("DIP106", "out-argument"),
    "max_norm": ("DIP107", "clone-where-saved"),
    "step": ("DIP201", "step-before-backward"),
}
LEAF, VIEW = ("DIP203", "leaf-write"), ("DIP204", "view-write")
_MISFITS = {
    "inference": (LEAF, "a tensor made in inference mode is written outside it: torch refuses it"),
    "cast": (LEAF, "a result with fractions is written to a tensor of whole numbers: torch refuses it"),
    "expanded": (
        VIEW,
        "an expanded tensor, one element of which stands in several places, is written: torch refuses it",
    ),
}
_RANK = {"hazard": 0, "possible": 1, "harmless": 2, "unknown": 3}


@dataclass(frozen=True)
class Fault:
    """What is believed of one place that writes in place."""

    rule: tuple[str, str]
    place: Place
    evidence: Evidence
    message: str
    write: Write
    save: Save | None = None


def faults(report: Report) -> list[Fault]:
    """One fault for each place and kind of write, the worst that any run of it showed."""
    best: dict[tuple[str, Span, str], Fault] = {}
    for fault in [*map(of_hit, report.hits), *(_plain(w) for writes in report.writes.values() for w in writes)]:
        key = (fault.place.path, fault.place.span, fault.rule[0])
        known = best.get(key)
        if known is None or _RANK[fault.evidence.hazard] < _RANK[known.evidence.hazard]:
            best[key] = fault
    return list(best.values())


def of_hit(hit: Hit) -> Fault:
    """What a write that meets a pending save is believed to be."""
    write, save = hit.write, hit.save
    sure = hit.sure and write.kind == "tensor"
    saved = f"{save.op} saved its {'output' if save.role == 'output' else 'input'} at {_at(save.place, write.place)}"
    what = "an optimizer's step" if write.form == "step" else f"`{_verb(write)}`"
    message = f"{saved}; {what} at {_at(write.place, None)} overwrites it before backward has used it"
    if write.cut == "unseen":
        message += ", and PyTorch does not notice: gradients are silently wrong"
    if not sure:
        message = message.replace("overwrites", "may overwrite")
    evidence = _evidence(write, "hazard" if sure else "possible", message, save.op)
    return Fault(RULES[write.form], _place(write), evidence, message, write, save)


def _plain(write: Write) -> Fault:
    """A write that hits no pending save; torch may refuse it all the same."""
    if write.misfit:
        rule, message = _MISFITS[write.misfit]
        return Fault(rule, _place(write), _evidence(write, "hazard", message), message, write)
    if write.grad_on and not write.cut and write.grad == "yes" and write.form != "step":
        if write.leaf:
            message = "a leaf that requires grad is written in place: autograd refuses it"
            return Fault(LEAF, _place(write), _evidence(write, "hazard", message), message, write)
        if write.view == "multi" and write.kind == "tensor":
            message = "one of several views that chunk, split, unbind or a loop gave is written: autograd refuses it"
            return Fault(VIEW, _place(write), _evidence(write, "hazard", message), message, write)
    why = "gradients are off" if not write.grad_on else "nothing that backward needs is overwritten"
    hazard = "unknown" if write.kind == "unknown" else "harmless"
    return Fault(RULES[write.form], _place(write), _evidence(write, hazard, why), why, write)


def _evidence(write: Write, hazard: str, why: str, saved_by: str = "") -> Evidence:
    origin = {"leaf": "attribute", "external": "unknown", "buffer": "attribute"}.get(write.origin, write.origin)
    return Evidence(
        kind=write.kind,
        kind_why=write.why,
        origin=origin,  # type: ignore[arg-type]
        saved_by=saved_by,
        grad_mode="on" if write.grad_on else "off",
        hazard=hazard,  # type: ignore[arg-type]
        why=why,
    )


def _place(write: Write) -> Place:
    """Where to change something: a flag stands where the module was built."""
    return write.flagged[0] if write.form == "flag" and write.flagged else write.place


def _verb(write: Write) -> str:
    return write.module.rpartition(".")[2] if write.form == "flag" and write.module else write.op


def _at(place: Place, near: Place | None) -> str:
    """`line 12`, or `file.py:12` for another file."""
    if near is not None and near.path != place.path:
        return f"{PurePath(place.path).name}:{place.span.line}"
    return f"line {place.span.line}"
