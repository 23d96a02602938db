"""Whether a rewrite keeps every value that anybody can see: two abstract runs, compared event by event."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from deinplace.analysis.records import Write
from deinplace.analysis.report import Hit, Report, Unit

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Safety:
    """A proof, or the reason why there is none."""

    ok: bool
    reason_code: str = ""
    why: str = ""


PROVED = Safety(True, "", "every value that leaves the program or function is the same term before and after")


def refuses(write: Write) -> Safety | None:
    """Why no write like this may be changed, whatever the rewrite."""
    if "hooked" in write.flags:
        return Safety(False, "hooked", "retain_grad() or a hook was set on the tensor before the write")
    kept = sorted(f for f in write.flags if " " in f)
    if kept:
        return Safety(False, "escapes", f"the tensor {kept[0]}: somebody else may still look at it")
    return None


def compare(before: Report, after: Report, units: Iterable[Unit]) -> Safety:
    """Equal traces of `units`: what the user's program shows is then unchanged."""
    for unit in units:
        for report in (before, after):
            if unit in report.incomplete:
                return Safety(False, "not-followed", f"{unit[1]} {report.incomplete[unit]}")
        old, new = before.traces.get(unit), after.traces.get(unit)
        if old is None or new is None:
            return Safety(False, "not-followed", f"{unit[1]} was not followed")
        known = {event[:3] for event in old if event[0] == "global"}
        new = [event for event in new if event[0] != "global" or event[:3] in known]
        if old != new:
            return Safety(False, "seen-by-others", _difference(old, new))
    return PROVED


def _difference(old: list[tuple[object, ...]], new: list[tuple[object, ...]]) -> str:
    for a, b in zip(old, new, strict=False):
        if a != b:
            what = " ".join(str(p) for p in a if isinstance(p, str))
            return f"what {_WORDS.get(str(a[0]), 'is seen by')} {what.partition(' ')[2] or what} would differ"
    return "the sequence of events would differ"


_WORDS = {
    "argument": "the caller finds in",
    "returns": "the function",
    "kept": "is kept elsewhere, of what",
    "global": "the module holds in",
    "call": "is given to",
    "backward": "goes into",
    "if": "decides",
}


def refused(write: Write) -> str:
    """The family of error that autograd raises on the spot for a write; empty where it raises none."""
    if write.misfit:
        return write.misfit
    if not write.grad_on or write.cut or write.grad != "yes" or write.form == "step" or write.kind != "tensor":
        return ""
    if write.leaf:
        return "leaf-view" if write.view or write.form == "[]=" else "leaf"
    return "multi-view" if write.view == "multi" else ""


def write_key(write: Write) -> Key:
    """A refused write's identity across edits that move lines."""
    return write.place.path, write.place.function, f"{write.form} {write.op}", _said(write), refused(write)


def key(hit: Hit) -> Key:
    """A hit's identity across edits that move lines."""
    write = hit.write
    return write.place.path, write.place.function, f"{write.form} {write.op}", _said(write), hit.save.op


def _said(write: Write) -> str:
    """What a write's node says, wherever it stands. `ast.unparse` recurses: long sums bring it down."""
    if write.node is None or write.form == "flag":
        return ""
    parts: list[str] = []
    for node in ast.walk(write.node):
        parts.append(type(node).__name__)
        parts += [repr(value) for _, value in ast.iter_fields(node) if not isinstance(value, (ast.AST, list))]
    return " ".join(parts)


def site_key(write: Write) -> tuple[str, int, int, int, int]:
    """The place of a write."""
    span = write.place.span
    return write.place.path, span.line, span.col, span.end_line, span.end_col
