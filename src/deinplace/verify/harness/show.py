"""The harnesses of a project as plain source, for its owner to keep."""

from __future__ import annotations

from collections.abc import Mapping

from deinplace.analysis.source import Source
from deinplace.verify.harness import rungs
from deinplace.verify.harness.model import Harness, Target
from deinplace.verify.harness.rest import Rest
from deinplace.verify.mend import Options


def shown(sources: Mapping[str, Source], options: Options, cwd: str, python: str | None, timeout: float) -> str:
    """Every harness of every rung for the functions with faults, those with `--all` for every function that writes.

    Nothing of the user's runs, but for the search of the last rung.
    """
    wanted = Rest(sources, options).unreached(())
    chosen = rungs.interpreter(python)
    parts: list[str] = []
    for rung in rungs.all_rungs(sources, cwd, timeout / 3):
        if (rung.needs_targets and not wanted) or chosen is None:
            continue
        found, misses = rung.harnesses(wanted, chosen)
        parts += [_source(harness, wanted) for harness in found]
        parts += [f"# {miss.harness.title}: none, {miss.reason}\n" for miss in misses]
    if not parts:
        return "# no harness: no program among the files, and no fault that one could show\n"
    return "\n\n".join(parts)


def _source(harness: Harness, wanted: tuple[Target, ...]) -> str:
    """One harness, headed by how it is run and by what it is for."""
    names = [name for target in harness.exercises if target in wanted and (name := target[1])]
    what = f"  # for {', '.join(dict.fromkeys(names))}" if names else ""
    head = f"# {harness.rung}: {harness.title}; from {harness.root}{what}\n"
    if harness.command:
        return f"{head}#   {' '.join(harness.command)}\n"
    return f"{head}{harness.text}"
