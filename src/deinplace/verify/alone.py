"""The user's program by itself, without the probe: a clean verdict on a program that fails would be wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from deinplace.model import Outcome, Problem
from deinplace.verify import incidents
from deinplace.verify.drivers import Driver, Laboratory, Run, Settings

CODE = "probe-differs"
"""Marks the problem that a program behaves otherwise while it is watched."""


def found_nothing(outcome: Outcome) -> bool:
    """Whether an outcome says of a program that it has no fault."""
    return not outcome.changes and not outcome.problems and all(f.severity == "note" for f in outcome.findings)


def checked(outcome: Outcome, lab: Laboratory, driver: Driver) -> Outcome:
    """An outcome without faults once the program has run by itself; where it fails so, the outcome says it.

    Raises:
        DriverError: the command cannot be started.
    """
    run = by_itself(lab, driver)
    if run.exit_code == 0:
        return replace(outcome, runs=lab.count)
    how = (
        f"does not end within {driver.timeout:g} s"
        if run.exit_code is None
        else f"fails ({incidents.way_out(run.exit_code)}: {incidents.last_words(run)})"
    )
    message = f"{driver.title!r} {how} when it runs by itself, and not while it is watched: no fault was found"
    return replace(outcome, problems=(Problem("", message, code=CODE),), runs=lab.count)


def fails_only_watched(lab: Laboratory, driver: Driver, watched: Run | None, files: int) -> Outcome | None:
    """What to say of a program that fails while it is watched, for a reason of its own; None where it always does.

    Raises:
        DriverError: the command cannot be started.
    """
    failed = watched is not None and watched.attached and watched.exit_code not in (0, None)
    if watched is None or not failed or incidents.raised(watched) or by_itself(lab, driver).exit_code != 0:
        return None
    message = (
        f"{driver.title!r} runs to its end by itself, and fails while it is watched ({incidents.last_words(watched)}): "
        "nothing can be said of it"
    )
    return Outcome("fix", problems=(Problem("", message, code=CODE),), runs=lab.count, driver=driver.title, files=files)


def by_itself(lab: Laboratory, driver: Driver) -> Run:
    """One run without the probe; with as little of it as will do where the driver needs it.

    A limit of steps, notebooks and folders that stand for others are the probe's doing.
    """
    if driver.max_steps or driver.texts or driver.copies:
        return lab.run(driver, Settings())
    lab.count += 1
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if driver.python is not None:
        env["PATH"] = str(Path(driver.python).absolute().parent) + os.pathsep + env.get("PATH", "")
    return lab.bare(driver, env)
