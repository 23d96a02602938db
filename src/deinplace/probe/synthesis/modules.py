"""Exercises a class: builds it, calls it in train and eval mode, and then what is left of its methods and options."""

from __future__ import annotations

import copy
import inspect
import itertools
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .classes import Builder, Built
from .functions import calls
from .guide import Guide, parameter_count
from .optimizers import exercise_optimizer
from .search import Slot, State
from .slots import slots
from .stage import Stage, snake
from .text import Scene
from .trace import Trial

OPTIONS = 24
"""Changed options with which an object is only built."""
USERS = 3
"""Modules that are built and called for the sake of what they use."""
LARGE = 10_000_000
"""Parameters from which on a module is first called without data. Below, real tensors are faster than fake ones."""


def exercise_class(stage: Stage, cls: type, methods: tuple[str, ...], seen: tuple[str, ...]) -> None:
    """Scenes for a class of the file."""
    if issubclass(cls, torch.autograd.Function):
        _exercise_autograd(stage, cls)
        return
    if issubclass(cls, torch.optim.Optimizer):
        exercise_optimizer(stage, cls)
        return
    builder = Builder(stage, cls, seen)
    until = stage.soon(0.7)
    states: list[State] = []
    for count, built in enumerate(builder.ways()):
        stage.built = True
        states += [built.state] if built.state is not None else []
        stage.seen = built.text in seen
        if _settled(stage, builder, built, methods) or time.process_time() > until or count == 6:
            break
    for state in states[:1]:
        _by_building(stage, builder, state)
    if not stage.scenes or stage.left():
        _by_carriers(stage, builder)
    if not stage.scenes or stage.left():
        by_users(stage, cls.__name__)


def _settled(stage: Stage, builder: Builder, built: Built, methods: tuple[str, ...], depth: int = 0) -> bool:
    """Exercise one object; where no call of it works, one built as the error suggests."""
    thing = _Object(stage, builder, built, methods)
    if thing.exercise():
        return True
    if built.state is None or stage.scenes or thing.stuck is None or depth == 2:
        return False
    for state in builder.suggested(built.state, thing.stuck)[:5]:
        if stage.late():
            return False
        other = builder.rebuilt(state)
        if other is not None and _settled(stage, builder, other, methods, depth + 1):
            return True
        if stage.scenes:
            return False
    return False


def _by_building(stage: Stage, builder: Builder, state: State) -> None:
    """Lines of constructors that other options lead to: the object is built, and need not be called."""
    for changed in itertools.islice(builder.flips(state), OPTIONS):
        if stage.late() or not stage.left():
            return
        text, wants = builder.described(changed)
        name = f"test_{snake(builder.cls.__name__)}_built"
        body = (f"model = {text}",)
        stage.keep(Scene(name, wants, body, stage.sliced), needs_new=True)


def _by_carriers(stage: Stage, builder: Builder) -> None:
    """Whole models of the file may use what could not be built or reached alone."""
    for count, built in enumerate(builder.factories(of_class=False)):
        if count == 3 or stage.late() or not stage.left():
            return
        thing = built.thing
        if isinstance(thing, nn.Module):
            guide = Guide(thing)
            chosen = _slots(thing, "__call__", guide)
            if chosen is not None:
                _Object(stage, builder, built, ()).call("__call__", chosen, guide, True)


def by_users(stage: Stage, name: str) -> None:
    """Other modules of the file name what could not be built or reached alone: built and called, they may reach it."""
    for user in _users(stage, name):
        builder = Builder(stage, user)
        for built in itertools.islice(builder.ways(), 2):
            if stage.late() or not (stage.left() or not stage.scenes):
                return
            guide = Guide(built.thing if isinstance(built.thing, nn.Module) else None)
            chosen = _slots(built.thing, "__call__", guide)
            if chosen is not None and _Object(stage, builder, built, ()).call("__call__", chosen, guide, True):
                break


def _users(stage: Stage, name: str) -> list[type]:
    """Modules of the file that name it, then those that name these."""
    things = list(vars(stage.module).values())
    found: list[type] = []
    names = [name]
    while names and len(found) < USERS:
        used = names.pop(0)
        more = [t for t in things if _uses(t, used, stage.module.__name__) and t not in found and t.__name__ != name]
        found += more
        names += [t.__name__ for t in more]
    return found[:USERS]


def _uses(thing: Any, name: str, module: str) -> bool:
    """Whether something is a module class of the file, one of whose methods names another class or function."""
    if not inspect.isclass(thing) or thing.__module__ != module or thing.__name__ == name:
        return False
    codes = (getattr(method, "__code__", None) for method in vars(thing).values())
    return issubclass(thing, nn.Module) and any(code is not None and name in code.co_names for code in codes)


def _exercise_autograd(stage: Stage, cls: Any) -> None:
    """A custom function is called through `apply`."""
    stage.built = True
    chosen = slots(cls.forward, True, Guide(), 1)
    imports = [(stage.module.__name__, cls.__name__)]
    calls(stage, cls.apply, chosen, f"{cls.__name__}.apply", [], imports, f"test_{snake(cls.__name__)}")


class _Object:
    """One built object, and the calls made on it."""

    def __init__(self, stage: Stage, builder: Builder, built: Built, methods: tuple[str, ...]) -> None:
        self.stage, self.builder, self.built, self.methods = stage, builder, built, methods
        self.name = f"test_{snake(builder.cls.__name__)}"
        self.stuck: Trial | None = None
        """The attempt that came furthest, of a call that never worked."""

    def exercise(self) -> bool:
        """True where nothing is left to do for this class."""
        thing = self.built.thing
        if thing is None:
            return self._fails_when_built()
        worked: list[tuple[str, list[Slot], State]] = []
        guide = Guide(thing if isinstance(thing, nn.Module) else None)
        for method in self._called(thing):
            if worked and not self.stage.left():
                break
            chosen = _slots(thing, method, guide)
            if chosen is None:
                continue
            state = self.call(method, chosen, guide, bool(worked))
            if state is not None:
                worked.append((method, chosen, state))
            self.stuck = self.stuck or self.stage.stuck
        for method, chosen, state in worked[:1]:
            self._dropping(method, chosen, state)
        for method, chosen, state in worked:
            if self.stage.left():
                self._more(method, chosen, guide, state)
        return bool(worked) and not self.stage.left()

    def _dropping(self, method: str, chosen: list[Slot], state: State) -> None:
        """The same call with what drops nothing by default: else such layers write nothing, either."""
        changed = self.builder.dropping(self.built.state) if self.built.state is not None else None
        other = self.builder.rebuilt(changed) if changed is not None and not self.stage.late() else None
        if other is not None:
            guide = Guide(other.thing if isinstance(other.thing, nn.Module) else None)
            fixed = [Slot(s.name, (v,), s.keyword, s.optional) for s, v in zip(chosen, state, strict=True)]
            self._call(other, method, fixed, guide, False, tries=1)

    def _called(self, thing: Any) -> Iterator[str]:
        """`forward` (or `__call__`) first, then the methods that hold what is wanted."""
        main = "__call__" if _has_forward(thing) else None
        if main is not None:
            yield main
        for method in self.methods:
            if method not in ("forward", "__call__", "__init__") and callable(getattr(thing, method, None)):
                yield method

    def _fails_when_built(self) -> bool:
        body = (f"model = {self.built.text}",)
        return self.stage.keep(Scene(self.name, self.built.imports, body, self.stage.sliced)) and not self.stage.left()

    def _call(
        self,
        built: Built,
        method: str,
        chosen: list[Slot],
        guide: Guide,
        more: bool,
        *,
        mode: str = "",
        tries: int = 60,
    ) -> State | None:
        """Search for arguments of one method of a built object."""
        thing = built.thing
        before = [f"model = {built.text}{mode}"]
        text = "model" if method == "__call__" else f"model.{method}"
        function = thing if method == "__call__" else getattr(thing, method)
        suffix = "" if method == "__call__" else f"_{snake(method)}"
        return calls(
            self.stage, function, chosen, text, before, list(built.imports), self.name + suffix, guide.numbers,
            tries, needs_new=more, twin=_twin(thing, method),
        )  # fmt: skip

    def call(self, method: str, chosen: list[Slot], guide: Guide, more: bool) -> State | None:
        """Search for arguments of one method; with `more` only those that reach something new."""
        return self._call(self.built, method, chosen, guide, more)

    def _more(self, method: str, chosen: list[Slot], guide: Guide, state: State) -> None:
        """Other modes and options of the constructor, as long as they reach something new."""
        fixed = [Slot(s.name, (v,), s.keyword, s.optional) for s, v in zip(chosen, state, strict=True)]
        thing = self.built.thing
        if isinstance(thing, nn.Module):
            thing.eval()
            self._call(self.built, method, fixed, guide, True, mode=".eval()", tries=2)
            thing.train()
        if self.built.state is None:
            return
        for count, changed in enumerate(self.builder.flips(self.built.state)):
            if count == 24 or self.stage.late() or not self.stage.left():
                return
            other = self.builder.rebuilt(changed)
            if other is not None:
                own = Guide(other.thing if isinstance(other.thing, nn.Module) else None)
                kept = [Slot(s.name, (v, *s.values), s.keyword, s.optional) for s, v in zip(chosen, state, strict=True)]
                self._call(other, method, kept, own, True, tries=6)


def _twin(thing: Any, method: str) -> Any:
    """The call on a copy without data, for large modules: there a wrong guess costs next to nothing."""
    if not isinstance(thing, nn.Module) or parameter_count(thing) < LARGE:
        return None
    try:
        twin = copy.deepcopy(thing).to("meta")
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    return twin if method == "__call__" else getattr(twin, method, None)


def _has_forward(thing: Any) -> bool:
    if isinstance(thing, nn.Module):
        return type(thing).forward is not nn.Module.forward
    return callable(thing)


def _slots(thing: Any, method: str, guide: Guide) -> list[Slot] | None:
    function = getattr(thing, "forward" if method == "__call__" and isinstance(thing, nn.Module) else method, None)
    if function is None:
        return None
    static = not inspect.ismethod(function)
    plain = inspect.unwrap(function if static else function.__func__)
    if static and inspect.isfunction(function):
        return slots(function, True, guide, 0)
    return slots(plain, True, guide, 1)
