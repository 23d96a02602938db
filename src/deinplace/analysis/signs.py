"""Whole numbers that are known not to be negative: there, cutting off a fraction and rounding down are the same."""

from __future__ import annotations

from deinplace.analysis.terms import Terms
from deinplace.analysis.values import Const, Value

_KEPT = ("made", "get", "add", "mul", "floor_divide", "joined", "index", "copy")
"""Operations whose result is not negative where their tensors and numbers are not."""
_FILLED = ("tensor", "as_tensor", "arange", "full", "randint", "list", "tuple")
"""Operations whose elements lie between or among the numbers that they are given."""
DEPTH = 40


def negative_free(terms: Terms, term: int, depth: int = DEPTH) -> bool:
    """True where no element of `term` can be negative."""
    op, *operands = terms.parts(term)
    if op == "const":
        return operands[0] in ("int", "float", "bool") and not str(operands[1]).startswith(("-", "nan"))
    if op in ("zeros", "ones", "zeros_like", "ones_like"):
        return True
    if not depth or op not in (*_KEPT, *_FILLED):
        return False
    if op == "made" or op in ("get", "index", "copy"):
        operands = operands[:1]
    elif op == "joined":
        operands = operands[1:]
    elif op in _FILLED:
        operands = [o for o in operands if isinstance(o, int)]
    return all(isinstance(o, int) and negative_free(terms, o, depth - 1) for o in operands)


def whole_divisor(op: str, by: Value | None) -> int:
    """The whole number that a division, or a product with its inverse, divides by exactly; 0 where there is none."""
    if not isinstance(by, Const) or not isinstance(by.value, (int, float)) or by.value <= 0:
        return 0
    if op == "div" and float(by.value).is_integer():
        return int(by.value)
    if op == "mul" and by.value < 1 and (1 / by.value).is_integer():
        divisor = int(1 / by.value)
        return divisor if not divisor & (divisor - 1) else 0
    return 0
