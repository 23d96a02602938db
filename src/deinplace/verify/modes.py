"""Repeats the comparison of a confirmed change under autocast, checkpointing, a compiler, in float64, on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deinplace.model import ModeVerdict, Status
from deinplace.probe.modes import BACKEND
from deinplace.verify import incidents
from deinplace.verify.drivers import Driver, Run, Settings
from deinplace.verify.recording import RTOL, Comparison, compare
from deinplace.verify.trial import Bench


@dataclass(frozen=True)
class Kind:
    """One way to run a program: the probe's name for it, what reports call it, and how close results have to be."""

    mode: str
    title: str
    rtol: float = RTOL
    original: bool = True
    """False where the original cannot be run so under copy-on-write; the oracle is then what it computes otherwise."""


MODES: Mapping[str, tuple[Kind, ...]] = {
    "amp": (
        Kind("amp", "autocast to bfloat16", 5e-2),
        Kind("amp-float16", "autocast to float16, GradScaler", 1e-2),
    ),
    "checkpoint": (Kind("checkpoint", "checkpoint"), Kind("checkpoint-reentrant", "checkpoint, reentrant")),
    "compile": (Kind("compile", f"torch.compile ({BACKEND})", 1e-4, original=False),),
    "float64": (Kind("float64", "float64", 1e-9),),
}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Changed:
    """What is compared with a bench's original: patched texts, or another driver; and the files that differ."""

    texts: Mapping[str, bytes] = field(default_factory=dict)
    driver: Driver | None = None
    paths: tuple[str, ...] = ()


def modes(
    bench: Bench, changed: Changed, names: Sequence[str], device: str | None, progress: Progress
) -> tuple[ModeVerdict, ...]:
    """What came of a change in each mode, and on `device` where one is given."""
    kinds = [kind for name in names for kind in MODES[name]]
    if device is not None:
        kinds.insert(0, Kind("", f"on {device}", 1e-4))
    return tuple(_Mode(bench, changed, kind, device, progress).verdict() for kind in kinds)


@dataclass(frozen=True)
class _Mode:
    bench: Bench
    changed: Changed
    kind: Kind
    device: str | None
    progress: Progress

    def verdict(self) -> ModeVerdict:
        """Run the patched program in the mode, and the original where that can be."""
        if self.bench.spent():
            return self._said("unconfirmed", f"not tried: {self.bench.max_runs} runs are used up (--max-runs)")
        self.progress(f"running again: {self.kind.title}")
        run = self._run(Settings(record=True, overlay=self.changed.texts), self.changed.driver)
        original = self._original() if self.kind.original or run.exit_code != 0 else None
        if run.exit_code != 0:
            return self._failed(run, original)
        if self._modules() and not run.total("mode_calls"):
            return self._said("unconfirmed", "no module of the changed files was called with gradients")
        found = self._compared(original, run)
        if found.hard:
            return self._said("refuted", str(found.hard[0]))
        if not found.gradients:
            return self._said("unconfirmed", "no gradient was recorded, so there is nothing to compare")
        return self._said("confirmed", f"max |error| {found.max_abs:.2g}")

    def _modules(self) -> bool:
        return self.kind.mode.startswith(("checkpoint", "compile"))

    def _original(self) -> Run | None:
        """The original in the same mode, backward seeing what was saved; a compiled program cannot be watched so."""
        if self.bench.spent():
            return None
        if not self.kind.original:
            return self._run(Settings(record=True))
        return self._run(Settings(watch=True, record=True, emulate=self.bench.emulate))

    def _run(self, settings: Settings, driver: Driver | None = None) -> Run:
        paths = self.changed.paths or tuple(str(Path(path).resolve()) for path in self.changed.texts)
        driver = replace(driver or self.bench.driver, mode=self.kind.mode, mode_paths=paths, device=self.device or "")
        return self.bench.lab.run(driver, settings)

    def _failed(self, run: Run, original: Run | None) -> ModeVerdict:
        """The patched program fails in the mode: its fault only where the original does not."""
        words = "it does not end in time" if run.exit_code is None else incidents.last_words(run)
        if original is not None and original.exit_code == 0:
            return self._said("refuted", f"the original runs, the changed program fails: {words}")
        return self._said("unconfirmed", f"the program cannot run so: {words}")

    def _compared(self, original: Run | None, run: Run) -> Comparison:
        """Against the original in the same mode; else, as a mode should change nothing, against it as it is."""
        rtol = self.kind.rtol
        found = Comparison()
        if original is not None and original.exit_code == 0:
            found = compare(original, run, Comparison(), self.bench.reordered, calls=False, rtol=rtol)
            if not found.hard:
                return found
        oracle, bench = self.bench.oracle, self.bench
        if oracle is None or self.kind.mode in ("amp", "amp-float16", "float64") or self.device is not None:
            return found
        traced = self.kind.mode == "compile"
        other = compare(oracle, run, bench.noise, bench.reordered, calls=False, rtol=rtol, traced=traced)
        return other if not other.hard or not found.hard else found

    def _said(self, status: Status, reason: str) -> ModeVerdict:
        return ModeVerdict(self.kind.title, status, reason)
