"""Loads what two runs recorded and tells whether they saw the same training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deinplace.model import Place
from deinplace.verify import account
from deinplace.verify.drivers import Run
from deinplace.verify.records import (
    CALLS,
    Record,
    Values,
    any_order,
    floats,
    forward,
    recordings,
    streams,
    without_calls,
)

RTOL = 1e-5
ATOL = 1e-7
COARSE = {"float16": 2e-3, "bfloat16": 2e-2, "float8_e4m3fn": 0.2, "float8_e5m2": 0.4}
"""Relative tolerance of the types too coarse for the default."""
UNSTABLE = 1e-3
"""A value that moves by more than this part of its size between two equal runs cannot be compared at all."""
GRADIENTS = ("gradients", "consumed", "grad")
TRAINING = (*GRADIENTS, "backward", "stepped", "buffers", "returned")
"""Kinds whose largest error is reported; what plain names hold in the end may be a time of day."""
Key = tuple[int, int, str]


@dataclass(frozen=True)
class Difference:
    """A value that two recordings disagree on. `soft`: nothing that training consumed, only what a call left behind."""

    kind: str
    name: str
    label: str
    message: str
    soft: bool
    call: int = 0
    at: Place | None = None
    """The user's line in the second run at which the event happened."""
    position: int = 0
    """Number of the event among those that are no calls, from 1."""

    def __str__(self) -> str:
        where = f"{self.name.rsplit('/', 1)[-1]} {self.label}".strip()
        return f"{self.kind}: {where}: {self.message}"


@dataclass
class Comparison:
    """Outcome of a comparison; `noise` maps each value to how far two equal runs were apart there."""

    compared: int = 0
    gradients: int = 0
    steps: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    differences: list[Difference] = field(default_factory=list)
    dtypes: set[str] = field(default_factory=set)
    """Types of the gradients that were compared."""
    stepped: set[tuple[int, str, str]] = field(default_factory=set)
    """Parameters whose gradients were compared as an optimizer consumed them."""
    leaves: set[tuple[int, str, str]] = field(default_factory=set)
    """Leaves whose gradients were compared after a backward."""
    noise: dict[Key, float] = field(default_factory=dict)
    unstable: set[Key] = field(default_factory=set)
    unsteady: bool = False
    """True where gradients themselves vary from run to run, so that none can be confirmed."""

    def widen(self, other: Comparison) -> None:
        """Take in what another noise floor says."""
        for key, gap in other.noise.items():
            self.noise[key] = max(gap, self.noise.get(key, 0.0))
        self.unstable |= other.unstable
        self.unsteady |= other.unsteady

    @property
    def hard(self) -> list[Difference]:
        """Differences that refute."""
        return [d for d in self.differences if not d.soft]

    @property
    def soft(self) -> list[Difference]:
        """Differences in what calls left behind, which refute only when somebody reads it."""
        return [d for d in self.differences if d.soft]


def noise_floor(first: Run, second: Run) -> Comparison:
    """How far two runs of the same program are apart, by value. Positions count events other than calls."""
    a, b = ([without_calls(records) for records in recordings(run)] for run in (first, second))
    result = Comparison()
    if len(a) != len(b):
        result.differences.append(Difference("processes", "", "", f"{len(a)} became {len(b)}", soft=False))
    for process, (x, y) in enumerate(zip(a, b, strict=False)):
        _Comparer(result, Comparison(), process, measure=True).compare(x, y)
    return result


def compare(
    oracle: Run,
    other: Run,
    noise: Comparison,
    reordered: bool = False,
    calls: bool = True,
    rtol: float = RTOL,
    traced: bool = False,
) -> Comparison:
    """Whether `other` saw what the oracle saw, beyond tolerance and noise; without `calls`, in training alone.

    With `reordered`, backward calls and steps may have changed places: what each step consumed and made counts, in the
    order of each optimizer's own steps, and not what lay in `.grad` in between. With `traced`, a compiler has made one
    node of many, and leaves that no optimizer names come in another order.
    """
    result = Comparison()
    a, b = recordings(oracle), recordings(other)
    if len(a) != len(b):
        result.differences.append(
            Difference("processes", "", "", f"{len(a)} processes with torch became {len(b)}", soft=False)
        )
    for process, (x, y) in enumerate(zip(a, b, strict=False)):
        if not calls:
            x, y = without_calls(x), without_calls(y)
        if traced:
            x, y = any_order(x), any_order(y)
        if not reordered:
            _Comparer(result, noise, process, rtol=rtol).compare(x, y)
            continue
        left, right = streams(x), streams(y)
        for stream in dict.fromkeys((*left, *right)):
            comparer = _Comparer(result, Comparison(), process, rtol=rtol, moved=True)
            comparer.compare(left.get(stream, []), right.get(stream, []))
    return result


def compare_forward(oracle: Run, other: Run, noise: Comparison) -> Comparison:
    """Whether two programs call their first backward on the same values, whatever they would make of it."""
    result = Comparison()
    for process, (x, y) in enumerate(zip(recordings(oracle), recordings(other), strict=False)):
        _Comparer(result, noise, process).compare(forward(x), forward(y))
    return result


def first_call_that_differs(oracle: Run, other: Run, before: int) -> Difference | None:
    """The first call of a recorded function, before the event number `before`, that did not return what it did."""
    for process, (x, y) in enumerate(zip(recordings(oracle), recordings(other), strict=False)):
        theirs: dict[str, list[Record]] = {}
        for record in y:
            if record.kind == "returned":
                theirs.setdefault(record.name, []).append(record)
        count: Counter[str] = Counter()
        position = 0
        for record in x:
            position += record.kind not in CALLS
            if position >= before:
                break
            if record.kind != "returned" or count[record.name] >= len(theirs.get(record.name, ())):
                continue
            result = Comparison()
            _Comparer(result, Comparison(), process).compare([record], [theirs[record.name][count[record.name]]])
            count[record.name] += 1
            if result.differences:
                return replace(result.differences[0], call=count[record.name])
    return None


def _switched_off(label: str, a: Any, b: Any) -> bool:
    """An option that a rewrite is there to change, such as `OPTIONS.inplace`."""
    return a is True and b is False and "inplace" in label.rsplit(".", 1)[-1].lower().replace("_", "")


class _Comparer:
    """Walks two recordings side by side."""

    def __init__(
        self,
        result: Comparison,
        noise: Comparison,
        process: int,
        measure: bool = False,
        rtol: float = RTOL,
        moved: bool = False,
    ) -> None:
        self.result, self.noise, self.process, self.measure = result, noise, process, measure
        self.rtol, self.moved = rtol, moved
        self.position = 0
        self.record = self.other = Record("", "", {}, False)
        self.calls: dict[str, int] = {}

    def compare(self, a: Sequence[Record], b: Sequence[Record]) -> None:
        """Compare event by event, up to the first point where the order of events differs."""
        for x, y in zip(a, b, strict=False):
            self.record, self.other = x, y
            if (x.kind, x.name) != (y.kind, y.name):
                self.differ("", f"{x.kind} {_short(x.name)} became {y.kind} {_short(y.name)}", hard=True)
                return
            if x.kind == "after call":
                self.calls[x.name] = self.calls.get(x.name, 0) + 1
            if x.kind not in CALLS:
                self.position += 1
            self.result.steps += x.kind == "stepped"
            self.mapping("", x.values, y.values)
        if len(a) != len(b):
            self.differ("", f"{len(a)} events became {len(b)}", hard=True)

    def mapping(self, path: str, a: Values, b: Values) -> None:
        extra_allowed = self.record.kind == "end" or self.record.soft
        for key, value in a.items():
            label = f"{path}.{key}" if path else key
            if key not in b:
                self.differ(label, "is missing")
            else:
                self.value(label, value, b[key])
        if not extra_allowed:
            for key in b.keys() - a.keys():
                self.differ(f"{path}.{key}" if path else key, "appeared")

    def value(self, label: str, a: Any, b: Any) -> None:
        if isinstance(a, list) and isinstance(b, list):
            a, b = {"q": a, "n": len(a)}, {"q": b, "n": len(b)}
        if not isinstance(a, dict) or not isinstance(b, dict):
            if a != b:
                self.differ(label, "is no value any more" if b is None else f"{_brief(a)} became {_brief(b)}")
            return
        kinds = [next((k for k in "tpqm" if k in x), "") for x in (a, b)]
        if kinds[0] != kinds[1] or (kinds[0] != "p" and a.get("n") != b.get("n")):
            self.differ(label, f"{_brief(a)} became {_brief(b)}")
        elif kinds[0] == "t":
            self.tensor(label, a, b)
        elif kinds[0] == "p":
            self.plain(label, a["p"], b["p"])
        elif kinds[0] == "q":
            for index, (x, y) in enumerate(zip(a["q"], b["q"], strict=False)):
                self.value(f"{label}[{index}]", x, y)
        elif kinds[0] == "m":
            self.mapping(label, a["m"], b["m"])

    def plain(self, label: str, a: Any, b: Any) -> None:
        self.result.compared += 1
        if isinstance(a, float) and isinstance(b, float):
            self.numbers(label, [a], [b], abs(a), self.rtol)
        elif a != b and not _machine_path(a, b) and not (self.record.kind == "end" and _switched_off(label, a, b)):
            self.differ(label, f"{_brief(a)} became {_brief(b)}")

    def tensor(self, label: str, a: Any, b: Any) -> None:
        for key, word in (("t", "dtype"), ("s", "shape"), ("g", "requires_grad")):
            if a[key] != b[key]:
                if key == "g" and self.moved and self.record.kind == "stepped":
                    continue  # a step that moves past a freeze or a thaw steps all the same
                self.differ(label, f"{word} {a[key]} became {b[key]}")
                return
        if "v" not in a or "v" not in b:
            return
        self.result.compared += 1
        if self.record.kind in GRADIENTS:
            self.result.gradients += 1
            self.result.dtypes.add(a["t"])
            seen = self.result.stepped if self.record.kind == "consumed" else self.result.leaves
            seen.add((self.process, self.record.name, label))
        if a["v"] == b["v"]:
            return
        x, y = floats(a["v"]), floats(b["v"])
        scale = x[0] if a.get("sketch") else max((abs(v) for v in x if math.isfinite(v)), default=0.0)
        exact = a["t"].startswith(("int", "uint", "bool"))
        self.numbers(label, x, y, scale, 0.0 if exact else max(COARSE.get(a["t"], 0.0), self.rtol))

    def numbers(self, label: str, x: Sequence[float], y: Sequence[float], scale: float, rtol: float) -> None:
        worst = 0.0
        for a, b in zip(x, y, strict=True):
            if a == b or (a != a and b != b):
                continue
            gap = abs(a - b)
            worst = max(worst, gap if gap == gap else math.inf)
        key = (self.process, self.position, label)
        if self.measure:
            if worst > UNSTABLE * scale:
                self.differ(label, "varies from run to run")
            elif worst:
                self.result.noise[key] = worst
            return
        if key in self.noise.unstable and self.record.kind not in CALLS:
            return
        allowed = (ATOL if rtol else 0.0) + rtol * scale + 4 * self.noise.noise.get(key, 0.0)
        if worst > allowed:
            self.differ(label, f"values differ by up to {worst:.3g} (allowed {allowed:.3g})")
            return
        if self.record.kind not in TRAINING:
            return
        self.result.max_abs = max(self.result.max_abs, worst)
        if scale:
            self.result.max_rel = max(self.result.max_rel, worst / scale)

    def differ(self, label: str, message: str, hard: bool = False) -> None:
        key = (self.process, self.position, label)
        if self.measure:
            self.result.unstable.add(key)
            self.result.unsteady |= self.record.kind in GRADIENTS
        elif key in self.noise.unstable and self.record.kind not in CALLS:
            return
        soft = self.record.soft and not hard
        name = self.record.name
        self.result.differences.append(
            Difference(
                self.record.kind, name, label, message, soft, self.calls.get(name, 0), self.place(), self.position
            )
        )

    def place(self) -> Place | None:
        """Where the event happened."""
        at = self.other.at or self.record.at
        return account.places([at])[0] if at is not None else None


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        if "t" in value:
            return f"{value['t']} tensor of shape {tuple(value['s'])}"
        if "p" in value:
            return repr(value["p"])[:60]
        if "n" in value:
            return f"{value['n']} items"
    return repr(value)[:60]


def _machine_path(a: Any, b: Any) -> bool:
    """Absolute paths may name the folder of a run."""
    return isinstance(a, str) and isinstance(b, str) and a.startswith("/") and b.startswith("/")
