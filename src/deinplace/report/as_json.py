"""The JSON report, as `report.schema.json` beside this file describes it.

Paths are relative to the working folder, lines and columns are 1-based, columns count code points.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from typing import Any

import deinplace
from deinplace.model import (
    Conflict,
    Edit,
    Event,
    Finding,
    Memory,
    ModuleInfo,
    Outcome,
    Place,
    Raised,
    Rewrite,
    Span,
    Verdict,
)
from deinplace.report import diff, words
from deinplace.report.view import View

SCHEMA_VERSION = 1
_CELL = re.compile(r"(.*\.ipynb):cell (\d+)", re.DOTALL)
Json = dict[str, Any]


def render(outcome: Outcome, view: View) -> str:
    """The report as one JSON document."""
    document: Json = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "deinplace", "version": deinplace.__version__},
        "command": outcome.command,
        "driver": outcome.driver or None,
        "driver_exit": outcome.driver_exit,
        "runs": outcome.runs,
        "files": outcome.files,
        "written": outcome.written,
        "summary": {"text": words.summary(outcome), "states": dict(Counter(f.state for f in outcome.findings))},
        "verification": verification(outcome.verdict),
        "memory": _memory(outcome.memory),
        "findings": [_finding(finding, view) for finding in outcome.findings],
        "changes": [{"path": view.path(c.path), "diff": diff.unified(c, view)} for c in outcome.changes],
        "problems": [
            {"path": view.path(p.path), "line": p.line or None, "code": p.code, "message": p.message}
            for p in outcome.problems
        ],
        "notes": list(outcome.notes),
    }
    return json.dumps(_with_cells(document), indent=2, allow_nan=False) + "\n"


def _with_cells(value: Any) -> Any:
    """The document with the cells of notebooks apart from their paths; lines count in the cell."""
    if isinstance(value, list):
        return [_with_cells(item) for item in value]
    if not isinstance(value, dict):
        return value
    out = {key: _with_cells(item) for key, item in value.items()}
    if match := _CELL.fullmatch(value["path"] if isinstance(value.get("path"), str) else ""):
        out = {"path": match[1], "cell": int(match[2])} | {key: item for key, item in out.items() if key != "path"}
    return out


def _finding(finding: Finding, view: View) -> Json:
    evidence = finding.evidence
    return {
        **_at(finding.path, finding.span, view),
        "code": finding.rule,
        "name": finding.name,
        "message": words.message(finding, view),
        "severity": finding.severity,
        "state": finding.state,
        "reason": finding.reason,
        "advice": finding.advice,
        "evidence": {
            "kind": evidence.kind,
            "kind_why": evidence.kind_why,
            "origin": evidence.origin,
            "saved_by": evidence.saved_by,
            "grad_mode": evidence.grad_mode,
            "hazard": evidence.hazard,
            "why": evidence.why,
        },
        "conflict": _conflict(finding.conflict, view) if finding.conflict else None,
        "raised": _raised(finding.raised, view) if finding.raised else None,
        "rewrite": _rewrite(finding.rewrite, view) if finding.rewrite else None,
        "verification": verification(finding.verdict),
        "memory": _memory(finding.memory),
        "trials": [
            {"rewrite": _rewrite(trial.rewrite, view), "verification": verification(trial.verdict)}
            for trial in finding.trials
        ],
    }


def _conflict(conflict: Conflict, view: View) -> Json:
    return {
        "kind": conflict.kind,
        "disjoint": conflict.disjoint,
        "count": conflict.count,
        "node": conflict.node,
        "save": {**_event(conflict.save, view), "role": conflict.save.role or None},
        "writes": [_event(write, view) for write in conflict.writes],
        "backward": [_place(place, view) for place in conflict.backward],
    }


def _event(event: Event, view: View) -> Json:
    where = _place(event.place, view) if event.place else {"path": None, "line": None, "range": None, "function": None}
    return {
        **where,
        "source": view.code(event.place, 200) if event.place else "",
        "operation": words.operation(event.op),
        "operator": event.op,
        "tensor": _tensor(event),
        "module": _module(event.module, view) if event.module else None,
        "optimizer": event.optimizer,
        "stack": [_place(place, view) for place in event.stack],
    }


def _raised(raised: Raised, view: View) -> Json:
    return {
        "category": raised.category,
        "message": raised.message,
        "operator": raised.op,
        "tensor": _tensor(raised),
        "module": _module(raised.module, view) if raised.module else None,
        "stack": [_place(place, view) for place in raised.stack],
    }


def _tensor(event: Event | Raised) -> Json | None:
    info = event.tensor
    return {"shape": list(info.shape), "dtype": info.dtype, "device": info.device} if info else None


def _module(info: ModuleInfo, view: View) -> Json:
    return {
        "class": info.cls,
        "name": info.name,
        "inplace": info.inplace,
        "constructed": [_place(place, view) for place in info.constructed],
        "flagged": [_place(place, view) for place in info.flagged],
    }


def _rewrite(rewrite: Rewrite, view: View) -> Json:
    return {
        "code": rewrite.rule,
        "title": rewrite.title,
        "path": view.path(rewrite.path),
        "line": rewrite.line,
        "applicability": rewrite.applicability,
        "note": rewrite.note,
        "edits": [_edit(edit, view) for edit in rewrite.edits],
    }


def _edit(edit: Edit, view: View) -> Json:
    start, end = (view.position(edit.path, offset) for offset in (edit.start, edit.end))
    return {
        "path": view.path(edit.path),
        "line": start[0],
        "range": {"start": _position(*start), "end": _position(*end)},
        "new": edit.new,
    }


def verification(verdict: Verdict | None) -> Json | None:
    """A verdict as the JSON report has it."""
    if verdict is None:
        return None
    return {
        "status": verdict.status,
        "reason": verdict.reason,
        "oracle": verdict.oracle,
        "driver": verdict.driver,
        "device": verdict.device,
        "steps": verdict.steps,
        "compared": verdict.compared,
        "parameters": verdict.parameters,
        "max_abs_error": _finite(verdict.max_abs_error),
        "max_rel_error": _finite(verdict.max_rel_error),
        "dtype": verdict.dtype,
        "seed": verdict.seed,
        "tolerance": verdict.tolerance,
        "modes": [dataclasses.asdict(mode) for mode in verdict.modes],
    }


def _memory(memory: Memory | None) -> Json | None:
    """What rewrites cost."""
    return dataclasses.asdict(memory) if memory is not None else None


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: `reason` says in words what went wrong there."""
    return value if value is not None and math.isfinite(value) else None


def _place(place: Place, view: View) -> Json:
    return {**_at(place.path, place.span, view), "function": place.function}


def _at(path: str, span: Span, view: View) -> Json:
    return {
        "path": view.path(path),
        "line": span.line,
        "range": {
            "start": _position(span.line, view.column(path, span.line, span.col)),
            "end": _position(span.end_line, view.column(path, span.end_line, span.end_col)),
        },
    }


def _position(line: int, column: int) -> Json:
    return {"line": line, "column": column}
