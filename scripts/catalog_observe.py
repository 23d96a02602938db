"""Run one call and see what it did: writes, changes of metadata or autograd state, aliases, saved tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from catalog_calls import REFUSALS, Call, seed

Names = Callable[[int, bool], str]


@dataclass(frozen=True)
class Observation:
    """What one call did. Sets hold argument names; `saved_results` holds indices of results."""

    wrote: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()
    autograd: frozenset[str] = frozenset()
    same: frozenset[str] = frozenset()
    """Arguments that came back as the very object."""
    views: frozenset[str] = frozenset()
    """Arguments whose storage a result shares without being the same object."""
    results: int = 0
    """How many tensors came back."""
    several: bool = False
    """More than one result shares storage with the same argument."""
    saves: frozenset[str] = frozenset()
    saved_results: frozenset[int] = frozenset()
    foreign: frozenset[str] = frozenset()
    """Arguments whose memory a returned NumPy array shares."""
    placed: bool = False
    """Every result lies in a storage, so that aliases could be told."""
    outputs: tuple[bool, ...] = ()
    """For each tensor of a tuple that came back, whether it requires gradients."""
    alone: bool = False
    """Only one argument was, or held, a tensor."""
    value: Any = field(default=None, compare=False, repr=False)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Tensors in a nest of tuples, lists and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def storage_of(tensor: torch.Tensor) -> int | None:
    """Address of a tensor's storage; None for layouts without one (sparse) and for empty storages."""
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
    return storage.data_ptr() if storage.nbytes() else None


def bytes_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """A copy of a tensor's whole storage; None where it has none."""
    if storage_of(tensor) is None:
        return None
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).clone()


def _metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return tensor.shape, tensor.dtype, tensor.layout, _nonzeros(tensor)
    storage = tensor.untyped_storage()
    place = tensor.stride(), tensor.storage_offset(), storage_of(tensor), storage.nbytes()
    return tensor.shape, tensor.dtype, tensor.is_shared(), *place


def _nonzeros(tensor: torch.Tensor) -> Any:
    return tensor._nnz() if tensor.layout is not torch._mkldnn else None  # type: ignore[attr-defined]


def _autograd(tensor: torch.Tensor) -> tuple[Any, ...]:
    hooks = len(tensor._backward_hooks or ())
    return tensor.requires_grad, tensor.is_leaf, tensor.retains_grad, hooks, tensor.grad is None


@dataclass(frozen=True)
class _Before:
    name: str
    tensor: torch.Tensor
    data: torch.Tensor | None
    metadata: tuple[Any, ...]
    autograd: tuple[Any, ...]
    storage: int | None
    version: int


def _arguments(call: Call, names: Names) -> Iterator[tuple[str, Any]]:
    for position, value in enumerate(call.args):
        yield names(position, any(True for _ in tensors_in(value))), value
    yield from call.kwargs.items()


def _before(name: str, tensor: torch.Tensor, storage: int | None) -> _Before:
    data = bytes_of(tensor)
    return _Before(name, tensor, data, _metadata(tensor), _autograd(tensor), storage, tensor._version)


def _snapshot(call: Call, names: Names) -> list[_Before]:
    found = []
    for name, value in _arguments(call, names):
        found += [_before(name, tensor, storage_of(tensor)) for tensor in tensors_in(value)]
        if isinstance(value, numpy.ndarray):
            found.append(_before(name, torch.empty(0), value.ctypes.data))
    return found


def observe(function: Callable[..., Any], call: Call, names: Names, grad: bool) -> Observation | None:
    """Call `function` on fresh copies; None where it refused them."""
    call = call.copy(grad)
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    before = _snapshot(call, names)
    seed()
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            value = function(*call.args, **call.kwargs)
    except REFUSALS:
        return None
    if value is NotImplemented:
        return None
    return _compare(before, value, saved)


def _compare(before: Sequence[_Before], value: Any, saved: Sequence[torch.Tensor]) -> Observation:
    results = list(tensors_in(value))
    storages = [storage_of(r) for r in results]
    wrote = {b.name for b in before if _data_changed(b)}
    kept = {storage_of(t) for t in saved} - {None}
    same = {b.name for b in before if any(r is b.tensor for r in results)}
    # The version counter tells of writes that changed no byte, such as relu_ of positive numbers.
    touched = wrote | {b.name for b in before if b.tensor._version != b.version}
    inputs = {b.storage for b in before if b.name not in touched}
    shared = {b.name: _sharing(b, results, storages) for b in before}
    return Observation(
        wrote=frozenset(wrote),
        metadata=frozenset(b.name for b in before if b.data is not None and _metadata(b.tensor) != b.metadata),
        autograd=frozenset(b.name for b in before if _autograd(b.tensor) != b.autograd and b.name not in wrote),
        same=frozenset(same),
        views=frozenset(name for name, count in shared.items() if count),
        results=len(results),
        several=any(count > 1 for count in shared.values()),
        saves=frozenset(b.name for b in before if b.storage in kept and b.name not in touched),
        saved_results=frozenset(i for i, s in enumerate(storages) if s in kept and s not in inputs),
        foreign=frozenset(
            b.name for b in before if isinstance(value, numpy.ndarray) and value.ctypes.data == b.storage
        ),
        placed=all(s is not None for s in storages),
        outputs=_outputs(value),
        alone=len({b.name for b in before}) == 1,
        value=value,
    )


def _outputs(value: Any) -> tuple[bool, ...]:
    plain = isinstance(value, tuple) and all(isinstance(v, torch.Tensor) for v in value)
    return tuple(v.requires_grad for v in value) if plain else ()


def _sharing(before: _Before, results: Sequence[torch.Tensor], storages: Sequence[int | None]) -> int:
    """How many results, other than the argument itself, live in its storage."""
    pairs = zip(results, storages, strict=True)
    return sum(before.storage is not None and s == before.storage and r is not before.tensor for r, s in pairs)


def _data_changed(before: _Before) -> bool:
    after = bytes_of(before.tensor)
    if before.data is None or after is None or before.data.numel() != after.numel():
        return False
    return storage_of(before.tensor) == before.storage and not torch.equal(before.data, after)
