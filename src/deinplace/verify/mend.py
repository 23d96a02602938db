"""`fix` with a driver: find the conflicts of a run, choose rewrites, and prove them by running again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from deinplace.analysis.report import Refine
from deinplace.analysis.source import Source
from deinplace.model import FileChange, ModeVerdict, Outcome, Raised, Verdict
from deinplace.rules import rule
from deinplace.rules.base import Incident, Project
from deinplace.verify import alone, incidents, wording
from deinplace.verify.attest import Attested, Witnesses, functions_changed, named
from deinplace.verify.broad import Broad, lines_that_wrote, with_functions_at
from deinplace.verify.cost import memory
from deinplace.verify.drivers import Driver, DriverError, Laboratory, Run, Settings
from deinplace.verify.groups import group
from deinplace.verify.lines import back, moved
from deinplace.verify.recording import Comparison, compare, noise_floor
from deinplace.verify.search import Choice, Search, shape
from deinplace.verify.texts import settings_files
from deinplace.verify.trial import Bench, Result

WITNESSES = 3
"""Runs that more oracles take."""
PASSES = 5
"""Rewrites may uncover what the first error hid; after so many rounds the rest is reported."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What `fix` may do. `select` None means every rule."""

    all_sites: bool = False
    unsafe: bool = False
    select: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    max_runs: int = 40
    verify: str = "auto"
    modes: tuple[str, ...] = ()
    """Names of `verify.modes.MODES`: repeat the comparison in these, too."""
    device: str | None = None
    """Repeat it with new tensors on this device, such as `cuda`."""
    refine: Refine | None = None
    """Puts into a report of the analysis what type checkers say."""

    def allows(self) -> frozenset[str] | None:
        """Codes of the rules that may rewrite, or None for all."""
        from deinplace.rules import all_rules

        if self.select is None and not self.ignore:
            return None
        chosen = self.select if self.select is not None else frozenset(r.code for r in all_rules())
        return chosen - self.ignore


def mend(driver: Driver | None, sources: Mapping[str, Source], options: Options, progress: Progress) -> Outcome:
    """Find and prove rewrites; nothing is written.

    Raises:
        DriverError: the driver cannot serve (see `incidents.require_usable`).
    """
    if driver is None:
        from deinplace.verify.static import fix_statically

        return fix_statically(sources, options)
    with Laboratory() as lab:
        mender = Mender(lab, driver, sources, options, progress)
        try:
            outcome = mender.mend()
        except DriverError:
            said = alone.fails_only_watched(lab, driver, mender.watched, len(sources))
            if said is None:
                raise
            return said
        if not alone.found_nothing(outcome):
            return outcome
        progress("running the program by itself")
        return alone.checked(outcome, lab, driver)


class ContradictionError(Exception):
    """A driver saw something else in files that other drivers had mended."""


class Mender:
    """One `fix` run. `start` holds the files as other drivers had them mended, where they have."""

    def __init__(
        self,
        lab: Laboratory,
        driver: Driver,
        sources: Mapping[str, Source],
        options: Options,
        progress: Progress,
        start: Mapping[str, Source] | None = None,
    ) -> None:
        self.lab, self.driver, self.sources = lab, driver, sources
        self.start = dict(start if start is not None else sources)
        self.options, self.progress = options, progress
        self.needs_backward = not options.all_sites
        """Whether a program without any backward has nothing to prove; its values are compared all the same."""
        self.watched: Run | None = None
        self.first: Run | None = None
        self.emulate: dict[str, object] | None = None
        self.bench: Bench | None = None
        self.texts = settings_files(driver.cwd)
        self.choices: list[Choice] = []
        self.notes: list[str] = []
        self.refused: tuple[Raised, ...] = ()
        self.ran: frozenset[tuple[str, int]] = frozenset()

    def mend(self) -> Outcome:
        """Observe, choose, prove; pass by pass until the program runs by itself or nothing helps.

        Raises:
            DriverError: the driver cannot serve.
            ContradictionError: it refutes what `start` changes.
        """
        self.progress("running the program under the probe")
        first = self.watched = self.lab.run(self.driver, Settings(watch=True, record=True, sites=True))
        self.ran = lines_that_wrote(first)
        if self.options.all_sites and first.attached and first.exit_code == 0 and not first.torch:
            self.notes.append("the program never imports torch: it has no tensors to write")
            return self._outcome(None, {})
        incidents.require_usable(first, self.driver, need_backward=self.needs_backward)
        first, self.emulate = self._past_errors(first)
        self.first = first
        self.ran |= lines_that_wrote(first)
        found = self._incidents(first)
        self.notes += incidents.notes(first)
        if not found and not self.options.all_sites:
            return self._outcome(None, {})
        if first.exit_code != 0:
            return self._without_oracle(found)
        bench = self.bench = self.compared(incidents.functions_of(found, self.sources), found)
        # a closer look may name more; that it sees nothing where the first run saw a fault would be the probe's failure
        found = (self._incidents(bench.oracle) if bench.oracle is not None else found) or found
        return self._passes(bench, found if self.start == dict(self.sources) else self._still_left(bench))

    def _still_left(self, bench: Bench) -> tuple[Incident, ...]:
        """What is left to mend in files that others have mended already."""
        held = bench.run((), watch=True)
        if not held.equal:
            raise ContradictionError(held.reason)
        return held.left

    def _past_errors(self, run: Run) -> tuple[Run, dict[str, object] | None]:
        """Where autograd refuses a write at once, run again with such writes emulated; see `emulation`."""
        from deinplace.verify.emulation import emulated

        if run.exit_code == 0:
            return run, None
        self.progress("emulating the writes that autograd refuses")
        result = emulated(self.lab, self.driver, run, Project(self.sources, texts=self.texts))
        self.refused = result.refused
        return result.run, result.settings

    def _incidents(self, run: Run) -> tuple[Incident, ...]:
        """A run's conflicts, and the writes that autograd refused before they were emulated."""
        return (*(Incident(conflict=c) for c in incidents.conflicts(run)), *(Incident(raised=r) for r in self.refused))

    def compared(self, functions: Mapping[str, tuple[str, ...]], found: tuple[Incident, ...] = ()) -> Bench:
        """Run the oracle again: it gives the noise floor, and a closer look at the lines that matter."""
        self.progress("running again: noise floor, and a closer look")
        first, emulate = self.first, self.emulate
        assert first is not None
        if self.options.all_sites:
            functions = with_functions_at(functions, self.ran, self.sources)
        settings = Settings(
            watch=True, record=True, look=incidents.lines_of(found), functions=functions, emulate=emulate
        )
        oracle = self.lab.run(self.driver, settings)
        if oracle.exit_code != 0 and functions:
            # The program looks at its own functions, and does not know them once their calls are recorded.
            functions = {}
            oracle = self.lab.run(self.driver, replace(settings, functions=functions))
        incidents.require_usable(oracle, self.driver, need_backward=False)
        return Bench(
            self.lab, self.driver, self.sources, oracle, noise_floor(first, oracle), functions, emulate,
            self.options.max_runs, dict(self.start),
        )  # fmt: skip

    def _passes(self, bench: Bench, found: tuple[Incident, ...]) -> Outcome:
        """Mend what the oracle showed; then what that uncovered; and so on."""
        last: Result | None = None
        given_up: set[object] = set()
        for _ in range(PASSES):
            project = Project(bench.current, texts=self.texts)
            groups = group(found, project, self.options.allows())
            search = Search(bench, self.options.unsafe, self.progress)
            chosen, last = search.choose(groups)
            self._keep(chosen, bench)
            given_up |= {shape(i, bench.current) for c in chosen if c.rewrite is None for i in c.group.incidents}
            rewrites = [c.rewrite for c in chosen if c.rewrite is not None]
            if not rewrites:
                break
            bench.current.update(bench.patched(rewrites))
            bench.reordered = bench.reordered or any(rule(r.rule).reorders for r in rewrites)
            if any(c.unproved for c in chosen) or any(rule(r.rule).changes_gradients for r in rewrites):
                bench.oracle = None
            if last is not None and last.ended and last.equal and not last.left:
                break
            found = bench.run((), watch=True).left
            if not found:
                last = bench.run((), watch=False)
                found = last.left
            found = tuple(i for i in found if shape(i, bench.current) not in given_up)
            if not found:
                break
        if self.options.all_sites and (last is None or last.equal):
            last = self._everywhere(bench) or last
        return self._conclude(bench, last)

    def _everywhere(self, bench: Bench) -> Result | None:
        """Rewrite the sites that no conflict comes from, too."""
        chosen, last = Broad(bench, self.ran, self.progress).choose(self.options.allows())
        self._keep(chosen, bench)
        bench.current.update(bench.patched([c.rewrite for c in chosen if c.rewrite is not None]))
        return last

    def _keep(self, chosen: Iterable[Choice], bench: Bench) -> None:
        """Remember choices for the report, in terms of the files as they are on disk."""
        if all(source is self.sources[path] for path, source in bench.current.items()):
            self.choices += chosen
            return
        move = back(self.sources, bench.current)
        self.choices += [moved(choice, move) for choice in chosen]

    def _conclude(self, bench: Bench, last: Result | None) -> Outcome:
        """Changes are proposed only where the whole program then runs, and saw what the oracle saw."""
        if last is None or not (last.ended and last.equal):
            return self._outcome(None, {}, bench, refused=last)
        verdict = wording.verdict(last, bench, self.driver)
        if self.first is not None and self.first.exit_code != 0:
            verdict = self._by_witnesses(bench) or verdict
        if verdict.status != "confirmed" and not self.options.unsafe:
            return self._outcome(None, {}, bench, refused=replace(last, reason=verdict.reason))
        changed = {p: s.text for p, s in bench.current.items() if s.text != self.sources[p].text}
        verdict = replace(verdict, oracle=self._oracles(bench, verdict.oracle), modes=self._modes(bench, changed))
        against = next((m for m in verdict.modes if m.status == "refuted"), None)
        if against is not None:
            reason = f"under {against.name}: {against.reason}"
            self.notes.append(f"confirmed as it is, refuted {reason}")
            return self._outcome(None, {}, bench, refused=replace(last, equal=False, reason=reason))
        outcome = self._outcome(verdict, changed, bench)
        count = len({f.rewrite for f in outcome.findings if f.state == "fixable"})
        return replace(outcome, memory=memory(bench.thrift.before, last.usage, count))

    def _oracles(self, bench: Bench, known: str) -> str:
        """The oracle's name; where the original runs by itself, also whether that says the same."""
        met = incidents.conflicts(self.first) if self.first is not None else ()
        if bench.oracle is not None and self.refused and bench.max_runs >= self.lab.count + WITNESSES:
            return named(known, self._attested(bench).agree)
        if bench.oracle is None or bench.spent() or self.refused or any(c.kind == "version" for c in met):
            return known
        self.progress("running the original as it is")
        literal = self.lab.run(self.driver, Settings(record=True, functions=bench.functions))
        if literal.exit_code != 0:
            return known
        if not compare(bench.oracle, literal, bench.noise).hard:
            return f"the original as it is, and {known}: both agree"
        self.notes.append(
            "the original as it is computes other gradients than it means: a write is hidden from autograd"
        )
        return known

    def _attested(self, bench: Bench) -> Attested:
        """What more oracles say of the files as they are now, where autograd refused a write of the original."""
        self.progress("asking more oracles")
        texts = {p: s.encode(s.text) for p, s in bench.current.items() if s.text != self.sources[p].text}
        functions = functions_changed((c.rewrite for c in self.choices if c.rewrite is not None), self.sources)
        found = Witnesses(self.lab, self.driver, self.refused, bench.noise, bench.reordered).ask(texts, functions)
        self.notes += found.against
        return found

    def _by_witnesses(self, bench: Bench) -> Verdict | None:
        """A verdict without a run of the whole original, where other oracles know values and gradients."""
        if not self.refused or bench.max_runs < self.lab.count + WITNESSES:
            return None
        found = self._attested(bench)
        return wording.witnessed(found, self.driver) if found.proves else None

    def _modes(self, bench: Bench, changed: Mapping[str, str]) -> tuple[ModeVerdict, ...]:
        """What the patch does in the modes that were asked for."""
        if not changed or bench.oracle is None or not (self.options.modes or self.options.device):
            return ()
        from deinplace.verify.modes import Changed, modes

        texts = {path: bench.current[path].encode(text) for path, text in changed.items()}
        return modes(bench, Changed(texts), self.options.modes, self.options.device, self.progress)

    def _without_oracle(self, found: tuple[Incident, ...]) -> Outcome:
        """The program does not even run under the probe: see what lets it run, and whether other oracles confirm it."""
        bench = Bench(
            self.lab, self.driver, self.sources, None, Comparison(), {}, None, self.options.max_runs,
            dict(self.sources),
        )  # fmt: skip
        outcome = self._passes(bench, found)
        if outcome.changes or self.options.unsafe:
            return outcome
        self.choices.clear()
        project = Project(self.sources, texts=self.texts)
        for each in group(found, project, self.options.allows()):
            reason = "unsafe" if any(r.applicability == "unsafe" for r in each.alternatives) else "no-oracle"
            reason = "not-fixable" if each.barred else reason
            self.choices.append(Choice(each, None, (), reason))
        return self._outcome(None, {})

    def _outcome(
        self,
        verdict: Verdict | None,
        changed: Mapping[str, str],
        bench: Bench | None = None,
        refused: Result | None = None,
    ) -> Outcome:
        project = Project(self.sources, texts=self.texts)
        findings = tuple(
            f for choice in self.choices for f in wording.findings(choice, project, verdict, bool(changed), refused)
        )
        changes = tuple(FileChange(path, self.sources[path].text, text) for path, text in sorted(changed.items()))
        return Outcome(
            "fix", findings, changes, (), tuple(dict.fromkeys(self.notes)), verdict,
            runs=self.lab.count, driver=self.driver.title, driver_exit=None, files=len(self.sources),
        )  # fmt: skip
