"""What a search made of classes and functions, and the texts that become of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from deinplace.probe.synthesis.text import DOUBTED, Scene, compose
from deinplace.verify.harness.model import Harness, Target

SCENES = 4
"""Calls that show faults are run one by one: so many of one class or function at most."""
SHARED = 4.0
"""CPU seconds that the calls of one text may take together."""
Lines = dict[str, frozenset[int]]


@dataclass(frozen=True)
class Item:
    """A class or function to exercise: lines that should run, and the methods that hold them."""

    path: str
    name: str
    lines: frozenset[int] = frozenset()
    methods: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """What a search made of one item: how far it came, its scenes, and the lines of the project that they ran."""

    item: Item
    root: str = ""
    built: bool = False
    forward: bool = False
    backward: bool = False
    module: bool = False
    seen: bool = False
    """True where an object was built as the project builds one somewhere."""
    scenes: tuple[Scene, ...] = ()
    reached: Lines = field(default_factory=dict)
    reason: str = ""

    @property
    def complete(self) -> bool:
        """True where every line that was asked for ran."""
        return bool(self.scenes) and self.item.lines <= self.reached.get(self.item.path, frozenset())

    @property
    def faults(self) -> tuple[str, ...]:
        """The in-place errors that its scenes end in."""
        return tuple(s.fault for s in self.scenes if s.fault)

    @property
    def telling(self) -> tuple[Scene, ...]:
        """The scenes that run lines which were asked for."""
        return tuple(s for s in self.scenes if s.lines or not self.item.lines)

    @property
    def clean(self) -> tuple[Scene, ...]:
        """Those of them that end well."""
        return tuple(s for s in self.telling if not s.fault)

    @property
    def faulty(self) -> tuple[Scene, ...]:
        """Those of them that end in an in-place error."""
        return tuple(s for s in self.telling if s.fault)


def written(attempts: Sequence[Attempt]) -> list[Harness]:
    """Harnesses of the scenes that run lines which were asked for.

    One that shows an in-place fault gets a harness of its own, since nothing runs after it; others share one, and come
    first: they judge many rewrites at once.
    """
    found = [harness(group) for group in grouped(_only(a, a.clean) for a in attempts if a.clean)]
    faulty = [(a, s) for a in attempts for s in a.faulty[:SCENES]]
    faulty.sort(key=lambda pair: pair[1].fault in DOUBTED)
    return found + [harness([_only(a, (s,))]) for a, s in faulty]


def _only(attempt: Attempt, scenes: tuple[Scene, ...]) -> Attempt:
    return replace(attempt, scenes=scenes)


def grouped(attempts: Iterable[Attempt]) -> list[list[Attempt]]:
    """Attempts that one text can hold: of one root, quick together, no name imported from two modules."""
    groups: list[list[Attempt]] = []
    for attempt in attempts:
        for group in groups:
            if group[0].root == attempt.root and group[0].seen == attempt.seen and _joins(group, attempt):
                group.append(attempt)
                break
        else:
            groups.append([attempt])
    return groups


def _joins(group: Sequence[Attempt], attempt: Attempt) -> bool:
    scenes = [s for a in (*group, attempt) for s in a.scenes]
    if sum(s.seconds for s in scenes) > SHARED or bool(group[0].scenes[0].sliced) != bool(attempt.scenes[0].sliced):
        return False
    names: dict[str, str] = {}
    return all(names.setdefault(name, module) == module for s in scenes for module, name in s.imports)


def harness(attempts: Sequence[Attempt]) -> Harness:
    """One text for some attempts."""
    first = attempts[0]
    files = list(dict.fromkeys(os.path.relpath(a.item.path, a.root) for a in attempts))
    names = ", ".join(a.item.name for a in attempts) if len(attempts) < 4 else f"{len(attempts)} classes and functions"
    title = f"{files[0]}: {names}" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more: {names}"
    text = compose(
        [s for a in attempts for s in a.scenes], f"Forward and backward of {names} ({', '.join(files[:2])})."
    )
    parts = tuple(harness(half) for half in _halves(attempts))
    return Harness(
        "construction" if first.seen else "synthesis", title, first.root, targets(attempts), text, parts=parts
    )


def _halves(attempts: Sequence[Attempt]) -> list[Sequence[Attempt]]:
    """Two halves of what one text holds; none of a single call."""
    middle = len(attempts) // 2
    if middle:
        return [attempts[:middle], attempts[middle:]]
    scenes = attempts[0].scenes
    middle = len(scenes) // 2
    return [[_only(attempts[0], own)] for own in (scenes[:middle], scenes[middle:])] if middle else []


def targets(attempts: Iterable[Attempt]) -> tuple[Target, ...]:
    """The functions that were asked for."""
    out: list[Target] = []
    for attempt in attempts:
        item = attempt.item
        out += [(item.path, f"{item.name}.{m}") for m in item.methods] or [(item.path, item.name)]
    return tuple(out)
