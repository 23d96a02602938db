"""Calls to try: op_db's samples for the operations it knows, calls made up from schemas for all others."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import catalog_schemas as schemas
import numpy
import torch

# How many of op_db's samples to take, by dtype: single precision shows most, the others what differs for them.
PER_OP = {torch.float32: 10, torch.float64: 4, torch.int64: 4, torch.bool: 3}
PER_SCHEMA = 24
# What torch raises for arguments it does not accept; anything else is a fault of the generator.
REFUSALS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    KeyError,
    AssertionError,
    ImportError,
    NameError,
    ArithmeticError,
    BufferError,
)


@dataclass(frozen=True)
class Call:
    """Arguments of one call; `function` overrides the callable where op_db calls it in a way of its own."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    function: Callable[..., Any] | None = None

    def copy(self, grad: bool) -> Call:
        """Fresh tensors with the same strides; with `grad`, they require it without being leaves.

        Where op_db marked some tensors as requiring grad, only those do: running means must not.
        """
        marks = grad and any(_marked(v) for v in (self.args, self.kwargs))
        return Call(fresh(self.args, grad, marks), fresh(self.kwargs, grad, marks), self.function)


def fresh(value: Any, grad: bool, marks: bool = False) -> Any:
    """A copy of a nest of arguments in which no tensor shares storage with the original."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone()
        if grad and differentiable(value) and (value.requires_grad or not marks):
            return copy.requires_grad_().clone()
        return copy
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(fresh(v, grad, marks) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(fresh(v, grad, marks) for v in value)
    if isinstance(value, dict):
        return {k: fresh(v, grad, marks) for k, v in value.items()}
    return value.copy() if isinstance(value, numpy.ndarray) else value


def _marked(value: Any) -> bool:
    """True where some tensor in a nest of arguments requires grad."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(_marked(v) for v in items)


def differentiable(value: Any) -> bool:
    """True where some tensor in a nest of arguments can require grad."""
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() or value.is_complex()
    if isinstance(value, dict):
        return any(differentiable(v) for v in value.values())
    return isinstance(value, list | tuple) and any(differentiable(v) for v in value)


def seed(number: int = 0) -> None:
    """Make the next random numbers of torch, numpy and Python the same every time."""
    torch.manual_seed(number)
    numpy.random.seed(number)
    random.seed(number)


@cache
def _op_db() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


@cache
def op_index() -> dict[str, list[int]]:
    """Places in op_db by the names that operations go by, such as `add` and `nn.functional.relu`."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, op in enumerate(_op_db()):
        names = {op.name, *(alias.name for alias in op.aliases)}
        for variant in (op.method_variant, op.inplace_variant, op.operator_variant, op.inplace_operator_variant):
            if (name := getattr(variant, "__name__", None)) and hasattr(torch.Tensor, name):
                names.add(name)
        for name in names:
            found[name].append(place)
    return found


@cache
def op_calls(name: str) -> tuple[Call, ...]:
    """Calls that op_db samples for an operation: contiguous and not, in several dtypes."""
    return tuple(call for place in op_index().get(name, ()) for dtype in PER_OP for call in _samples(place, dtype))


def _op_samples(op: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    seed()
    try:
        if dtype not in op.supported_dtypes("cpu"):
            return ()
        grad = op.supports_autograd and dtype.is_floating_point
        return tuple(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 200))
    except REFUSALS:
        return ()


@cache
def _samples(place: int, dtype: torch.dtype) -> tuple[Call, ...]:
    op = _op_db()[place]
    samples = _op_samples(op, dtype)
    step = max(1, len(samples) // PER_OP[dtype])
    calls = []
    for sample in samples[::step]:
        calls.append(Call((sample.input, *sample.args), dict(sample.kwargs), op.op))
        try:
            strided = sample.noncontiguous()
        except REFUSALS:
            continue
        calls.append(Call((strided.input, *strided.args), dict(strided.kwargs), op.op))
    return tuple(calls)


@cache
def _tensors() -> tuple[torch.Tensor, ...]:
    seed()
    square = torch.rand(3, 3)
    return (
        square,
        torch.randint(0, 3, (3, 3)),
        square > 0.5,
        torch.randn(3, 3, dtype=torch.float64).t(),
        torch.randn(3, 3),
        torch.rand(3),
        torch.randint(0, 3, (3,)),
        torch.rand(()),
        torch.rand(2, 3, 3),
        torch.rand(3, 3).half(),
        torch.rand(3, 3, dtype=torch.complex64),
        torch.rand(3, 3).to_sparse(),
        torch.rand(1, 2, 4, 4),
    )


def _pool(argument: Any) -> tuple[Any, ...]:
    """Values worth trying for a schema's argument; a default is tried first."""
    kind = str(argument.type).removeprefix("Optional[").rstrip("]")
    lists = kind.startswith("List[")
    kind = kind.removeprefix("List[").removeprefix("Optional[")
    values: tuple[Any, ...]
    if kind == "Tensor":
        tensors = _tensors()
        values = tuple([t, t.clone()] for t in tensors[:3]) if lists else tensors
    elif kind in ("int", "SymInt"):
        values = ([3, 3], [0, 1], [1], [9]) if lists else (0, 1, 3, torch.float64)
    elif kind in ("float", "number", "Scalar"):
        values = ([0.5, 1.5],) if lists else (0.5, 2, 1.5)
    elif kind == "bool":
        values = ([True],) if lists else (False, True)
    elif kind == "Device":
        values = (torch.device("cpu"),)
    else:
        values = ()
    if argument.has_default_value():
        return (argument.default_value, *values[:1]) if values else (argument.default_value,)
    return values


@cache
def schema_calls(name: str) -> tuple[Call, ...]:
    """Calls made up for an aten operator from its schemas, defaults left out; most of them will be refused."""
    return tuple(call for schema in schemas.overloads(name) for call in itertools.islice(_made(schema), PER_SCHEMA))


def _made(schema: Any) -> Iterator[Call]:
    if schemas.is_out(schema) or any("str" in str(a.type) and not a.has_default_value() for a in schema.arguments):
        return
    needed = [a for a in schema.arguments if not a.has_default_value()]
    choices = list(itertools.islice(itertools.product(*(_pool(a) for a in needed)), 20000))
    # A fixed sample of the product: its head alone would vary only the last argument.
    chooser = random.Random(str(schema))
    chosen = choices if len(choices) <= PER_SCHEMA else chooser.sample(choices, PER_SCHEMA)
    for values in chosen:
        pairs = list(zip(needed, values, strict=True))
        args = tuple(v for a, v in pairs if not a.kwarg_only)
        yield Call(args, {a.name: v for a, v in pairs if a.kwarg_only})


@cache
def of_every_dtype() -> tuple[Call, ...]:
    """One call with a single tensor for each dtype that can be filled and copied, and for sparse layout."""
    dtypes = sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)}, key=str)
    calls = [Call((t,), {}) for t in _tensors()]
    for dtype in dtypes:
        try:
            calls.append(Call((torch.zeros(2, 3, dtype=dtype).clone(),), {}))
        except REFUSALS:
            continue
    return tuple(calls)


@cache
def pairs(of_tensor: bool) -> tuple[Call, ...]:
    """Calls with a tensor and something else, for what neither op_db nor a schema speaks of."""
    square = _tensors()[0]
    others: tuple[Any, ...] = (*_tensors()[:5], 2.0, 2, -1, 0, [3, 3], lambda *values: values[0] + 1)
    calls = [Call((first, other), {}) for first in _tensors()[:5] for other in others]
    calls.append(Call((square, square.clone(), lambda a, b: a + b), {}))
    calls.append(Call((square, square.clone(), square.clone(), lambda a, b, c: a + b), {}))
    for index in (0, _tensors()[2], slice(0, 1), _tensors()[5]):
        calls += [Call((square, index, 2.0), {}), Call((square, index, torch.ones(())), {})]
    if not of_tensor:
        calls += [Call((numpy.ones(3),), {}), Call(([square, square.clone()],), {}), Call((square, 1, 1), {})]
    return tuple(calls)
