"""`fix` without a command: looks for drivers by itself, rung by rung, and lets them find faults and prove rewrites."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from deinplace.analysis.source import Source
from deinplace.model import FileChange, Finding, Outcome, Verdict
from deinplace.rewrite.apply import patched
from deinplace.verify.drivers import DriverError
from deinplace.verify.harness import rungs
from deinplace.verify.harness.contain import Chamber
from deinplace.verify.harness.model import Harness, Miss
from deinplace.verify.harness.rest import Offer, Rest
from deinplace.verify.harness.tests import passing
from deinplace.verify.harness.witness import Witness
from deinplace.verify.lines import back, moved, without
from deinplace.verify.mend import ContradictionError, Options

Progress = Callable[[str], None]
TOTAL = 15
"""The runs of all harnesses together may take so many times what one run may."""
LOOK = 5
"""The same for one look of the analysis at all the files."""
CUT = "the analysis of the files was ended after {:g} s (--harness-timeout): what only it finds is missing"
SHARES = {"program": 0.5, "tests": 0.75, "example": 0.85}
"""Parts of that time after which a rung leaves the rest to those that follow."""
_IMPORT = re.compile(r"ModuleNotFoundError|ImportError")
FEW_STEPS = 3
"""A program that does not end in time is stopped after so many optimizer steps."""


@dataclass(frozen=True)
class Asked:
    """How harnesses are run. `timeout` is in seconds, for one run."""

    cwd: str
    python: str | None = None
    timeout: float = 60.0
    paranoid: bool = False
    require: bool = False
    """Write nothing that no driver has confirmed."""


def mend_unasked(sources: Mapping[str, Source], options: Options, asked: Asked, progress: Progress) -> Outcome:
    """Find and prove rewrites with the drivers that the project itself holds; nothing is written."""
    ladder = Ladder(sources, options, asked, progress)
    try:
        return ladder.climb()
    finally:
        ladder.close()


class Ladder:
    """One climb; what it tried and what came of it stays until it is closed."""

    def __init__(self, sources: Mapping[str, Source], options: Options, asked: Asked, progress: Progress) -> None:
        self.sources, self.options, self.asked, self.progress = sources, options, asked, progress
        self.rest = Rest(sources, options, LOOK * asked.timeout)
        self.current = dict(sources)
        self.chosen = False
        self.spent = 0.0
        """Seconds that runs took."""
        self.witnesses: list[Witness] = []
        self.offers: list[Offer] = []
        """Rewrites that the analysis proves, as the harnesses judged them; known once the climb is over."""
        self.misses: list[Miss] = []
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.verdict: Verdict | None = None

    def close(self) -> None:
        """Remove what the runs left."""
        for witness in self.witnesses:
            witness.lab.__exit__()

    def climb(self) -> Outcome:
        """Programs first; then, for faults that none of them reaches, the other rungs."""
        for rung in rungs.all_rungs(self.sources, self.asked.cwd, self.asked.timeout / 3):
            wanted = self.rest.unreached(self.witnesses)
            if rung.needs_targets and not wanted:
                break
            python = self._python()
            if python is None:
                break
            found, misses = rung.harnesses(wanted, python)
            self.misses += misses
            for harness in found:
                if not rung.needs_targets or self._wants(harness):
                    self._try(harness)
        return self._joined()

    def _wants(self, harness: Harness) -> bool:
        """False where others reach by now what it is for."""
        return bool(set(self.rest.unreached(self.witnesses)) & set(harness.exercises))

    def _python(self) -> str | None:
        """The interpreter, chosen once there is something to run."""
        if not self.chosen:
            self.chosen = True
            python = rungs.interpreter(self.asked.python)
            if python is None:
                where = self.asked.python or "any Python on PATH"
                self.notes.append(f"no harness was run: {where} has no torch")
            self.asked = replace(self.asked, python=python)
        return self.asked.python

    # ---- one harness

    def _try(self, harness: Harness) -> None:
        if self.spent > SHARES.get(harness.rung, 1.0) * TOTAL * self.asked.timeout:
            self.misses.append(Miss(harness, "not tried: time is used up (--harness-timeout)"))
            return
        self.progress(f"harness: {harness.title}")
        start = time.monotonic()
        reason = self._failed(harness)
        self.spent += time.monotonic() - start
        if reason and not harness.parts:
            self.misses.append(Miss(harness, reason))
        for part in harness.parts if reason else ():
            if self._wants(part):
                self._try(part)

    def _failed(self, harness: Harness) -> str:
        """Run a harness, in one way after the other; the reason why it is of no use, or nothing."""
        reasons = []
        for attempt in rungs.attempts(harness):
            reason = self._run(attempt)
            if not reason:
                return ""
            reasons.append(reason)
        told = (r for r in reasons if not _IMPORT.search(r))  # what stops it once it can be imported says more
        return next(told, reasons[0])

    def _run(self, harness: Harness, max_steps: int | None = None) -> str:
        """Run a harness and mend what it shows; the reason why it is of no use, or nothing."""
        lab = Chamber(harness.root)
        driver = rungs.driver(harness, lab, self.asked, max_steps)
        only = None if harness.rung in ("program", "tests") else self.rest.places()
        witness = Witness(harness, lab, driver, self.sources, self.options, self.progress, self.current, only)
        self.witnesses.append(witness)
        try:
            outcome = witness.mend()
        except DriverError as error:
            self.witnesses.remove(witness)
            lab.__exit__()
            if lab.slow and max_steps is None and harness.rung == "program":
                return self._run(harness, FEW_STEPS)
            rest = passing(harness, lab.printed) if harness.rung == "tests" and not lab.ended else None
            if rest is not None:
                return self._run(rest)
            return lab.why(str(error).removeprefix(repr(driver.title)).lstrip(": "))
        except ContradictionError as error:
            self.notes.append(f"{driver.title} refutes what other harnesses had mended: {error}")
            self._start_over()
            return ""
        self._learn(witness, outcome)
        return ""

    def _start_over(self) -> None:
        """Drop every rewrite: two drivers do not agree on them."""
        self.current, self.verdict = dict(self.sources), None
        self.findings = [
            replace(f, state="rolled-back", reason="refuted") if f.state == "fixable" else f for f in self.findings
        ]

    def _learn(self, witness: Witness, outcome: Outcome) -> None:
        """Take over what a harness mended, where earlier ones see nothing else in it."""
        self.notes += outcome.notes
        changed = {c.path: Source.parse(c.path, self.sources[c.path].encode(c.after)) for c in outcome.changes}
        after = {**self.sources, **changed}
        findings = [without(f, str(witness.lab.folder)) for f in outcome.findings]
        if changed and not all(w.holds(after) for w in self.witnesses if w is not witness and w.loads(changed)):
            self.notes.append(f"what {witness.driver.title} needs, other harnesses refute")
            findings = [replace(f, state="rolled-back", reason="refuted") for f in findings]
        elif changed:
            self.current = after
            self.verdict = self.verdict or outcome.verdict
        elif self._is_refuted_by(witness):
            self.notes.append(f"{witness.driver.title} refutes what other harnesses had mended")
            self._start_over()
        known = {(f.rule, f.path, f.span) for f in self.findings}
        self.findings += [f for f in findings if (f.rule, f.path, f.span) not in known]

    def _is_refuted_by(self, witness: Witness) -> bool:
        mended = [path for path, source in self.current.items() if source is not self.sources[path]]
        return bool(mended) and witness.loads(mended) and not witness.holds(self.current)

    # ---- what no harness showed

    def _joined(self) -> Outcome:
        """What harnesses mended, and what the analysis proves besides, as far as no harness refutes it."""
        ran = {line for witness in self.witnesses for line in witness.ran}
        offers = self.rest.left(self.current, self.findings, ran)
        for witness in self.witnesses:
            offers = witness.judge(offers, self.current)
        self.offers = offers
        kept = [o for o in offers if o.held and (o.confirmed or not self.asked.require)]
        after = patched(self.current, (o.rewrite for o in kept))
        move = back(self.sources, self.current)
        found = self.rest.findings(offers, kept, noted=bool(self.witnesses))
        found = found if self.current == dict(self.sources) else [moved(f, move) for f in found]
        changes = tuple(
            FileChange(path, self.sources[path].text, source.text)
            for path, source in sorted(after.items())
            if source.text != self.sources[path].text
        )
        verdict = self.verdict or next((o.verdict for o in kept if o.confirmed), None)
        return Outcome(
            "fix", (*self.findings, *found), changes, (), self._told(), verdict,
            runs=sum(w.lab.count for w in self.witnesses), driver=self._drivers(), files=len(self.sources),
        )  # fmt: skip

    def _drivers(self) -> str:
        return ", ".join(dict.fromkeys(w.driver.title for w in self.witnesses))

    def _told(self) -> tuple[str, ...]:
        """What a user has to know: which harnesses were of no use, and why."""
        alone = () if self.witnesses else ("no driver: proved from the source, not run",)
        misses = (f"harness {miss.harness.title}: {miss.reason}" for miss in self.misses)
        cut = (CUT.format(LOOK * self.asked.timeout),) if self.rest.cut else ()
        return tuple(dict.fromkeys((*alone, *cut, *self.notes, *misses)))
