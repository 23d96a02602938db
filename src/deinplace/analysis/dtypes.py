"""Element types, as far as they are known: `float` stands for the program's default floating type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from deinplace.analysis import facts
from deinplace.analysis.machine import Machine
from deinplace.analysis.memory import children
from deinplace.analysis.values import Const, Obj, Other, Ref, Ten, Union, Value

_EXACT = {
    "torch.float32": "float",
    "torch.float": "float",
    "torch.float64": "float64",
    "torch.double": "float64",
    "torch.float16": "float16",
    "torch.half": "float16",
    "torch.bfloat16": "bfloat16",
    "torch.int64": "int64",
    "torch.long": "int64",
    "torch.int32": "int32",
    "torch.int": "int32",
    "torch.int16": "int16",
    "torch.int8": "int8",
    "torch.uint8": "uint8",
    "torch.bool": "bool",
    "torch.complex64": "complex64",
    "torch.complex128": "complex128",
}


def of_value(m: Machine, value: Value | None) -> str:
    """The dtype that a `dtype=` argument names."""
    return _spelled(m, value.name) if isinstance(value, Ref) else ""


def _spelled(m: Machine, dotted: str) -> str:
    """A dtype by its name; a program that sets another default type means float32 when it says so."""
    dtype = _EXACT.get(dotted, "")
    return "float32" if dtype == "float" and m.index.sets_default_dtype else dtype


def is_float(dtype: str) -> bool:
    """True for a real floating type."""
    return "float" in dtype


def differ(m: Machine, one: str, other: str) -> bool:
    """True where two dtypes are known and not the same, whatever the default floating type is."""
    unsure = m.index.sets_default_dtype and "float" in (one, other) and is_float(one) and is_float(other)
    return bool(one and other) and one != other and not unsure


def cast(m: Machine, op: str) -> str:
    """The dtype that a conversion method such as `double` gives."""
    return _spelled(m, f"torch.{op}")


def factory(m: Machine, op: str, values: list[Value]) -> str:
    """The dtype that a factory without `dtype=` gives: by its values where it is given some."""
    found: set[str] = set()
    for value in values:
        found |= {type(v).__name__ for v in _leaves(m, value)}
    if op in ("randint", "randperm"):
        return "int64"
    if op in ("tensor", "as_tensor", "arange", "full", "scalar_tensor"):
        known = {"float": "float", "int": "int64", "bool": "bool"}
        if "float" in found:
            return "float"
        return known.get(found.pop(), "") if len(found) == 1 else ""
    return "float"


def _leaves(m: Machine, value: Value, depth: int = 4) -> list[object]:
    if isinstance(value, Const):
        return [value.value]
    if isinstance(value, Obj) and depth:
        return [leaf for child in children(value, m.m) for leaf in _leaves(m, child, depth - 1)]
    return [None]


def promoted(m: Machine, values: list[Value]) -> str:
    """The dtype of an elementwise result; empty where it is not known."""
    out = ""
    known = [m.dtype_of(v) for v in _options(values) if isinstance(v, Ten)]
    for dtype in known:
        if not dtype:
            return ""
        if out and dtype != out:
            floats = [d for d in (out, dtype) if is_float(d)]
            out = floats[0] if len(floats) == 1 else ""
            if not out:
                return ""
        else:
            out = dtype
    if out and not is_float(out) and any(_floating(v) for v in values):
        return "float"
    return out


_WHOLE = frozenset(
    {"add", "sub", "mul", "neg", "abs", "bitwise_and", "bitwise_or", "bitwise_xor", "masked_fill", "masked_scatter",
     "scatter", "scatter_add", "index_copy", "index_add", "index_fill", "index_put", "clamp", "clamp_min", "clamp_max",
     "relu", "triu", "tril", "squeeze", "unsqueeze", "remainder"}
)  # fmt: skip
"""Operations that leave whole numbers as wide as they are."""


def kept(m: Machine, op: str, target: Ten, others: list[Value]) -> bool:
    """True where an operation out of place gives the dtype that its target has."""
    dtype = m.dtype_of(target)
    if facts.gives_bool(op):
        return dtype == "bool"
    if op in ("copy", "put", "fill", "zero"):
        return True
    if op == "float_power":
        return False
    if not m.lenient and not is_float(dtype) and (op not in _WHOLE or dtype == "bool"):
        return False  # whole numbers may become fractions, or wider
    for value in _options(others):
        if isinstance(value, Const) and isinstance(value.value, complex):
            return False
        if isinstance(value, Const) and isinstance(value.value, (int, float, bool)):
            if not dtype and not m.lenient and isinstance(value.value, float):
                return False
            if dtype and not is_float(dtype) and isinstance(value.value, float):
                return False
        elif isinstance(value, Other) and value.what == "number":
            if not m.lenient and not is_float(dtype):
                return False
        elif isinstance(value, Ten):
            own = m.dtype_of(value)
            if own != dtype and not (is_float(dtype) and own and not is_float(own) and "complex" not in own):
                if not m.lenient or (own and dtype):
                    return False
            elif not own and not m.lenient:
                return False
        elif isinstance(value, Other) and value.what in ("unknown", "ndarray") and not m.lenient:
            return False
    return True


def _options(values: Iterable[Value]) -> Iterator[Value]:
    """Values, with all that each may be."""
    for value in values:
        if isinstance(value, Union):
            yield from _options(value.options)
        else:
            yield value


def narrows(m: Machine, op: str, target: Ten, others: list[Value], keywords: Mapping[str, Value]) -> bool:
    """True where an operation gives fractions and its target holds whole numbers: torch refuses such a write."""
    dtype = m.dtype_of(target)
    if "int" not in dtype or op not in facts.operators() or "rounding_mode" in keywords:
        return False
    if op == "div":
        return True
    return not facts.gives_bool(op) and is_float(promoted(m, [target, *others]))


def name(m: Machine, target: Ten) -> str:
    """The dtype's name, or which tensor has it."""
    return m.dtype_of(target) or f"like {m.read(target)}"


def _floating(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, float)
