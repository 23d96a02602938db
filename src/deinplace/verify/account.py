"""Reads what the probe wrote into the records of `deinplace.model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deinplace.model import Conflict, Event, ModuleInfo, Place, Raised, Span, TensorInfo

Data = Mapping[str, Any]


def conflict(data: Data) -> Conflict:
    """One conflict of a process's account."""
    return Conflict(
        kind=data["kind"],
        save=event(data["save"]),
        writes=tuple(event(w) for w in data["writes"]),
        node=data["node"],
        backward=places(data["backward"]),
        disjoint=data["disjoint"],
        count=data["count"],
    )


def raised(data: Data) -> Raised:
    """One error of the in-place family that autograd raised at once."""
    return Raised(
        category=data["category"],
        message=data["message"],
        stack=places(data["stack"]),
        op=data.get("op", ""),
        module=module(data.get("module")),
        tensor=tensor(data.get("tensor")),
        names=tuple(data.get("names", ())),
    )


def event(data: Data) -> Event:
    """A write or a save."""
    return Event(
        op=data["op"],
        stack=places(data["stack"]),
        tensor=tensor(data.get("tensor")),
        module=module(data.get("module")),
        optimizer=data.get("optimizer"),
        role=data.get("role", ""),
        expressions=tuple(Span(*span) for span in data.get("expressions", ())),
        names=tuple(data.get("names", ())),
        views=tuple(data.get("views", ())),
    )


def module(data: Data | None) -> ModuleInfo | None:
    """The layer in which an event happened."""
    if data is None:
        return None
    return ModuleInfo(data["cls"], data["name"], data["inplace"], places(data["constructed"]), places(data["flagged"]))


def tensor(data: Data | None) -> TensorInfo | None:
    """Shape, dtype, device."""
    return None if data is None else TensorInfo(tuple(data["shape"]), data["dtype"], data["device"])


def places(data: list[Data]) -> tuple[Place, ...]:
    """A stack."""
    return tuple(Place(p["path"], Span(*p["span"]), p["function"]) for p in data)


def merged(conflicts: list[Conflict]) -> tuple[Conflict, ...]:
    """Conflicts between the same two lines as one, with their counts added; order of first appearance."""
    table: dict[object, Conflict] = {}
    for item in conflicts:
        key = (item.kind, item.node, item.save.place, _where(item.write))
        known = table.get(key)
        if known is None:
            table[key] = item
            continue
        table[key] = Conflict(
            known.kind, known.save, known.writes, known.node, known.backward,
            known.disjoint and item.disjoint, known.count + item.count,
        )  # fmt: skip
    return tuple(table.values())


def _where(write: Event) -> object:
    """What identifies the write: the flag's place for a layer, else the line."""
    if write.module is not None and (write.module.flagged or write.module.constructed):
        return (write.module.flagged or write.module.constructed)[0]
    return write.place
