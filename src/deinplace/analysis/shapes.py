"""Shapes, as far as the program spells them out: enough to tell that an expanded tensor really shares its elements."""

from __future__ import annotations

from deinplace.analysis import facts
from deinplace.analysis.terms import Terms

Shape = tuple[int, ...]
TURNS = frozenset(
    {"t", "transpose", "permute", "movedim", "moveaxis", "swapaxes", "swapdims", "mT", "T", "H", "mH", "adjoint"}
)
"""Views whose dimensions lie in another order."""
EXPANDS = ("expand", "expand_as", "broadcast_to")
_SIZED = ("zeros", "ones", "empty", "rand", "randn")
_GROUPS = ("list", "tuple")
DEPTH = 40


def repeated(terms: Terms, op: str, base: int, operands: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions along which `op` is sure to put one element of `base` into several places."""
    old = shape(terms, base)
    if op not in EXPANDS or old is None or not operands:
        return ()
    new = shape(terms, operands[0]) if op == "expand_as" else _sizes(terms, operands)
    if new is None or len(new) < len(old):
        return ()
    filled = (1,) * (len(new) - len(old)) + old
    return tuple(n for n, (was, size) in enumerate(zip(filled, new, strict=True)) if was == 1 and size > 1)


def stays_repeated(terms: Terms, dims: tuple[int, ...], steps: tuple[object, ...]) -> bool:
    """True where a part of a tensor that is repeated along `dims` is sure to be so, too."""
    if not steps:
        return True
    if len(steps) > 1 or not isinstance(steps[0], tuple) or steps[0][0] != "index":
        return False
    items = [terms.parts(int(str(item))) for item in steps[0][1:]]
    if any(item[0] == "const" and item[1] != "int" for item in items):
        return False
    none = terms.make("const", "NoneType", "None")
    return any(d >= len(items) or items[d] == ("slice", none, none, none) for d in dims)


def shape(terms: Terms, term: int, depth: int = DEPTH) -> Shape | None:
    """The shape of a tensor that a factory with literal sizes made, through operations that keep it."""
    op, *operands = terms.parts(term)
    plain = tuple(o for o in operands if isinstance(o, int))
    if not depth or not plain:
        return None
    if op == "made":
        return shape(terms, plain[0], depth - 1)
    if op in _SIZED:
        return _sizes(terms, plain)
    if op in ("tensor", "as_tensor"):
        return _nested(terms, plain[0])
    entry = facts.method(f"{op}_")
    if entry is None or not entry.twin_keeps_shape:
        return None
    if all(terms.parts(o)[0] == "const" for o in plain[1:]):
        return shape(terms, plain[0], depth - 1)
    return None


def _sizes(terms: Terms, operands: tuple[int, ...]) -> Shape | None:
    """Sizes given one by one, or as one list or tuple; -1 stands for what is there already."""
    if len(operands) == 1 and terms.parts(operands[0])[0] in _GROUPS:
        operands = tuple(int(str(o)) for o in terms.parts(operands[0])[1:])
    made = [terms.parts(o) for o in operands]
    if any(m[:2] != ("const", "int") for m in made):
        return None
    return tuple(int(str(m[2])) for m in made)


def _nested(terms: Terms, term: int) -> Shape | None:
    """The shape of nested lists of numbers."""
    op, *items = terms.parts(term)
    if op == "const":
        return ()
    if op not in _GROUPS or not items:
        return None
    inner = {_nested(terms, int(str(item))) for item in items}
    first = inner.pop()
    return (len(items), *first) if first is not None and not inner else None
