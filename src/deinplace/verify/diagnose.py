"""`run`: watch a program once, with its own input and output, and say what overwrote what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from deinplace.analysis.source import Source
from deinplace.files import load
from deinplace.model import Finding, Outcome, Problem
from deinplace.rules.base import Incident, Project
from deinplace.verify import incidents, wording
from deinplace.verify.drivers import Driver, DriverError, Laboratory, Settings
from deinplace.verify.groups import group
from deinplace.verify.search import Choice
from deinplace.verify.texts import settings_files


def diagnose(driver: Driver, roots: tuple[str, ...]) -> Outcome:
    """Run the program once under the probe. Its standard streams are its own.

    Raises:
        DriverError: it cannot be started, or the probe could not attach.
    """
    with Laboratory() as lab:
        run = lab.run(driver, Settings(watch=True), live=True)
    if not run.attached:
        raise DriverError(f"{driver.title!r}: could not attach the probe; is Python started with -I, -E or -S?")
    found = incidents.incidents(run)
    project = Project(sources_of(found, roots), texts=settings_files(driver.cwd))
    findings = explained(found, project)
    notes = incidents.notes(run)
    problems: tuple[Problem, ...] = ()
    if run.exit_code is None:
        problems = (Problem("", f"the program did not end within {driver.timeout:g} s", code="timeout"),)
    elif run.exit_code < 0:
        how = incidents.way_out(run.exit_code)
        problems = (
            Problem("", f"the program was {how}; what came after its last backward is not known", code="killed"),
        )
    elif not run.torch:
        notes.append("the program never imported torch")
    elif not run.total("backwards"):
        notes.append("the program never reached a backward pass")
    return Outcome(
        "run", tuple(findings), (), problems, tuple(notes), None,
        runs=1, driver=driver.title, driver_exit=run.exit_code, files=len(project.sources),
    )  # fmt: skip


def explained(found: Iterable[Incident], project: Project) -> list[Finding]:
    """Findings for what a run showed, each with the first rewrite on offer; none is tried."""
    findings: list[Finding] = []
    for each in group(found, project, None):
        choice = Choice(each, None, (), "diagnosed")
        findings += wording.findings(choice, project, None, False, None)
    return findings


def sources_of(found: tuple[Incident, ...], roots: tuple[str, ...]) -> Mapping[str, Source]:
    """The files of the incidents that lie below a root, so that rules can say what to do there."""
    out: dict[str, Source] = {}
    for incident in found:
        for place in _all_places(incident):
            path = Path(place)
            if place in out or not any(path.is_relative_to(root) for root in roots) or "site-packages" in path.parts:
                continue
            out |= load((place,))[0]
    return out


def _all_places(incident: Incident) -> set[str]:
    if incident.raised is not None:
        return {p.path for p in incident.raised.stack}
    conflict = incident.conflict
    assert conflict is not None
    stacks = [conflict.save.stack, *(w.stack for w in conflict.writes)]
    modules = [w.module for w in conflict.writes if w.module is not None]
    stacks += [m.constructed for m in modules] + [m.flagged for m in modules]
    return {p.path for stack in stacks for p in stack}
