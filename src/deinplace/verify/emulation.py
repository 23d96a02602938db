"""Gets an oracle where autograd refuses a write at once: the probe carries the write out as it was meant."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deinplace.model import Raised
from deinplace.rules import rule
from deinplace.rules.base import Incident, Project
from deinplace.verify import incidents
from deinplace.verify.drivers import Driver, DriverError, Laboratory, Run, Settings

ROUNDS = 4
_CAUSED = "second-backward"
"""What emulation may cause: a checkpoint that is run again finds another graph."""


@dataclass(frozen=True)
class Emulated:
    """The last run, the settings that it had, and every refused write that was met on the way there."""

    run: Run
    settings: dict[str, object]
    refused: tuple[Raised, ...]


def emulated(lab: Laboratory, driver: Driver, run: Run, project: Project) -> Emulated:
    """Run with refused writes emulated, until what each of them means agrees with what the rules make of it.

    The last run's exit code tells whether that worked.

    Raises:
        DriverError: the emulated run fails for a reason of its own.
    """
    intents = _intents(run, project)
    refused = list(incidents.raised(run))
    kinds = {entry.category for entry in refused}
    for _ in range(ROUNDS):
        emulate: dict[str, object] = {"intents": dict(intents), "kinds": sorted(kinds)}
        again = lab.run(driver, Settings(watch=True, record=True, emulate=emulate, sites=True))
        wanted = _intents(again, project)
        refused += [entry for entry in incidents.raised(again) if entry.category != _CAUSED]
        met = {entry.category for entry in incidents.raised(again)}
        if met <= kinds and all(intents.get(key) == value for key, value in wanted.items()):
            break
        intents.update(wanted)
        kinds |= met
    if again.exit_code != 0 and not incidents.raised(again):
        raise DriverError(f"{driver.title!r} fails for another reason: {incidents.last_words(again)}")
    return Emulated(again, emulate, _distinct(refused))


def _distinct(refused: list[Raised]) -> tuple[Raised, ...]:
    """One for each place and category: PyTorch's own words from the first time, the rest from the last."""
    first: dict[object, Raised] = {}
    last: dict[object, Raised] = {}
    for entry in refused:
        key = (entry.category, entry.stack[:1])
        first.setdefault(key, entry)
        last[key] = entry if entry.op or key not in last else last[key]
    return tuple(replace(last[key], message=first[key].message) for key in first)


def _intents(run: Run, project: Project) -> dict[str, str]:
    """For each refused write, `path:line` and what the rules take it for."""
    found = {}
    for entry in incidents.raised(run):
        if entry.category not in ("leaf", "leaf-view") or not entry.stack:
            continue
        place = entry.stack[0]
        found[f"{place.path}:{place.span.line}"] = _intent(Incident(raised=entry), project)
    return found


def _intent(incident: Incident, project: Project) -> str:
    """What the rule for leaves makes of a refused write: an update, a buffer that is filled, or a computation."""
    leaves = rule("leaf-write")
    site = leaves.claim(incident, project)
    first = next(iter(leaves.rewrites(site, project, incident)), None) if site is not None else None
    if first is None:
        return "functional"
    return "no_grad" if any("no_grad" in edit.new for edit in first.edits) else "drop-grad"
