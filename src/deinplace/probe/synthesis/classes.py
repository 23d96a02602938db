"""Builds an object of a class, the ways that are likely first: seen calls, its signature, functions that return one."""

from __future__ import annotations

import inspect
import itertools
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from .guide import Guide
from .names import FACTORY, known
from .repairs import said
from .search import Search, Slot, State, listed, words
from .slots import arguments, signature, slots
from .stage import Stage, needed
from .trace import Trial, last_lines
from .usage import asked
from .values import Plain, Value

LARGE = 16
"""A default that is so many times a small size makes a model that is slow to build and to call."""


@dataclass(frozen=True)
class Built:
    """An object, the text that builds it, what that imports, and the state it came from, if any."""

    thing: Any
    text: str
    imports: tuple[tuple[str, str], ...]
    state: State | None = None


class Builder:
    """Ways to build one class."""

    def __init__(self, stage: Stage, cls: type, seen: tuple[str, ...] = ()) -> None:
        self.stage, self.cls, self.seen = stage, cls, seen
        self.slots = self._slots()
        self.own = (stage.module.__name__, cls.__qualname__.split(".")[0])

    def _slots(self) -> list[Slot]:
        init = inspect.getattr_static(self.cls, "__init__")
        if init is object.__init__:
            return []
        return slots(init, False, Guide(), 1)

    def ways(self) -> Iterator[Built]:
        """Objects, one for each way that works."""
        for text in self.seen[:6]:
            yield from self._evaluated(text, ())
        if self._easy():
            yield from itertools.islice(self._searched(), 6)
            yield from self.factories()
        else:
            factories = self.factories()
            yield from itertools.islice(factories, 1)
            yield from itertools.islice(self._searched(), 6)
            yield from factories

    def _easy(self) -> bool:
        """False where a block or a list of stages has to be passed: such classes come with functions that do it."""
        needed = [s for s in self.slots if not s.optional]
        return not any(s.name in ("block", "layers", "cfg", "arch", "block_args", "depths") for s in needed)

    def _evaluated(self, text: str, imports: tuple[tuple[str, str], ...], wants: type | None = None) -> Iterator[Built]:
        trial = self.stage.tracer.run(lambda: self.stage.value(Plain(text, imports)))
        if trial.error is None and isinstance(trial.result, wants or self.cls):
            yield Built(trial.result, text, imports or (self.own,))
        elif trial.error is not None:
            self.stage.blame(trial)

    def _searched(self) -> Iterator[Built]:
        stage = self.stage

        def once(state: State) -> Any:
            stage.seed()
            args, kwargs = stage.positional(self.slots, state)
            return self.cls(*args, **kwargs)

        small = self._small()
        search = Search(
            self.slots, once, stage.tracer, stage.path, stage.soon(0.4), 80, starts=[small] if small else ()
        )
        for found in search.found():
            if found.trial.error is not None:  # an in-place error while it is built
                yield Built(None, *self.described(found.state), found.state)
                continue
            yield Built(found.trial.result, *self.described(found.state), found.state)
        if search.best is not None and not stage.built:
            stage.furthest, stage.reason = search.best.progress, f"not built: {search.best.message}"

    def _small(self) -> State | None:
        """Small sizes in place of large defaults, where the class is a whole model by its defaults."""
        state: list[Value | None] = [slot.values[0] for slot in self.slots]
        ratios = []
        for index, slot in enumerate(self.slots):
            small = next((v for v in known(slot.name, False) if v.isdecimal()), None)
            if slot.optional and type(slot.default) is int and small is not None and slot.default >= 4 * int(small) > 0:
                state[index] = Plain(small)
                ratios.append(slot.default // int(small))
        return tuple(state) if len(ratios) > 1 and max(ratios) >= LARGE else None

    def described(self, state: State) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Text that builds an object from a state, and what it imports."""
        given = arguments(self.slots, state)
        words = [f"{n}={v.text()}" if keyword else v.text() for n, v, keyword in given]
        return f"{self.cls.__qualname__}({', '.join(words)})", (self.own, *needed(v for _, v, _ in given))

    def rebuilt(self, state: State) -> Built | None:
        """An object from a changed state; None where it cannot be built."""
        args = self.stage.tracer.run(lambda: self.stage.positional(self.slots, state))
        if args.error is not None:
            return None
        trial = self.stage.tracer.run(lambda: self.cls(*args.result[0], **args.result[1]))
        if trial.error is not None:
            return None
        return Built(trial.result, *self.described(state), state)

    def factories(self, of_class: bool = True) -> Iterator[Built]:
        """What functions of the file return that need nothing: such objects, or any module."""
        found = []
        for name, function in vars(self.stage.module).items():
            if not inspect.isfunction(function) or function.__module__ != self.stage.module.__name__ or name[0] == "_":
                continue
            if any(_needed(p) for p in signature(function).parameters.values()):
                continue
            found.append(name)
        found.sort(key=lambda n: (not FACTORY.search(n), len(n), n))
        for name in found[:5]:
            if self.stage.late():
                return
            imports = ((self.stage.module.__name__, name),)
            yield from self._evaluated(f"{name}()", imports, self.cls if of_class else nn.Module)

    def suggested(self, state: State, trial: Trial) -> list[State]:
        """States that a failed call asks for: numbers as its error names them, options that it lacked."""
        text = str(trial.error)
        lines = last_lines(trial.error.__traceback__ if trial.error is not None else None, self.stage.path)
        used = set().union(*(words(linecache.getline(self.stage.path, line).strip()) for _, line in lines[:2]))
        blamed = {i for i, s in enumerate(self.slots) if s.name in used or f"self.{s.name}" in used}
        out = list(listed(state, sorted(blamed), text))
        out += [_with(state, i, v) for i in sorted(blamed) for v in self.slots[i].values[1:3]]
        for had, wants in said(text):
            for index, value in enumerate(state):
                if isinstance(value, Plain) and value.code == str(had):
                    out.append(_with(state, index, Plain(str(wants))))
                elif isinstance(value, Plain) and value.code.isdecimal() and had and int(value.code) * wants % had == 0:
                    out.append(_with(state, index, Plain(str(int(value.code) * wants // had))))
        if "NoneType" in text:
            options = [i for i, s in enumerate(self.slots) if s.optional and state[i] is None and len(s.values) > 1]
            out += [_with(state, i, self.slots[i].values[1]) for i in options]
        return [s for s in dict.fromkeys(out) if s != state]

    def flips(self, state: State) -> Iterator[State]:
        """States with one option changed that has a default, then several: those first that the lines in question
        hang on."""
        free = [i for i, s in enumerate(self.slots) if s.optional and len(s.values) > 1 and state[i] is None]
        names = asked(self.stage.path, self.stage.left())
        guided = [i for i in free if self.slots[i].name in names]
        yield from (_with(state, i, v) for i in guided for v in _flipped(self.slots[i]))
        if len(guided) > 1:
            yield self._all(state, guided)
            for one, other in itertools.combinations(guided[:5], 2):
                yield self._all(state, [one, other])
        yield from (_with(state, i, v) for i in free if i not in guided for v in _flipped(self.slots[i]))
        yield self._all(state, [i for i in free if type(self.slots[i].default) is bool])

    def _all(self, state: State, indices: Sequence[int]) -> State:
        """The first other value for each of some options."""
        out = list(state)
        for index in indices:
            out[index] = _flipped(self.slots[index])[0]
        return tuple(out)

    def dropping(self, state: State) -> State | None:
        """The state with every probability that is zero by default, of dropping something, set; None without any."""
        indices = [
            i
            for i, s in enumerate(self.slots)
            if type(s.default) is float and s.default == 0 and "drop" in s.name.lower() and state[i] is None
        ]
        out = list(state)
        for index in indices:
            out[index] = Plain("0.5")
        return tuple(out) if indices else None


def _with(state: State, index: int, value: Value | None) -> State:
    return (*state[:index], value, *state[index + 1 :])


def _flipped(slot: Slot) -> list[Value]:
    return [v for v in slot.values[1:4] if v is not None]


def _needed(parameter: inspect.Parameter) -> bool:
    kinds = (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    return parameter.default is parameter.empty and parameter.kind not in kinds
