"""`audit`: every in-place write that ran, whether it does harm, what it saves; and where one more would be safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deinplace.analysis.source import Source
from deinplace.model import ModuleInfo, Place
from deinplace.rules.base import Project
from deinplace.verify import account, incidents
from deinplace.verify.drivers import Driver, Laboratory, Run, Settings
from deinplace.verify.emulation import emulated

Standing = Literal["needed", "safe", "possible"]


@dataclass(frozen=True)
class Row:
    """One line and operation. `bytes` is what one execution saves, or would save, at most.

    `needed`: backward needs what this writes, so it has to be out of place; `safe`: it does no harm, and saves memory;
    `possible`: it is out of place, and in this run it could have been in place.
    """

    standing: Standing
    place: Place
    operation: str
    bytes: int
    count: int
    why: str = ""
    module: ModuleInfo | None = None


@dataclass(frozen=True)
class Audit:
    """What one run showed of some files."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    driver: str
    runs: int

    def of(self, standing: Standing) -> tuple[Row, ...]:
        """The rows of one standing, those that save most first."""
        return tuple(sorted((r for r in self.rows if r.standing == standing), key=lambda r: (-r.bytes, r.place)))


def audit(driver: Driver, sources: Mapping[str, Source], progress: Callable[[str], None]) -> Audit:
    """Run the program under the probe, and look at each operation in `sources`.

    Raises:
        DriverError: the program cannot serve (see `incidents.require_usable`).
    """
    settings = Settings(watch=True, audit=True)
    with Laboratory() as lab:
        progress("running the program under the probe")
        run = lab.run(driver, settings)
        incidents.require_usable(run, driver, need_backward=True)
        refused = incidents.raised(run)
        if run.exit_code != 0:
            progress("emulating the writes that autograd refuses")
            result = emulated(lab, driver, run, Project(sources))
            refused = result.refused
            run = lab.run(driver, Settings(watch=True, audit=True, emulate=result.settings))
            incidents.require_usable(run, driver, need_backward=False)
        runs = lab.count
    harmful = _harmful(run)
    harmful |= {(entry.stack[0].path, entry.stack[0].span.line): entry.category for entry in refused if entry.stack}
    found = [row for row in _rows(run, harmful) if row.place.path in sources]
    return Audit(tuple(_merged(found)), tuple(incidents.notes(run)), driver.title, runs)


def _harmful(run: Run) -> dict[tuple[str, int], str]:
    """Lines whose writes destroy what backward needs, and what that is."""
    out = {}
    for conflict in incidents.conflicts(run):
        save = conflict.save.place
        at = f" (line {save.span.line} of {save.path.rsplit('/', 1)[-1]})" if save is not None else ""
        for write in conflict.writes[:1]:
            if write.place is not None:
                out[write.place.path, write.place.span.line] = f"backward of {conflict.node} needs it{at}"
    return out


def _rows(run: Run, harmful: Mapping[tuple[str, int], str]) -> Iterable[Row]:
    """A row for each site; what could be in place for one caller of a function only is left out."""
    entries = [(entry, account.places(entry["stack"])[0]) for entry in run.gather("audit")]
    forbidden = {(place, entry["op"]) for entry, place in entries if entry["why"]}
    for entry, place in entries:
        why = harmful.get((place.path, place.span.line), "")
        if entry["writes"]:
            yield _row("needed" if why else "safe", entry, place, why)
        elif (place, entry["op"]) not in forbidden:
            yield _row("possible", entry, place, "nothing saved, not read again")


def _row(standing: Standing, entry: Mapping[str, Any], place: Place, why: str) -> Row:
    module = account.module(entry["module"])
    operation = entry["op"].split("::", 1)[-1].split(".")[0]
    return Row(standing, place, operation, entry["bytes"], entry["count"], why, module)


def _merged(rows: Iterable[Row]) -> Iterable[Row]:
    """One row for each line and operation: calls from different lines, and processes, are added up."""
    table: dict[object, Row] = {}
    for row in rows:
        key = (row.standing, row.place, row.operation)
        known = table.get(key)
        if known is None:
            table[key] = row
            continue
        table[key] = Row(
            row.standing, row.place, row.operation, max(row.bytes, known.bytes), row.count + known.count,
            row.why, row.module,
        )  # fmt: skip
    return table.values()
