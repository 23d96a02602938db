"""More oracles where autograd refuses a write at once: they say whether the mended program is what was meant.

- forward under `no_grad`: there the original is refused nothing, and has to call backward on the same values; together
  with `gradcheck`, which holds the gradients of the changed functions against finite differences in float64;
- the original on cloned inputs: what is no leaf, no view and no expanded memory may be written to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deinplace.analysis.source import Source
from deinplace.model import Raised, Rewrite
from deinplace.verify.broad import lines_that_wrote
from deinplace.verify.drivers import Driver, Laboratory, Run, Settings
from deinplace.verify.incidents import by_path
from deinplace.verify.recording import Comparison, compare, compare_forward

FORWARD = "forward under no_grad"
CHECKED = f"{FORWARD} with gradcheck in float64"
CLONED = "the original on cloned inputs"
Functions = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Attested:
    """Oracles that agree with the mended program, and what others say against it."""

    agree: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    compared: Comparison | None = None
    """What was compared with the oracle that gives gradients of the whole program, where there is one."""

    @property
    def proves(self) -> bool:
        """True where values and gradients are both known to be right, and nothing speaks against it."""
        return not self.against and bool({CHECKED, CLONED} & set(self.agree))


@dataclass(frozen=True)
class Witnesses:
    """Asks the oracles about one mended program."""

    lab: Laboratory
    driver: Driver
    refused: Sequence[Raised]
    noise: Comparison
    reordered: bool = False

    def ask(self, texts: Mapping[str, bytes], functions: Functions) -> Attested:
        """What they say of patched `texts`, whose changed functions are named."""
        names = [f"{path}:{name}" for path, own in functions.items() for name in own]
        check = {"check": names}
        mended = self.lab.run(
            self.driver, Settings(record=True, overlay=texts, functions=functions, attest=check if names else None)
        )
        if mended.exit_code != 0:
            return Attested()
        agree: list[str] = []
        against: list[str] = []
        self._forward(mended, functions, agree, against)
        compared = self._cloned(mended, agree)
        return Attested(tuple(agree), tuple(against), compared)

    def _forward(self, mended: Run, functions: Functions, agree: list[str], against: list[str]) -> None:
        run = self.lab.run(self.driver, Settings(watch=True, record=True, sites=True, attest={"forward": True}))
        ran = lines_that_wrote(run)
        places = [r.stack[0] for r in self.refused if r.stack]
        if run.exit_code != 0 or not all((p.path, p.span.line) in ran for p in places) or not run.total("backwards"):
            return
        found = compare_forward(run, mended, self.noise)
        if found.hard:
            against.append(f"{FORWARD} the original computes something else: {found.hard[0]}")
        told = mended.gather("attest")
        wrong = next((t for t in told if t["status"] == "differs"), None)
        if wrong is not None:
            against.append(f"gradcheck in float64, {wrong['name'].rsplit('/', 1)[-1]}: {wrong['why']}")
        checked = {t["name"] for t in told if t["status"] == "agrees"}
        wanted = {f"{path}:{name}" for path, own in functions.items() for name in own}
        if not found.hard:
            agree.append(CHECKED if wanted and wanted <= checked else FORWARD)

    def _cloned(self, mended: Run, agree: list[str]) -> Comparison | None:
        """The original, with functions that hold a refused write called on clones; a program of its own where callers
        read what such a function writes, so that it only ever speaks for a rewrite."""
        functions = _functions_of(self.refused)
        names = [f"{path}:{name}" for path, own in functions.items() for name in own]
        if not names:
            return None
        run = self.lab.run(self.driver, Settings(record=True, functions=functions, attest={"clone": names}))
        if run.exit_code != 0:
            return None
        found = compare(run, mended, self.noise, self.reordered, calls=False)
        if found.hard or not found.gradients:
            return None
        agree.append(CLONED)
        return found


def _functions_of(refused: Iterable[Raised]) -> dict[str, tuple[str, ...]]:
    places = (place for entry in refused for place in entry.stack[:1])
    return by_path((p.path, p.function) for p in places if "<" not in p.function)


def functions_changed(rewrites: Iterable[Rewrite], sources: Mapping[str, Source]) -> dict[str, tuple[str, ...]]:
    """Functions that rewrites touch, by path."""
    touched = (pair for rewrite in rewrites for pair in rewrite.touches)
    return by_path((path, name) for path, name in touched if path in sources and "<" not in name)


def named(known: str, others: Sequence[str]) -> str:
    """An oracle's name, with those that agree with it."""
    if not others:
        return known
    return f"{known}, and {' and '.join(others)}: {'both' if len(others) == 1 else 'all'} agree"
