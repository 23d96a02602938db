"""Does the functional twin of an in-place operation mean the same? Decided by running both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from catalog_calls import REFUSALS, Call, seed
from catalog_observe import bytes_of, storage_of, tensors_in
from catalog_surface import Public, functions, methods

Entry = dict[str, Any]
MOST = 60


@dataclass(frozen=True)
class _Comparison:
    value: bool
    dtype: bool
    shape: bool


def twin_of(public: Public) -> Public | None:
    """The callable of the same name without its mark of being in place, if torch has one."""
    space, _, name = public.name.rpartition(".")
    if name.startswith("__i"):
        return methods().get(f"__{name[3:]}")
    plain = name.removesuffix("_")
    if not public.method:
        return functions().get(f"{space}.{plain}")
    return methods().get(plain) or functions().get(f"torch.{plain}")


def compare(public: Public, calls: Sequence[Call], data: bool) -> Entry:
    """Run an in-place operation and its twin on the same arguments and seeds.

    A namesake that gives other values is not a twin: it is recorded as `namesake`.
    """
    calls = _some(calls)
    entry: Entry = {"random": data and _is_random(public, calls)}
    twin = twin_of(public)
    if twin is None:
        return entry
    even = [c for call in calls if not _mixed(call) and (c := _both(public.call, twin.call, call)) is not None]
    halved = [half for call in calls if (half := _halved(call))]
    mixed = [c for call in halved if (c := _both(public.call, twin.call, call)) is not None]
    same = bool(even) and all(c.value for c in even)
    entry["twin" if same else "namesake"] = twin.name
    if same:
        entry["twin_keeps_dtype"] = all(c.dtype for c in even)
        entry["twin_keeps_shape"] = all(c.shape for c in even)
        entry["twin_promotes"] = any(not c.dtype for c in mixed)
    return entry


def _some(calls: Sequence[Call]) -> list[Call]:
    """At most MOST calls, taken evenly."""
    unique = list({id(call): call for call in calls}.values())
    return unique[:: max(1, len(unique) // MOST)]


def _mixed(call: Call) -> bool:
    """True where another argument's dtype would promote the first's: `half + float`."""
    first, *others = [*tensors_in((call.args, call.kwargs))] or [None]
    return first is not None and any(torch.promote_types(first.dtype, t.dtype) != first.dtype for t in others)


def _run(function: Callable[..., Any], call: Call, number: int = 0) -> tuple[Any, Call] | None:
    call = call.copy(False)
    seed(number)
    try:
        return function(*call.args, **call.kwargs), call
    except REFUSALS:
        return None


def _first(value: Any) -> torch.Tensor | None:
    return next(tensors_in(value), None)


def _both(in_place: Callable[..., Any], plain: Callable[..., Any], call: Call) -> _Comparison | None:
    """None where one of the two refuses: a program that runs has no need of a twin that does not."""
    left, right = _run(in_place, call), _run(plain, call)
    if left is None or right is None:
        return None
    written = _first(left[1].args)
    result = _first(right[0])
    before = _first(call.args)
    if written is None or result is None or before is None:
        return None
    if written.layout is not torch.strided or result.layout is not torch.strided:
        return None
    # The twin must leave its argument alone: `squeeze` does, an in-place operation under another name does not.
    kept = _first(right[1].args)
    same = kept is not None and kept.shape == before.shape and _equal(kept, before) and _equal(written, result)
    return _Comparison(same, written.dtype == result.dtype, written.shape == result.shape)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal values, NaN included, whatever the dtypes."""
    if a.shape != b.shape:
        return False
    try:
        wide = torch.promote_types(a.dtype, b.dtype)
        return torch.allclose(a.to(wide), b.to(wide), rtol=1e-6, atol=0, equal_nan=True)
    except REFUSALS:  # dtypes without arithmetic
        one, two = bytes_of(a), bytes_of(b)
        return one is None or two is None or torch.equal(one, two)


def _halved(call: Call) -> Call | None:
    """The call with its first tensor in half precision and the others as they are."""
    if not call.args or not isinstance(call.args[0], torch.Tensor) or call.args[0].dtype is not torch.float32:
        return None
    others = [t for t in tensors_in((call.args[1:], call.kwargs)) if t.is_floating_point()]
    if not others:
        return None
    return Call((call.args[0].half(), *call.args[1:]), call.kwargs, call.function)


def _is_random(public: Public, calls: Sequence[Call]) -> bool:
    """True where another seed gives another result."""
    for call in calls:
        one, two = _run(public.call, call, 1), _run(public.call, call, 2)
        first = one and _first(one[1].args)
        second = two and _first(two[1].args)
        if first is None or second is None or storage_of(first) is None:
            continue
        if first.shape == second.shape and not _equal(first, second):
            return True
    return False
