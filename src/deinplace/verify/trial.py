"""Tries a set of rewrites: puts them into an overlay, runs the program, and compares what it saw with the oracle."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from deinplace.analysis.source import Source, SourceError
from deinplace.model import Place, Rewrite
from deinplace.rewrite.apply import CheckError, OverlapError, patched
from deinplace.rules import rule
from deinplace.rules.base import Incident
from deinplace.verify import incidents
from deinplace.verify.cost import Thrift, Usage, usage
from deinplace.verify.drivers import Driver, Laboratory, Run, Settings
from deinplace.verify.recording import Comparison, Difference, compare, noise_floor


@dataclass(frozen=True)
class Result:
    """What came of a trial. `equal`: the run saw what the oracle saw. `ended`: it came to its end without help."""

    equal: bool
    ended: bool
    reason: str
    comparison: Comparison | None = None
    left: tuple[Incident, ...] = ()
    stale: tuple[Difference, ...] = ()
    """Values that a call left behind unlike the original, and that something read afterwards."""
    files: Mapping[str, Source] = field(default_factory=dict)
    """The changed files that ran."""
    usage: Usage | None = None
    """What it cost."""


@dataclass
class Bench:
    """The program, the sources as they are meanwhile, and the oracle to compare with."""

    lab: Laboratory
    driver: Driver
    originals: Mapping[str, Source]
    oracle: Run | None
    """The run whose recording counts as right; None where there is none, and the patch has to run to its end only."""
    noise: Comparison
    functions: Mapping[str, tuple[str, ...]]
    emulate: Mapping[str, object] | None = None
    max_runs: int = 40
    current: dict[str, Source] = field(default_factory=dict)
    known: dict[object, Result] = field(default_factory=dict)
    reordered: bool = False
    """True once an accepted rewrite has moved steps or backward calls."""
    stirred: bool = False
    """True once it is known what hangs on the addresses of objects."""
    thrift: Thrift = field(init=False)

    def __post_init__(self) -> None:
        self.thrift = Thrift(usage(self.oracle) if self.oracle is not None else None)

    def spent(self) -> bool:
        """True where no further run is allowed."""
        return self.lab.count >= self.max_runs

    def patched(self, rewrites: Iterable[Rewrite]) -> dict[str, Source]:
        """The changed files after `rewrites` on top of the current sources.

        Raises:
            OverlapError, CheckError: the rewrites collide, or the result must not be written.
        """
        after = patched(self.current, rewrites)
        return {path: source for path, source in after.items() if source is not self.originals[path]}

    def run(self, rewrites: Iterable[Rewrite], watch: bool) -> Result:
        """Run with `rewrites` applied; with `watch` under copy-on-write, which shows the conflicts that are left."""
        chosen = tuple(rewrites)
        key = (watch, tuple(sorted({(e.path, e.start, e.end, e.new) for r in chosen for e in r.edits})), self._stamp())
        if key not in self.known:
            self.known[key] = self._run(chosen, watch)
        return self.known[key]

    def _stamp(self) -> int:
        return hash(tuple(sorted((path, source.text) for path, source in self.current.items())))

    def _run(self, rewrites: tuple[Rewrite, ...], watch: bool) -> Result:
        try:
            files = self.patched(rewrites)
        except (OverlapError, CheckError, SourceError) as error:
            return Result(False, False, str(error))
        if self.spent():
            return Result(False, False, f"not tried: {self.max_runs} runs are used up (--max-runs)")
        settings = Settings(
            watch=watch,
            record=True,
            overlay={path: source.encode(source.text) for path, source in files.items()},
            functions=self.functions,
            emulate=self.emulate if watch else None,
        )
        run = self.lab.run(self.driver, settings)
        if run.exit_code != 0:
            why = "it does not end in time" if run.exit_code is None else incidents.last_words(run)
            return Result(False, False, why, left=incidents.incidents(run), files=files)
        left = incidents.incidents(run) if watch else ()
        if self.oracle is None or any(rule(r.rule).changes_gradients for r in rewrites):
            return Result(True, True, "", None, left, files=files, usage=usage(run))
        reordered = self.reordered or any(rule(r.rule).reorders for r in rewrites)
        comparison = compare(self.oracle, run, self.noise, reordered)
        if comparison.hard and self._stirred():
            comparison = compare(self.oracle, run, self.noise, reordered)
        if comparison.hard:
            leftover = all(d.kind == "end" for d in comparison.hard) and any(r.keeps_source for r in rewrites)
            if not leftover:
                return Result(False, True, str(comparison.hard[0]), comparison, left, files=files)
        stale = self._stale(settings, comparison) if comparison.soft else ()
        if stale:
            return Result(False, True, f"{stale[0]}, and it is read afterwards", comparison, left, stale, files)
        return Result(True, True, "", comparison, left, files=files, usage=usage(run))

    def _stirred(self) -> bool:
        """Before the first refutation: see whether the original itself changes where memory is laid out otherwise.

        Only programs that use sets, or ask for identities, can.
        """
        if self.stirred or self.oracle is None or self.spent():
            return False
        self.stirred = True
        if not any(orders_by_address(source.tree) for source in self.originals.values()):
            return False
        settings = Settings(watch=True, record=True, functions=self.functions, emulate=self.emulate, stir=True)
        self.noise.widen(noise_floor(self.oracle, self.lab.run(self.driver, settings)))
        return True

    def _stale(self, settings: Settings, comparison: Comparison) -> tuple[Difference, ...]:
        """Of the values that calls left behind unlike the original: those that something reads later."""
        if self.spent():
            return tuple(comparison.soft)
        marks = tuple((d.name, d.call, d.label) for d in comparison.soft)
        run = self.lab.run(self.driver, replace(settings, watch=False, emulate=None, stale=marks))
        if run.exit_code != 0:  # needs copy-on-write to get this far
            run = self.lab.run(self.driver, replace(settings, stale=marks))
        read = {tuple(entry["mark"]): entry for entry in run.gather("stale")}
        return tuple(
            replace(d, message=f"{d.message}, read at {_brief(read[(d.name, d.call, d.label)])}")
            for d in comparison.soft
            if (d.name, d.call, d.label) in read
        )


def orders_by_address(tree: ast.Module) -> bool:
    """Whether code makes sets, whose order hangs on addresses where their items have no hash of their own, or asks for
    identities."""
    makers = ("set", "frozenset", "WeakSet", "id", "hash")
    return any(
        isinstance(node, ast.Set | ast.SetComp)
        or (isinstance(node, ast.Call) and ast.unparse(node.func).rsplit(".", 1)[-1] in makers)
        for node in ast.walk(tree)
    )


def _brief(entry: Mapping[str, object]) -> str:
    from deinplace.verify.account import places

    stack: tuple[Place, ...] = places(entry["stack"])  # type: ignore[arg-type]
    return f"{stack[0].path.rsplit('/', 1)[-1]}:{stack[0].span.line}" if stack else "a line inside torch"
