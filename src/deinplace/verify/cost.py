"""What rewrites cost: memory and time of two runs side by side, and the search for cheaper alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deinplace.model import Memory, Rewrite
from deinplace.verify.drivers import Run

ALTERNATIVES = 4
"""So many runs at most look for a cheaper alternative to rewrites that are confirmed already."""
LEAST = 1 << 20
"""Bytes, and part of what the original holds, below which no cheaper alternative is looked for."""
PART = 0.05


@dataclass(frozen=True)
class Usage:
    """What the processes of one run cost, together. `watched`: the run was slowed down by the probe."""

    peak: int
    kept: int | None
    seconds: float | None
    watched: bool


def usage(run: Run) -> Usage | None:
    """The costs of a run; None where no process reached a backward."""
    found = [p.account["costs"] for p in run.processes if p.account.get("costs")]
    if not found:
        return None
    kept = [entry["kept"] for entry in found]
    seconds = [entry["seconds"] for entry in found if entry["seconds"] is not None]
    return Usage(
        sum(entry["peak"] for entry in found),
        None if None in kept else sum(kept),
        max(seconds, default=None),
        any(entry["watched"] for entry in found),
    )


def memory(before: Usage | None, after: Usage | None, rewrites: int = 1) -> Memory | None:
    """Both side by side, or None where one is not known."""
    if before is None or after is None:
        return None
    alike = before.watched == after.watched
    return Memory(
        before.peak, after.peak, before.kept, after.kept, rewrites,
        before.seconds if alike else None, after.seconds if alike else None,
    )  # fmt: skip


def material(before: Usage | None) -> float:
    """Bytes from which on a cost is worth looking for something cheaper."""
    return max(LEAST, PART * before.peak) if before is not None else float("inf")


@dataclass
class Thrift:
    """Looks for cheaper alternatives, within a number of runs that all groups share."""

    before: Usage | None
    left: int = ALTERNATIVES

    def cheaper(
        self, chosen: Rewrite, now: Usage | None, others: Sequence[Rewrite], run: Callable[[Rewrite], Usage | None]
    ) -> Rewrite:
        """The cheapest of `chosen` and those of `others` that hold; `run` gives the usage of one that does."""
        least = material(self.before)
        best, peak = chosen, now.peak if now is not None else 0
        for other in others:
            if self.before is None or self.left <= 0 or peak - self.before.peak < least:
                break
            if other.costly and not best.costly:
                continue
            self.left -= 1
            found = run(other)
            if found is not None and peak - found.peak >= least:
                best, peak = other, found.peak
        return best
