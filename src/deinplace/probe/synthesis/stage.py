"""What the parts of a search share: the file at hand, the lines that are wanted, and the scenes found so far."""

from __future__ import annotations

import linecache
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import nn

from .search import Slot, State
from .slots import arguments
from .text import DOUBTED, SCALAR, Scene, compose
from .trace import Lines, Tracer, Trial
from .usage import imported
from .values import Group, Plain, Tensor, Value, imports, mapped, tensors

_SPACE: dict[str, Any] = {"torch": torch, "nn": nn}
exec(SCALAR, _SPACE)
_SEEDS = {"torch": "torch.manual_seed({})", "random": "random.seed({})", "numpy": "numpy.random.seed({})"}
_TOSSES = 5
"""Seeds that are tried for lines that a toss of a coin leads to."""
_COIN = re.compile(r"\brandom\.|\brand\(|\brandint\(|\bbernoulli|\brandom\(\)")
scalar: Callable[[Any], Any] = _SPACE["scalar"]


@dataclass
class Stage:
    """One class or function of a file, and what came of it."""

    module: ModuleType
    path: str
    name: str
    wanted: set[int]
    tracer: Tracer
    seconds: float
    sliced: tuple[tuple[str, str], ...] = ()
    scenes: list[Scene] = field(default_factory=list)
    reached: Lines = field(default_factory=dict)
    calls: int = 0
    built: bool = False
    forward: bool = False
    backward: bool = False
    seen: bool = False
    """True where an object was built as the project builds one somewhere."""
    reason: str = ""
    furthest: int = 0
    """How far the attempt came that `reason` is of."""
    stuck: Trial | None = None
    """The attempt that came furthest of the last search that found nothing."""
    report: Callable[[], None] = lambda: None
    chance: tuple[str, ...] = ()
    """The sources of chance that the file imports, torch first."""

    def __post_init__(self) -> None:
        self.deadline = time.process_time() + self.seconds
        self.chance = tuple(name for name in _SEEDS if name == "torch" or name in imported(self.path))

    def seed(self) -> None:
        """What a scene does first."""
        for name in self.chance:
            exec(_SEEDS[name].format(0), {name: sys.modules[name]})

    @cached_property
    def _text(self) -> str:
        """What the file says."""
        return "".join(linecache.getlines(self.path))

    def left(self) -> set[int]:
        """Wanted lines that no scene reaches, unless with an error that another guess might not cause."""
        return self.wanted - self.reached.get(self.path, set())

    def late(self) -> bool:
        """True where the time is used up: CPU time, so that a busy machine finds the same."""
        return time.process_time() > self.deadline

    def soon(self, share: float) -> float:
        """A deadline of its own for a part of the work: a share of the whole time."""
        return min(self.deadline, time.process_time() + share * self.seconds)

    def value(self, value: Value) -> Any:
        """What an argument's text makes."""
        space = {**_SPACE, **vars(self.module)}
        space.update({"torch": torch, "nn": nn, "F": nn.functional})
        for where, name in imports(value):
            space[name] = getattr(__import__(where, fromlist=[name]), name)
        return eval(value.text(), space)

    def positional(self, slots: list[Slot], state: State) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of a call."""
        args, kwargs = [], {}
        for name, value, keyword in arguments(slots, state):
            if keyword:
                kwargs[name] = self.value(value)
            else:
                args.append(self.value(value))
        return args, kwargs

    def blame(self, trial: Trial) -> None:
        """Tell why the attempt failed that came furthest."""
        if trial.progress >= self.furthest:
            self.furthest, self.reason = trial.progress, trial.message

    def keep(self, scene: Scene, needs_new: bool = False) -> bool:
        """Run a scene's text as a user would; keep it if it ends well (and, where asked, reaches something new).

        Where a file tosses coins, one side of which leads to lines that are left, other seeds follow.
        """
        kept = self._kept(scene, needs_new, 0)
        for seed in range(1, _TOSSES) if kept and _COIN.search(self._text) is not None else ():
            if self.left() and not self.late():
                self._kept(scene, True, seed)
        return kept

    def _kept(self, scene: Scene, needs_new: bool, seed: int) -> bool:
        wants = dict.fromkeys((*scene.imports, *(("", name) for name in self.chance[1:])))
        seeds = [_SEEDS[name].format(seed) for name in self.chance]
        scene = replace(scene, imports=tuple(wants), body=(*seeds, *scene.body))
        space: dict[str, Any] = {"__name__": "harness"}
        text = compose([scene])
        try:
            exec(compile(text, "<harness>", "exec"), space)
        except (ImportError, AttributeError, NameError, SyntaxError) as error:
            self.reason = f"the harness does not load: {error}"
            return False
        start = time.process_time()
        trial = self.tracer.run(space[scene.name])
        scene = replace(scene, seconds=round(time.process_time() - start, 3))
        if not trial.done:
            self.blame(trial)
            return False
        new = trial.lines.get(self.path, set()) & self.left()
        if needs_new and not new:
            return False
        self._note(scene, trial)
        return True

    def _note(self, scene: Scene, trial: Trial) -> None:
        asked = tuple(sorted(trial.lines.get(self.path, set()) & self.wanted))
        self.scenes.append(replace(scene, fault=trial.fault or "", lines=asked))
        self.forward = True
        self.backward = self.backward or any(".backward()" in line for line in scene.body)
        for path, lines in trial.lines.items() if trial.fault not in DOUBTED else ():
            self.reached.setdefault(path, set()).update(lines)
        self.report()


def differentiable(out: Any) -> bool:
    """True where an output has something to call `backward` on."""
    return isinstance(scalar(out), torch.Tensor)


def call_text(function: str, args: Iterable[tuple[str, Value, bool]]) -> tuple[list[str], str]:
    """Statements that make the arguments, and the call."""
    before: list[str] = []
    words: list[str] = []
    taken = {"model", "out", "torch", "nn", "scalar", re.split(r"[.(]", function)[0]}
    for name, value, keyword in args:
        chosen = name if name not in taken else f"{name}_"
        taken.add(chosen)
        text = value.text()
        if isinstance(value, Tensor) and value.floating:
            before += [
                f"{chosen}0 = {value.leaf()}",
                f"{chosen} = {value.changed(f'{chosen}0')}  # no leaf: it may be written to",
            ]
            text = chosen
        elif any(tensors(value)):
            before.append(f"{chosen} = {text}")
            text = chosen
        words.append(f"{name}={text}" if keyword else text)
    return before, f"{function}({', '.join(words)})"


def with_inputs(value: Value, change: Callable[[Tensor], Tensor]) -> Value:
    """The value with its tensors changed."""
    return mapped(value, change)


def needed(values: Iterable[Value]) -> list[tuple[str, str]]:
    """Imports that values need."""
    return list(dict.fromkeys(pair for value in values for pair in imports(value)))


def snake(name: str) -> str:
    """A class's name as part of a function's."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"\W+", "_", parts).strip("_").lower()


__all__ = ["Group", "Plain", "Stage", "call_text", "differentiable", "needed", "scalar", "snake"]
