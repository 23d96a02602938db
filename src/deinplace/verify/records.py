"""What a run's processes wrote down, event by event."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deinplace.verify.drivers import Run

CALLS = ("returned", "after call")
REORDERABLE = ("backward", "grad", "consumed", "stepped", "returned", "after call", "end")
"""Kinds of events that keep their values, each kind and name in its own order, when steps and backwards swap."""
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """One event of a recording."""

    kind: str
    name: str
    values: Values
    soft: bool
    at: Mapping[str, Any] | None = None
    """The user's line that it happened at, as the probe wrote it."""


def recordings(run: Run) -> list[list[Record]]:
    """The recordings of a run's processes that used torch, in a fixed order.

    One that holds calls alone is that of a forked child which never trained.
    """
    loaded = [list(_load(p.recording)) for p in run.processes if p.recording is not None]
    return [records for records in loaded if without_calls(records)]


def without_calls(records: Sequence[Record]) -> list[Record]:
    """Only the events that every run records, whatever functions it was asked to follow."""
    return [r for r in records if r.kind not in CALLS]


def changes_argument_aside(records: Sequence[Record], name: str) -> bool:
    """Whether a recorded function, in some call, returned something, and nothing that its arguments hold."""
    result: Any = None
    for record in records:
        if record.name != name:
            continue
        if record.kind == "returned":
            result = record.values["result"]
        elif record.kind == "after call" and (result is None or result.get("k") != "NoneType"):
            arguments = [v for k, v in record.values.items() if k.startswith("argument") and "." not in k]
            if not {*_contents(result)} & {*_contents(arguments)}:
                return True
    return False


def _contents(described: Any) -> Iterator[str]:
    """What the tensors in a description hold."""
    if isinstance(described, dict):
        if "v" in described and "t" in described:
            yield described["v"]
        else:
            yield from _contents(list(described.values()))
    elif isinstance(described, list):
        for item in described:
            yield from _contents(item)


def streams(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Events by kind and name, those that survive a change of order."""
    out: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.kind in REORDERABLE:
            out.setdefault((record.kind, record.name), []).append(record)
    return out


def any_order(records: Sequence[Record]) -> list[Record]:
    """The same events, leaves of one shape sorted by what their gradients hold."""

    def ordered(values: Any) -> Any:
        return sorted(values, key=lambda v: sum(floats(v["v"])) if "v" in v else 0.0)

    return [
        replace(r, values={k: ordered(v) if isinstance(v, list) else v for k, v in r.values.items()})
        if r.kind == "gradients"
        else r
        for r in records
    ]


def forward(records: Sequence[Record]) -> list[Record]:
    """What happened up to the first backward, results of calls left out; whether gradients are wanted says nothing."""
    end = next((i for i, r in enumerate(records) if r.kind == "backward"), len(records) - 1)
    kept = without_calls(records[: end + 1])
    return [replace(r, values=_without_grad(r.values)) for r in kept]


def _without_grad(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: (False if k == "g" and "t" in value else _without_grad(v)) for k, v in value.items()}
    return [_without_grad(item) for item in value] if isinstance(value, list) else value


def floats(text: str) -> array[float]:
    """The numbers of a description."""
    return array("d", base64.b64decode(text))


def _load(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                data = json.loads(line)
            except ValueError:
                return  # the process was killed while it wrote
            yield Record(data["e"], data["n"], data["v"], data["soft"], data.get("at"))
