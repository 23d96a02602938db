"""Best-first search over arguments: what got furthest is changed first, as its error suggests."""

from __future__ import annotations

import ast
import heapq
import itertools
import linecache
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .repairs import repairs
from .trace import Tracer, Trial, last_lines
from .values import Group, Plain, Tensor, Value, mapped, tensors

MOST = 8
"""Items of a list that tensors are made for."""
State = tuple[Value | None, ...]
"""One value for each parameter; None leaves it to its default."""


@dataclass(frozen=True)
class Slot:
    """A parameter: its name, what to try for it, and how it is passed."""

    name: str
    values: tuple[Value | None, ...]
    keyword: bool = True
    optional: bool = False
    default: Any = None


@dataclass(frozen=True)
class Found:
    """A state that works, and its trial."""

    state: State
    trial: Trial


@dataclass
class Search:
    """Tries states until one works. `call` takes a state; `path` is the file whose frames tell what was to blame."""

    slots: Sequence[Slot]
    call: Callable[[State], Any]
    tracer: Tracer
    path: str
    deadline: float
    tries: int = 60
    numbers: Sequence[int] = ()
    starts: Sequence[State] = ()
    """States to try before all others."""
    best: Trial | None = None

    def found(self) -> Iterator[Found]:
        """States that work, one after the other."""
        order = itertools.count()
        heap: list[tuple[int, int, int, State]] = []
        seen: set[State] = set()

        def push(state: State, progress: int, depth: int) -> None:
            if state not in seen:
                seen.add(state)
                heapq.heappush(heap, (-progress, depth, next(order), state))

        for state in (*self.starts, *self._starts()):
            push(state, 1 << 20, 0)
        while heap and self.tries > 0 and time.process_time() < self.deadline:
            _, depth, _, state = heapq.heappop(heap)
            self.tries -= 1
            trial = self.tracer.run(lambda state=state: self.call(state))  # type: ignore[misc]
            if trial.done:
                yield Found(state, trial)
                if trial.fault == "out-grad":
                    push(self._as_data(state), trial.progress + 1, depth + 1)
                every = range(len(self.slots))
                for more in (*self._all_options(state), self._as_data(state), *self._alternatives(state, every)):
                    push(more, trial.progress - 1, depth + 1)
                continue
            if self.best is None or trial.progress > self.best.progress:
                self.best = trial
            for more in self._next(state, trial):
                push(more, trial.progress, depth + 1)

    def _starts(self) -> Iterator[State]:
        """The first value of each; then each alternative of those that must be given, once."""
        first: State = tuple(slot.values[0] for slot in self.slots)
        yield first
        needed = [i for i, slot in enumerate(self.slots) if not slot.optional]
        for index in needed[:2]:
            for value in self.slots[index].values[1:4]:
                yield (*first[:index], value, *first[index + 1 :])

    def _next(self, state: State, trial: Trial) -> Iterator[State]:
        """Changes that the error suggests: shapes by its text, then the parameters on the line that raised."""
        text = f"{type(trial.error).__name__}: {trial.error}"
        if re.search(r"Tensor that requires grad|can't convert .* numpy|does not require grad\w* explicitly", text):
            yield self._as_data(state)
        given = [i for i, v in enumerate(state) if v is not None and any(tensors(v))]
        blamed = self._blamed(trial)
        given.sort(key=lambda i: self.slots[i].name not in blamed)
        values: Any = tuple(state[i] for i in given)
        changed = itertools.islice(repairs(values, text, self.numbers), 24)
        merged: list[State] = []
        for new in changed:
            full = list(state)
            for i, value in zip(given, new, strict=True):
                full[i] = value
            merged.append(tuple(full))
        indices = [i for i, slot in enumerate(self.slots) if slot.name in blamed]
        others = [*listed(state, indices, text), *self._alternatives(state, indices)]
        yield from tensorised(state, sorted(range(len(state)), key=lambda i: i not in indices), text)
        if given:
            yield from merged[:10]
        yield from others
        yield from merged[10:]
        yield from self._alternatives(state, [i for i, slot in enumerate(self.slots) if not slot.optional])
        yield from self._alternatives(state, [i for i, slot in enumerate(self.slots) if slot.optional], 2)

    def _as_data(self, state: State) -> State:
        """The same inputs, as numbers that nobody wants gradients of."""
        return tuple(
            mapped(v, lambda t: replace(t, kind="data") if t.kind == "float" else t) if v is not None else None
            for v in state
        )

    def _all_options(self, state: State) -> Iterator[State]:
        """Everything given that may be left out, and no flag as it is by default."""
        yield tuple(
            slot.values[1] if slot.optional and value is None and len(slot.values) > 1 else value
            for slot, value in zip(self.slots, state, strict=True)
        )

    def _alternatives(self, state: State, indices: Sequence[int], most: int = 8) -> Iterator[State]:
        for position in range(1, most):
            for index in indices:
                slot = self.slots[index]
                if position < len(slot.values):
                    current = slot.values.index(state[index]) if state[index] in slot.values else 0
                    value = slot.values[(current + position) % len(slot.values)]
                    yield (*state[:index], value, *state[index + 1 :])

    def _blamed(self, trial: Trial) -> list[str]:
        """Parameters named in the error's text, or on the line of the user's that raised."""
        error = trial.error
        names = [slot.name for slot in self.slots]
        text = str(error)
        blamed = [n for n in names if len(n) > 2 and (f"'{n.rpartition('.')[2]}'" in text or n in text.split())]
        for _, line in last_lines(error.__traceback__ if error is not None else None, self.path)[:4]:
            source = linecache.getline(self.path, line).strip()
            used = words(source)
            blamed += [n for n in names if n in used or n.replace("[]", ".") in used]
        return list(dict.fromkeys(blamed))


def listed(state: State, indices: Sequence[int], text: str) -> Iterator[State]:
    """A list of numbers where one number was no list."""
    if not re.search(r"'(int|float)' object is not (subscriptable|iterable)|'(int|float)' has no len", text):
        return
    for index in indices:
        value = state[index]
        one = value if isinstance(value, Plain) else Plain("0.1" if "'float'" in text else "2")
        for count in (4, 2):
            yield (*state[:index], Group((one,) * count), *state[index + 1 :])


def tensorised(state: State, indices: Sequence[int], text: str) -> Iterator[State]:
    """Tensors where numbers were, alone or in lists, that have nothing of what only tensors have."""
    found = re.search(r"'(?:int|float|list|tuple)' object has no attribute '(\w+)'", text)
    if found is None or not hasattr(torch.Tensor, found[1]):
        return
    given = (t.shape for value in state if value is not None for t in tensors(value) if t.floating)
    shape = next(given, (2, 32, 8, 8))
    for index in indices:
        for part in dict.fromkeys((shape, shape[1:] or shape)):
            value = _filled(state[index], Tensor("float", part))
            if value is not None:
                yield (*state[:index], value, *state[index + 1 :])


def _filled(value: Value | None, tensor: Tensor) -> Value | None:
    """The value with a tensor for each number in it; None where it holds none, or something else."""
    if isinstance(value, Group) and value.kind != "object":
        items = [_filled(item, tensor) for item in value.items]
        kept = tuple(item for item in items if item is not None)
        return replace(value, items=kept) if len(kept) == len(items) > 0 else None
    if not isinstance(value, Plain):
        return None
    try:
        literal = ast.literal_eval(value.code)
    except (ValueError, SyntaxError):
        return None
    if isinstance(literal, int | float) and not isinstance(literal, bool):
        return tensor
    if not isinstance(literal, list | tuple) or not literal or len(literal) > MOST:
        return None
    return Group((tensor,) * len(literal), "list" if isinstance(literal, list) else "tuple")


def words(source: str) -> set[str]:
    """Names and dotted names in a line of code, whole statement or not."""
    found: set[str] = set()
    for text in (source, source.rstrip(":") + ": pass", source.rstrip(",")):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.add(f"{node.value.id}.{node.attr}")
        return found
    return set(re.findall(r"[A-Za-z_][\w.]*", source))
