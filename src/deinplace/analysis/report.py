"""What an abstract run was seen to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from deinplace.analysis.machine import Machine
from deinplace.analysis.records import Save, Write
from deinplace.model import Span

Unit = tuple[str, str]
"""(path, qualified name): a function on its own, or `<module>` for a program."""


@dataclass(frozen=True)
class Hit:
    """A write that destroys a save, and whether a backward pass that needs it is known to follow."""

    write: Write
    save: Save
    sure: bool
    unit: Unit


@dataclass
class Report:
    """What abstract runs found out."""

    hits: list[Hit] = field(default_factory=list)
    writes: dict[Unit, list[Write]] = field(default_factory=dict)
    traces: dict[Unit, list[tuple[object, ...]]] = field(default_factory=dict)
    others: dict[tuple[str, Span], str] = field(default_factory=dict)
    """What was seen at places that write something else than a tensor: `list`, or `list or unknown`."""
    flags: dict[tuple[str, Span], str] = field(default_factory=dict)
    """Modules of torch's own that were told to work in place, by the calls that led to their construction."""
    incomplete: dict[Unit, str] = field(default_factory=dict)
    notes: dict[Unit, frozenset[str]] = field(default_factory=dict)
    ran: dict[Unit, frozenset[Unit]] = field(default_factory=dict)
    """The functions that each unit entered."""
    failed: dict[str, str] = field(default_factory=dict)
    """Files whose functions could not be run, and why."""


Refine = Callable[[Report], Report]
"""Adds to a report what others than the analysis know, such as type checkers."""


def merge_part(machine: Machine, report: Report, path: str, part: Report | str) -> None:
    """Take in what another process found out, as if it had been found here."""
    if isinstance(part, str):
        report.failed[path] = part
        return
    report.hits += part.hits
    report.writes |= part.writes
    report.incomplete |= part.incomplete
    report.notes |= part.notes
    for key, words in part.others.items():
        if key not in machine.visited or "unknown" not in words:
            machine.visited[key] = words
    machine.flags |= part.flags


def hits_of(machine: Machine, unit: Unit) -> list[Hit]:
    """Pairs of write and save; sure where a backward pass after the write reaches the operation that saved."""
    out: list[Hit] = []
    closures: list[tuple[int, frozenset[int]]] = []
    for nodes, time in machine.sinks:
        closures.append((time, machine.behind(nodes)))
    for write in machine.writes:
        for numbers, certain in ((write.hits, True), (write.maybe, False)):
            for number in numbers:
                save = machine.saves[number]
                if any(time > write.time and save.node in reach for time, reach in closures):
                    out.append(Hit(write, save, certain, unit))
    return out
