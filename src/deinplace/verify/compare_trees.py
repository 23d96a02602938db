"""`verify`: runs one command in two states of a project, and tells whether they compute the same training."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deinplace.analysis.source import Source, SourceError
from deinplace.files import DEFAULT_EXCLUDE, Selection, discover, read_text
from deinplace.model import Finding, Outcome, Place, Span, Verdict
from deinplace.rules.base import Project
from deinplace.verify import incidents, trees
from deinplace.verify.drivers import SEED, Driver, DriverError, Laboratory, Run, Settings
from deinplace.verify.emulation import emulated
from deinplace.verify.modes import Changed, modes
from deinplace.verify.recording import (
    RTOL,
    Comparison,
    Difference,
    compare,
    first_call_that_differs,
    noise_floor,
)
from deinplace.verify.trees import Tree
from deinplace.verify.trial import Bench

CODE, NAME = "DIP001", "trees-differ"
Progress = Callable[[str], None]
Functions = Mapping[str, tuple[str, ...]]


def compare_trees(
    driver: Driver,
    base: str,
    head: str | None,
    progress: Progress,
    names: tuple[str, ...] = (),
    device: str | None = None,
) -> tuple[Outcome, dict[str, str]]:
    """Whether the command of `driver` trains alike in two folders or revisions, `head` None being the working tree.

    Where they do, the comparison is repeated in the modes `names` and on `device`; see `modes`.

    Also returns the texts, in the head, of the files that the outcome speaks of.

    Raises:
        DeinplaceError: a tree that does not exist, or a base whose run cannot serve (`incidents.require_usable`).
    """
    with Laboratory() as lab:
        before = trees.tree("--base", base, driver.cwd, lab.folder / "base")
        after = trees.tree("--head", head, driver.cwd, lab.folder / "head") if head else trees.working(driver.cwd)
        pair = _Pair(lab, driver, before, after, progress)
        outcome = pair.compare(names, device)
        return outcome, pair.texts(outcome)


@dataclass(frozen=True)
class Oracle:
    """What the base computes: its run, another one for the noise floor, and how they came about."""

    run: Run
    noise: Comparison
    title: str
    notes: tuple[str, ...] = ()
    emulate: Mapping[str, object] | None = None


class _Pair:
    """Two states of a project, named after the same folder."""

    def __init__(self, lab: Laboratory, driver: Driver, base: Tree, head: Tree, progress: Progress) -> None:
        self.lab, self.progress, self.base, self.head = lab, progress, base, head
        self.origin = trees.toplevel(driver.cwd) or head.root
        if head.root != self.origin and not head.root.startswith(str(lab.folder)):
            self.origin = head.root
        self.drivers = [self._driver(driver, tree) for tree in (base, head)]

    def _driver(self, driver: Driver, tree: Tree) -> Driver:
        """The command in one state: words that lead into the project lead into that state of it."""
        if tree.root == self.origin:
            return replace(driver, cwd=tree.cwd)
        command = tuple(_led(word, self.origin, tree.root) for word in driver.command)
        return replace(driver, command=command, cwd=tree.cwd, text=driver.title, copies=((tree.root, self.origin),))

    def compare(self, names: tuple[str, ...], device: str | None) -> Outcome:
        """Run both, and say where they part."""
        functions = changed_functions(self.base.root, self.head.root, self.origin)
        oracle = self._oracle(functions)
        self.progress(f"running {self.head.title}")
        run = self.lab.run(self.drivers[1], Settings(record=True, functions=functions))
        notes = (
            f"base: {self.base.title}; head: {self.head.title}",
            *self.base.notes, *self.head.notes, *oracle.notes, *incidents.notes(run),
        )  # fmt: skip
        finding, verdict = self._judged(oracle, run)
        if verdict.status == "confirmed":
            verdict = self._in_modes(oracle, verdict, Changed({}, self.drivers[1], tuple(functions)), names, device)
            notes = (*notes, *_left_behind(compare(oracle.run, run, oracle.noise, calls=False)))
        return Outcome(
            "verify", (finding,) if finding else (), (), (), tuple(dict.fromkeys(notes)), verdict,
            runs=self.lab.count, driver=self.drivers[0].title, driver_exit=run.exit_code,
        )  # fmt: skip

    def _in_modes(
        self, oracle: Oracle, verdict: Verdict, changed: Changed, names: tuple[str, ...], device: str | None
    ) -> Verdict:
        """The verdict once the comparison was repeated; refuted where a mode refutes it."""
        bench = Bench(self.lab, self.drivers[0], {}, oracle.run, oracle.noise, {}, oracle.emulate)
        found = modes(bench, changed, names, device, self.progress)
        against = next((mode for mode in found if mode.status == "refuted"), None)
        if against is not None:
            return replace(verdict, status="refuted", reason=f"under {against.name}: {against.reason}", modes=found)
        return replace(verdict, modes=found)

    def _oracle(self, functions: Functions) -> Oracle:
        """The base as it is, where it runs to its end; else under copy-on-write."""
        driver = self.drivers[0]
        self.progress(f"running {self.base.title}")
        settings = Settings(record=True, functions=functions)
        first = self.lab.run(driver, settings)
        if first.exit_code != 0 and not incidents.raised(first) and functions:
            settings = replace(settings, functions={})  # the program looks at its own functions
            first = self.lab.run(driver, settings)
        incidents.require_usable(first, driver, need_backward=True)
        title = "the base as it is"
        notes: tuple[str, ...] = ()
        if first.exit_code != 0:
            self.progress(f"running {self.base.title} under copy-on-write")
            words = incidents.last_words(first).partition(": [")[0]
            settings, first, title = self._repaired(settings, driver)
            notes = (f"the base fails by itself: {words}",)
        self.progress("running it again: noise floor")
        second = self.lab.run(driver, settings)
        incidents.require_usable(second, driver, need_backward=False)
        return Oracle(second, noise_floor(first, second), title, notes, settings.emulate)

    def _repaired(self, settings: Settings, driver: Driver) -> tuple[Settings, Run, str]:
        """Run a base that fails with an in-place error so that backward sees what was saved."""
        settings = replace(settings, watch=True)
        run = self.lab.run(driver, settings)
        if run.exit_code == 0:
            return settings, run, "the base under copy-on-write"
        project = Project(self._sources(run))
        result = emulated(self.lab, driver, run, project)
        if result.run.exit_code != 0:
            raise DriverError(f"the base fails, and cannot be made to run: {incidents.last_words(result.run)}")
        title = "the base under copy-on-write, refused writes emulated"
        return replace(settings, emulate=result.settings), result.run, title

    def texts(self, outcome: Outcome) -> dict[str, str]:
        """The head's text of each file that a finding names."""
        found = {f.path: read_text(_led(f.path, self.origin, self.head.root)) for f in outcome.findings if f.path}
        return {path: text for path, text in found.items() if text is not None}

    def _sources(self, run: Run) -> dict[str, Source]:
        """The base's files that a run's incidents lie in, so that rules can tell what a refused write is for."""
        out = {}
        for incident in incidents.incidents(run):
            for place in incidents.places_of(incident):
                there = _led(place.path, self.origin, self.base.root)
                try:
                    out[place.path] = Source.parse(place.path, Path(there).read_bytes())
                except (OSError, SourceError):
                    continue
        return out

    def _judged(self, oracle: Oracle, run: Run) -> tuple[Finding | None, Verdict]:
        """Where the head differs from the base, if it does, and the verdict."""
        title = self.drivers[0].title
        if run.exit_code != 0:
            why = "it does not end in time" if run.exit_code is None else f"it fails: {incidents.last_words(run)}"
            verdict = Verdict("refuted", f"the head does not run to its end: {why}", oracle.title, title)
            return self._finding(_where_failed(run), verdict), verdict
        found = compare(oracle.run, run, oracle.noise, calls=False)
        hard = [d for d in found.hard if not _ours_alone(d)]
        if hard:
            call = first_call_that_differs(oracle.run, run, hard[0].position)
            verdict = Verdict("refuted", _sentence(hard[0], call), oracle.title, title, compared=found.compared)
            return self._finding((call or hard[0]).at or hard[0].at, verdict), verdict
        return None, _verdict(oracle, run, found, title)

    def _finding(self, at: Place | None, verdict: Verdict) -> Finding:
        """The first event that differs, at its line in the head."""
        path = at.path if at is not None else ""
        where = f"in {at.function}, {Path(at.path).name}:{at.span.line}: " if at is not None else ""
        span = at.span if at is not None else Span(1, 0, 1, 0)
        return Finding(CODE, NAME, path, span, f"{where}{verdict.reason}", "advised", "differs", verdict=verdict)


def _verdict(oracle: Oracle, run: Run, found: Comparison, driver: str) -> Verdict:
    if oracle.noise.unsteady:
        why = "gradients of the base vary from run to run by themselves, so there is nothing firm to compare with"
        return Verdict("unconfirmed", why, oracle.title, driver, compared=found.compared)
    if not found.gradients:
        why = "no gradient was recorded, so there is nothing to compare"
        return Verdict("unconfirmed", why, oracle.title, driver, compared=found.compared)
    return Verdict(
        "confirmed",
        f"gradients of {found.gradients} tensors in {found.steps} optimizer steps",
        oracle.title,
        driver,
        "+".join(sorted(set(run.gather("devices")))),
        found.steps,
        found.compared,
        found.max_abs,
        found.max_rel,
        len(found.stepped) or len(found.leaves),
        "+".join(sorted(found.dtypes)),
        SEED,
        RTOL,
    )


_EVENTS = {
    "backward": "what backward is called on",
    "gradients": "gradients after backward",
    "grad": "what autograd.grad returns",
    "consumed": "gradients that an optimizer step uses",
    "stepped": "parameters after a step",
    "buffers": "buffers",
    "random": "random numbers",
}


def _sentence(first: Difference, call: Difference | None) -> str:
    """What differs first; what a function returned before, where one that changed returned something else."""
    what = f"{_EVENTS.get(first.kind, first.kind)}: {first.label}: {first.message}"
    if call is None:
        return what
    return f"call {call.call} returned something else: {call.label} {call.message}; then {what}"


def _ours_alone(difference: Difference) -> bool:
    """What plain names of the main module hold in the end is nobody's training: edits rename and reuse them."""
    return difference.kind == "end" and "." not in difference.label


def _left_behind(found: Comparison) -> list[str]:
    names = [d.label for d in found.hard if _ours_alone(d)]
    return [f"at the end these names of the main module hold something else: {', '.join(names[:8])}"] if names else []


def _where_failed(run: Run) -> Place | None:
    """The innermost user line of the error that ended a run."""
    from deinplace.verify import account

    stack = account.places(run.failure["stack"]) if run.failure else ()
    return stack[0] if stack else None


def _led(word: str, origin: str, root: str) -> str:
    """A word of a command with paths below `origin` led to `root`."""
    if word == origin:
        return root
    return word.replace(origin + os.sep, root + os.sep)


def changed_functions(base: str, head: str, origin: str) -> dict[str, tuple[str, ...]]:
    """Functions whose code differs between two trees, by path in `origin`."""
    found = {}
    texts = [_python_files(root) for root in (base, head)]
    for name in texts[0].keys() & texts[1].keys():
        old, new = (_functions(texts[i][name]) for i in (0, 1))
        names = tuple(sorted(n for n in old.keys() & new.keys() if old[n] != new[n]))
        if names and texts[0][name].read_bytes() != texts[1][name].read_bytes():
            found[str(Path(origin, name))] = names
    return found


def _python_files(root: str) -> dict[str, Path]:
    paths, _ = discover([root], Selection(root, DEFAULT_EXCLUDE, False, False))
    return {os.path.relpath(path, root): Path(path) for path in paths if not Path(path).is_symlink()}


def _functions(path: Path) -> dict[str, str]:
    """The code of each function of a file, by qualified name."""
    try:
        source = Source.parse(str(path), path.read_bytes())
    except (OSError, SourceError):
        return {}
    found = (node for node in source.nodes if isinstance(node, ast.FunctionDef))
    return {source.qualname(node.body[0]): ast.dump(node) for node in found}
