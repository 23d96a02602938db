"""Calls two functions with equal inputs, and compares what they return, what they change, and their gradients."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .record import leaves_below

COARSE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Relative tolerance by dtype, of a tensor's largest value; all others have the default."""
RTOL = 1e-5


class Outcome:
    """What one call made: its result, its arguments afterwards, and a gradient for each leaf that has a name."""

    def __init__(self, result: Any, arguments: dict[str, Any], gradients: dict[str, Any]) -> None:
        self.result, self.arguments, self.gradients = result, arguments, gradients


class Inputs:
    """Copies of arguments: each float tensor becomes the clone of a new leaf, so that it may be written in place."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.dtype = dtype
        self.leaves: dict[str, torch.Tensor] = {}
        self.known: dict[int, Any] = {}

    def copied(self, value: Any, label: str) -> Any:
        """A copy of an argument; what is passed twice stays one object."""
        if id(value) not in self.known:
            self.known[id(value)] = self._copied(value, label)
        return self.known[id(value)]

    def _copied(self, value: Any, label: str) -> Any:
        if isinstance(value, torch.nn.Module):
            return self.module(value, label)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, label)
        if isinstance(value, Mapping):
            items = {key: self.copied(item, f"{label}[{key!r}]") for key, item in value.items()}
            return items if type(value) is dict else copy.copy(value) | items if isinstance(value, dict) else items
        if isinstance(value, tuple | list):
            parts = [self.copied(item, f"{label}[{index}]") for index, item in enumerate(value)]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return copy.deepcopy(value) if hasattr(value, "__dict__") and not callable(value) else value

    def _tensor(self, value: torch.Tensor, label: str) -> torch.Tensor:
        data = value.detach().clone()
        if not (data.is_floating_point() or data.is_complex()):
            return data
        if self.dtype is not None and data.is_floating_point():
            data = data.to(self.dtype)
        self.leaves[label] = data.requires_grad_()
        return data.clone()

    def module(self, value: torch.nn.Module, label: str) -> torch.nn.Module:
        """A copy of a module, whose parameters count as leaves."""
        twin = copy.deepcopy(value)
        if self.dtype is not None:
            twin = twin.to(self.dtype)
        for name, parameter in twin.named_parameters():
            if parameter.requires_grad:
                self.leaves[f"{label}.{name}" if label else name] = parameter
        return twin


def called(
    function: Callable[..., Any],
    state: Mapping[str, torch.Tensor] | None,
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
    dtype: torch.dtype | None,
    loss: Callable[[Any], torch.Tensor] | None,
    seed: int,
) -> Outcome:
    """Call a function with copies of the arguments, and backward from what it returns."""
    inputs = Inputs(dtype)
    function = _owned(function, state, inputs)
    args = tuple(inputs.copied(value, f"argument {index}") for index, value in enumerate(arguments[0]))
    kwargs = {key: inputs.copied(value, f"argument {key}") for key, value in arguments[1].items()}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        result = function(*args, **kwargs)
        root = loss(result) if loss is not None else _weighted(result)
    after = {f"argument {index}": value for index, value in enumerate(args)}
    after |= {f"argument {key}": value for key, value in kwargs.items()}
    leaves = dict(inputs.leaves)
    if root is not None and root.requires_grad:
        mine = {id(leaf) for leaf in leaves.values()}
        captured = [leaf for leaf in leaves_below([root]) if id(leaf) not in mine]
        leaves |= {f"captured leaf {index} {tuple(leaf.shape)}": leaf for index, leaf in enumerate(captured)}
        found = torch.autograd.grad(root, list(leaves.values()), allow_unused=True) if leaves else ()
        return Outcome(result, after, dict(zip(leaves, found, strict=True)))
    return Outcome(result, after, dict.fromkeys(leaves))


def state_of(function: Callable[..., Any]) -> Mapping[str, torch.Tensor] | None:
    """The parameters and buffers of a module, or of the module that a bound method belongs to."""
    owner = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
    return owner.state_dict() if isinstance(owner, torch.nn.Module) else None


def _owned(
    function: Callable[..., Any], state: Mapping[str, torch.Tensor] | None, inputs: Inputs
) -> Callable[..., Any]:
    """A copy of a module, or a method of such a copy, with the parameters of the first function's module."""
    owner = getattr(function, "__self__", None) if inspect.ismethod(function) else function
    if not isinstance(owner, torch.nn.Module):
        return function
    twin = inputs.module(owner, "")
    if state is not None:
        twin.load_state_dict(state)
    return getattr(twin, function.__name__) if inspect.ismethod(function) else twin


def _weighted(result: Any) -> torch.Tensor | None:
    """The sum of all elements that have a gradient, each with a weight of its own; None where there are none."""
    total = None
    for index, (_, tensor) in enumerate(tensors(result)):
        if tensor.requires_grad:
            generator = torch.Generator().manual_seed(index)
            weights = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).add(0.5)
            part = (tensor * weights.to(tensor.device, tensor.dtype)).sum()
            part = part.real + part.imag if part.is_complex() else part
            total = part if total is None else total + part.to(total.device, total.dtype)
    return total


def tensors(value: Any, label: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors inside containers and plain objects."""
    for name, item in leaves_of(value, label):
        if isinstance(item, torch.Tensor):
            yield name, item


def leaves_of(value: Any, label: str = "") -> Iterator[tuple[str, Any]]:
    """What containers and dataclasses hold in the end, with a label for each."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves_of(item, f"{label}[{key!r}]")
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaves_of(item, f"{label}[{index}]")
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        for name in value.__dataclass_fields__:
            yield from leaves_of(getattr(value, name), f"{label}.{name}")
    elif isinstance(value, torch.nn.Module):
        for name, item in value.state_dict().items():
            yield f"{label}.{name}", item
    else:
        yield label, value


def difference(what: str, a: Any, b: Any, rtol: float | None, atol: float) -> str:
    """How two values differ, in words; empty where they agree."""
    first, second = dict(leaves_of(a)), dict(leaves_of(b))
    if first.keys() != second.keys():
        return f"{what}: f gives {_shape(first)}, g gives {_shape(second)}"
    for label, x in first.items():
        words = _leaf(f"{what}{label}", x, second[label], rtol, atol)
        if words:
            return words
    return ""


def _shape(found: dict[str, Any]) -> str:
    names = ", ".join(f"{name or 'a value'} ({type(item).__name__})" for name, item in list(found.items())[:6])
    return names or "an empty container"


def _leaf(what: str, x: Any, y: Any, rtol: float | None, atol: float) -> str:
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return _tensor(what, x, y, rtol, atol)
    if isinstance(x, float) and isinstance(y, float):
        close = math.isclose(x, y, rel_tol=RTOL if rtol is None else rtol, abs_tol=atol) or (x != x and y != y)
        return "" if close else f"{what}: f gives {x!r}, g gives {y!r}"
    if type(x) is not type(y):
        return f"{what}: f gives {_brief(x)}, g gives {_brief(y)}"
    if getattr(type(x), "__eq__", None) is object.__dict__["__eq__"]:
        return ""  # objects that only equal themselves say nothing
    same = x == y
    return "" if same is NotImplemented or bool(same) else f"{what}: f gives {_brief(x)}, g gives {_brief(y)}"


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "none" if value is None else repr(value)[:80]


def _tensor(what: str, x: torch.Tensor, y: torch.Tensor, rtol: float | None, atol: float) -> str:
    for word, was, now in (
        ("dtype", x.dtype, y.dtype),
        ("shape", tuple(x.shape), tuple(y.shape)),
        ("requires_grad", x.requires_grad, y.requires_grad),
        ("device", x.device, y.device),
    ):
        if was != now:
            return f"{what}: f gives {word} {was}, g gives {word} {now}"
    wide = torch.complex128 if x.is_complex() else torch.float64
    a, b = (t.detach().to_dense().to("cpu", wide) for t in (x, y))
    gap = (a - b).abs()
    gap[(a == b) | (a.isnan() & b.isnan())] = 0
    gap = gap.nan_to_num(nan=math.inf)
    exact = not (x.is_floating_point() or x.is_complex())
    relative = 0.0 if exact else (COARSE.get(x.dtype, RTOL) if rtol is None else rtol)
    finite = a.abs()[a.abs().isfinite()]
    allowed = (0.0 if exact else atol) + relative * (float(finite.max()) if finite.numel() else 0.0)
    wrong = gap > allowed
    count = int(wrong.sum())
    if not count:
        return ""
    worst = int(gap.flatten().argmax())
    at = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), x.shape)) if x.dim() else ()
    where = f" at {at}" if at else ""
    f, g = (t.flatten()[worst].item() for t in (a, b))
    return (
        f"{what}: {count} of {x.numel()} elements differ, by up to {float(gap.max()):.3g}{where}: "
        f"f gives {f:.6g}, g gives {g:.6g} (allowed {allowed:.3g})"
    )
