"""What the catalog knows of an operation, in the terms that the analysis uses."""

from __future__ import annotations

from functools import cache

from deinplace.catalog import FunctionInfo, ModuleEntry, load

_BILINEAR = ("mul", "div", "matmul", "mm", "bmm", "mv", "dot", "outer", "linear", "conv", "einsum", "addmm", "baddbmm")


@cache
def method(name: str) -> FunctionInfo | None:
    """A Tensor method or attribute."""
    return load().method(name)


@cache
def function(dotted: str) -> FunctionInfo | None:
    """A function by its public name."""
    return load().function(dotted)


@cache
def module(dotted: str) -> ModuleEntry | None:
    """A module class; re-exports from `torch.nn.modules.*` are looked up under `torch.nn`."""
    found = load().module(dotted)
    if found is None and dotted.startswith("torch.nn.modules."):
        found = load().module("torch.nn." + dotted.rpartition(".")[2])
    return found


@cache
def augments(special: str) -> bool:
    """Whether Tensor has this method of `x op= y`; where it has none (`@=`), Python binds a new tensor."""
    return any(entry.method == special for entry in load().augmented.values())


@cache
def operators() -> frozenset[str]:
    """Names of operations that Python's operators stand for: numbers and lists have them too."""
    names = {a.plain.name.strip("_") for a in load().augmented.values()}
    renamed = {
        "truediv": "div",
        "floordiv": "floor_divide",
        "mod": "remainder",
        "and": "bitwise_and",
        "or": "bitwise_or",
    }
    shifts = {"xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
    return frozenset(
        names | {v for k, v in (renamed | shifts).items() if k in names} | {"neg", "eq", "ne", "lt", "le", "gt", "ge"}
    )


def saved(op: str, entry: FunctionInfo | None, inputs: int) -> frozenset[str]:
    """Names of what an operation keeps for backward."""
    entry = entry or method(op)
    if entry is None:
        return frozenset()
    return entry.saves if inputs > 1 else entry.saves_alone or (entry.saves & {"result"})


@cache
def gives_bool(op: str) -> bool:
    """True where a result is boolean although the in-place form keeps its dtype."""
    entry = method(op + "_")
    return entry is not None and entry.effect == "data" and entry.twin is not None and not entry.twin_keeps_dtype


def constant(op: str) -> bool:
    """True for operations whose result never requires gradients, whatever they are given."""
    return op.startswith(("new_", "arg")) or op.endswith("_like")


def bilinear(op: str) -> bool:
    """True where an argument is kept for the gradients of the others only."""
    return op.startswith(_BILINEAR) and "loss" not in op


@cache
def functional(name: str) -> str:
    """The operation that an in-place method does: its twin, or itself where there is none."""
    entry = method(name)
    return entry.twin if entry is not None and entry.twin is not None else name


@cache
def members() -> frozenset[str]:
    """What the tensors are called that operations give in a tuple: `values`, `indices`."""
    return frozenset(name for f in load().functions() if f.outputs is not None for name in f.outputs.names)


@cache
def has_parameters(dotted: str) -> bool:
    """True where a module's forward keeps parameters, so that its output requires gradients."""
    entry = module(dotted)
    if entry is None:
        return False
    named = any("weight" in name or "bias" in name for name in entry.saves)
    return named or dotted.rpartition(".")[2].startswith(
        ("Embedding", "Linear", "Conv", "LayerNorm", "BatchNorm", "GroupNorm")
    )
