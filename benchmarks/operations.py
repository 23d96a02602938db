"""Every operation of torch that writes in place, as small programs, and calls to try each of them with."""

from __future__ import annotations

import inspect
import itertools
import keyword
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import catalog_calls as calls
import catalog_schemas as schemas

DTYPES = (torch.float64, torch.float32, torch.complex128, torch.int64, torch.bool)
AUGMENTED = {
    "__iadd__": "+=", "__isub__": "-=", "__imul__": "*=", "__itruediv__": "/=", "__ifloordiv__": "//=",
    "__imod__": "%=", "__ipow__": "**=", "__iand__": "&=", "__ior__": "|=", "__ixor__": "^=",
    "__ilshift__": "<<=", "__irshift__": ">>=",
}  # fmt: skip
"""Python's own names (data model, 3.3.8)."""
SPACES = {
    "torch": torch, "torch.nn.functional": torch.nn.functional, "torch.linalg": torch.linalg,
    "torch.special": torch.special, "torch.fft": torch.fft,
}  # fmt: skip
HEAD = "import torch\n\n\ndef program({}):\n"


@dataclass(frozen=True)
class Operation:
    """One way to write in place: `form` says which, `name` is torch's, `write` makes the statements from arguments."""

    form: str
    name: str
    known: str
    """What op_db calls it; empty where it does not know it."""
    write: Callable[[str], str]
    out: Callable[..., Any] | None = None
    """For `out=`: the function, which says what the result looks like."""


@dataclass(frozen=True)
class Sample:
    """Arguments of one call, the written tensor first; `origin` says where they come from."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    origin: str


def operations() -> list[Operation]:
    """All of them, by form and name: read off torch itself."""
    found = [*_methods(), *_functions(), *_flags(), *_outs()]
    return sorted(found, key=lambda o: (o.form, o.name))


def _methods() -> Iterator[Operation]:
    for name in dir(torch.Tensor):
        if name in AUGMENTED:
            symbol = AUGMENTED[name]
            yield Operation("x += r", name, name.strip("_"), lambda rest, s=symbol: f"    x {s} {rest}\n    return x\n")  # type: ignore[misc]
        if name.startswith("_") or not name.endswith("_") or not callable(getattr(torch.Tensor, name)):
            continue
        yield Operation("x.op_()", name, name, lambda rest, n=name: f"    x.{n}({rest})\n    return x\n")  # type: ignore[misc]
        yield Operation("y = x.op_()", name, name, lambda rest, n=name: f"    y = x.{n}({rest})\n    return x, y\n")  # type: ignore[misc]


def _functions() -> Iterator[Operation]:
    for space in ("torch", "torch.nn.functional"):
        for name in dir(SPACES[space]):
            if name.startswith("_") or not name.endswith("_") or not callable(getattr(SPACES[space], name)):
                continue
            whole = f"{space}.{name}"
            known = name if space == "torch" else whole.removeprefix("torch.")
            yield Operation(
                "torch.op_(x)", whole, known, lambda rest, w=whole: f"    {w}({_first(rest)})\n    return x\n"
            )  # type: ignore[misc]


def _flags() -> Iterator[Operation]:
    space = "torch.nn.functional"
    for name, function in vars(torch.nn.functional).items():
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if "inplace" in inspect.signature(function).parameters:
            whole = f"{space}.{name}"
            known = whole.removeprefix("torch.")
            text = lambda rest, w=whole: f"    {w}({_first(rest)}, inplace=True)\n    return x\n"  # noqa: E731
            yield Operation("F.op(x, inplace=True)", whole, known, text)


def _outs() -> Iterator[Operation]:
    for place, op in enumerate(calls._op_db()):
        space, _, name = op.name.rpartition(".")
        whole = f"torch.{op.name}"
        function = getattr(SPACES.get(f"torch.{space}" if space else "torch"), name, None)
        if op.supports_out and function is not None and calls.op_index()[op.name][0] == place:
            text = lambda rest, w=whole: f"    {w}({_first(rest)}, out=out)\n    return out\n"  # noqa: E731
            yield Operation("torch.op(out=y)", whole, op.name, text, function)


def _first(rest: str) -> str:
    return f"x, {rest}" if rest else "x"


def program(operation: Operation, sample: Sample) -> tuple[str, dict[str, Any]]:
    """The program that makes one call, and what its function is to be given beside the tensor."""
    given: dict[str, Any] = {}
    words = [_word(value, f"a{at}", given) for at, value in enumerate(sample.args[1:])]
    plain = {k: v for k, v in sample.kwargs.items() if not keyword.iskeyword(k)}
    words += [f"{name}={_word(value, f'k_{name}', given)}" for name, value in plain.items()]
    if len(plain) < len(sample.kwargs):
        given["more"] = {k: v for k, v in sample.kwargs.items() if k not in plain}
        words.append("**more")
    names = ", ".join(["x", *given, *(["out"] if operation.out else [])])
    return HEAD.format(names) + operation.write(", ".join(words)), given


def _word(value: Any, name: str, given: dict[str, Any]) -> str:
    """How an argument stands in the call: as a literal where it is one, else by name."""
    literal = (
        value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    )
    if literal and type(value) in (bool, int, str, float, type(None)):
        return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)
    given[name] = value
    return name


def samples(operation: Operation, dtypes: tuple[torch.dtype, ...], most: int | None) -> Iterator[Sample]:
    """Calls that op_db knows, in each dtype, then calls made up from the schemas of that name."""
    for place in _places(operation.known):
        for dtype in dtypes:
            found = _known(place, dtype)
            if operation.form == "x += r":  # the operator takes one argument
                found = tuple(s for s in found if len(s.args) == 2 and not s.kwargs)
            yield from itertools.islice(found, most)
    if operation.form in ("x.op_()", "torch.op_(x)"):
        for schema in schemas.overloads(operation.name.rpartition(".")[2]):
            for call in itertools.islice(calls._made(schema), most and 2 * most):
                if call.args and isinstance(call.args[0], torch.Tensor):
                    yield Sample(
                        call.args, call.kwargs, f"aten::{schema.name.removeprefix('aten::')}.{schema.overload_name}"
                    )


@cache
def _places(known: str) -> tuple[int, ...]:
    """Places in op_db of an operation by its name, or by that of its operator such as `iadd`."""
    operators = (getattr(op.inplace_operator_variant, "__name__", "") for op in calls._op_db())
    return tuple(calls.op_index().get(known, ())) or tuple(at for at, name in enumerate(operators) if name == known)


@cache
def _known(place: int, dtype: torch.dtype) -> tuple[Sample, ...]:
    op = calls._op_db()[place]
    found = calls._op_samples(op, dtype)
    if dtype.is_complex and op.supports_autograd and dtype in op.supported_dtypes("cpu"):
        calls.seed()
        found = tuple(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), 200))
    return tuple(
        Sample((s.input, *s.args), dict(s.kwargs), f"op_db {str(dtype).removeprefix('torch.')}")
        for s in found
        if isinstance(s.input, torch.Tensor)
    )


def written_schemas() -> dict[str, list[str]]:
    """Overloads that write their first argument and have a functional twin, by name such as `add_`."""
    every = {(s.name, s.overload_name): s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")}
    found: dict[str, list[str]] = {}
    for (name, overload), schema in sorted(every.items()):
        first = schema.arguments[0] if schema.arguments else None
        written = first is not None and first.alias_info is not None and first.alias_info.is_write
        if written and name.endswith("_") and not name.endswith("__") and (name[:-1], overload) in every:
            found.setdefault(name.removeprefix("aten::"), []).append(f"{name}.{overload}")
    return found
