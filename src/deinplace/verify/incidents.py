"""What a run showed that needs mending: conflicts, and errors that autograd raised at once."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from deinplace.model import Conflict, Event, Place, Raised
from deinplace.probe.errors import classify
from deinplace.rules.base import Incident
from deinplace.verify import account
from deinplace.verify.drivers import Driver, DriverError, Run


def conflicts(run: Run) -> tuple[Conflict, ...]:
    """The run's conflicts, one for each pair of lines."""
    return account.merged([account.conflict(c) for c in run.gather("conflicts")])


def raised(run: Run) -> tuple[Raised, ...]:
    """Errors of the in-place family, those that ended the program included; one for each place and category."""
    found = {(r.category, r.stack[:1]): r for r in map(account.raised, run.gather("raised"))}
    failure = run.failure
    if failure is not None:
        category = classify(failure["message"])
        if category is not None:
            entry = Raised(category, failure["message"], account.places(failure["stack"]))
            found.setdefault((category, entry.stack[:1]), entry)
    return tuple(found.values())


def incidents(run: Run) -> tuple[Incident, ...]:
    """Everything to look into."""
    return (*(Incident(conflict=c) for c in conflicts(run)), *(Incident(raised=r) for r in raised(run)))


def require_usable(run: Run, driver: Driver, need_backward: bool) -> None:
    """Refuse a run that cannot serve as a driver.

    Raises:
        DriverError: not attached, no torch, out of time, failed for a reason of its own, or never reached backward.
    """
    if not run.attached:
        raise DriverError(
            f"{driver.title!r}: could not attach the probe; is Python started with -I, -E or -S, or not at all?"
        )
    if run.exit_code is None:
        hint = "raise --timeout, or let --max-steps N stop it after N optimizer steps"
        raise DriverError(f"{driver.title!r} did not end within {driver.timeout:g} s; {hint}")
    if run.exit_code != 0 and not raised(run):
        reason = f"{driver.title!r} fails for another reason ({way_out(run.exit_code)}): {last_words(run)}"
        raise DriverError(reason, detail=run.stderr)
    if not run.torch:
        raise DriverError(f"{driver.title!r} never imports torch")
    if need_backward and not run.total("backwards") and not raised(run):
        raise DriverError(f"{driver.title!r} never reaches a backward pass: there is nothing to prove")


def way_out(code: int) -> str:
    """How a program ended, by its exit code: signals are named."""
    if code >= 0:
        return f"exit {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"ended by {name}" + (", as where memory runs out" if name == "SIGKILL" else "")


def last_words(run: Run) -> str:
    """The line that says why a program failed."""
    failure = run.failure
    if failure is not None:
        text = str(failure["message"]).strip().splitlines()
        stack = account.places(failure["stack"])
        where = f" ({stack[0].path}:{stack[0].span.line})" if stack else ""
        return f"{failure['type']}: {text[0] if text else ''}{where}"
    lines = (run.stderr.strip() or run.stdout.strip()).splitlines()
    return lines[-1].strip() if lines else "no output"


def notes(run: Run) -> list[str]:
    """What a user has to know of how the program was watched."""
    compiled = any(p.account.get("compiled") for p in run.processes)
    more = ["code under torch.compile ran eagerly while it was watched"] if compiled else []
    return [*sorted(set(run.gather("notes"))), *more]


def lines_of(found: Iterable[Incident]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Lines for the probe's closer look: those that save and those that write."""
    saves: dict[tuple[str, int], None] = {}
    writes: dict[tuple[str, int], None] = {}
    for incident in found:
        if incident.conflict is not None:
            for place in incident.conflict.save.stack[:1]:
                saves[(place.path, place.span.line)] = None
            for write in incident.conflict.writes:
                for place in write.stack[:1]:
                    writes[(place.path, place.span.line)] = None
    return {"saves": tuple(saves), "writes": tuple(writes)}


def functions_of(found: Iterable[Incident], editable: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Functions that hold a line of an incident, by editable file: those whose results a rewrite may change."""
    mine = set(editable)
    places = (place for incident in found for place in places_of(incident) if place.path in mine)
    return by_path((p.path, _named(p.function)) for p in places if is_function(p.function))


def by_path(found: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Functions by file, each once, from pairs of a path and a qualified name; the top level and lambdas left out."""
    names: dict[str, dict[str, None]] = {}
    for path, name in found:
        if is_function(name):
            names.setdefault(path, {})[name] = None
    return {path: tuple(functions) for path, functions in names.items()}


def is_function(name: str) -> bool:
    """True where a qualified name is that of a function whose calls can be recorded."""
    return bool(name) and name != "<module>" and "<lambda>" not in name


def places_of(incident: Incident) -> tuple[Place, ...]:
    """The innermost places of an incident."""
    if incident.raised is not None:
        return incident.raised.stack[:2]
    assert incident.conflict is not None
    events: tuple[Event, ...] = (incident.conflict.save, *incident.conflict.writes)
    return tuple(place for event in events for place in event.stack[:2])


def written_at(incident: Incident) -> tuple[Place, ...]:
    """The innermost places of an incident's write."""
    if incident.raised is not None:
        return incident.raised.stack[:1]
    assert incident.conflict is not None
    return incident.conflict.write.stack[:1]


def _named(function: str) -> str:
    """The function around comprehensions."""
    for part in (".<locals>.<listcomp>", ".<locals>.<genexpr>", ".<locals>.<dictcomp>", ".<locals>.<setcomp>"):
        function = function.split(part)[0]
    return function
