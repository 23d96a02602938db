"""What an error text says about the shape or the kind that a tensor should have had."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .shapes import spoken
from .values import Group, Plain, Tensor, Value, mapped, tensors

Values = tuple[Value, ...]
_MOST = 1 << 22
"""Elements that a tensor may have."""


def repairs(values: Values, text: str, numbers: Sequence[int]) -> Iterator[Values]:
    """Values worth trying after an error; those that its text asks for come first."""
    seen: set[Values] = {values}
    for pyramid in _pyramids(values, text):
        seen.add(pyramid)
        yield pyramid
    for change in _changes(text, numbers):
        for old in dict.fromkeys(t for value in values for t in tensors(value)):
            for new in filter(_fits, change(old)):
                for changed in _swapped(values, old, new):
                    if changed not in seen:
                        seen.add(changed)
                        yield changed
    yield from (v for v in _regrouped(values, text) if v not in seen)


def _swapped(values: Values, old: Tensor, new: Tensor) -> Iterator[Values]:
    """One tensor exchanged: in each value that holds it alone, and in all, where several do."""
    changed = [mapped(value, lambda t: new if t == old else t) for value in values]
    holders = [i for i, value in enumerate(values) if changed[i] != value]
    for index in holders:
        yield (*values[:index], changed[index], *values[index + 1 :])
    if len(holders) > 1:
        yield tuple(changed)


def _fits(tensor: Tensor) -> bool:
    size = 1
    for n in tensor.shape:
        size *= n
    return 0 < size <= _MOST and len(tensor.shape) <= 6


Change = Callable[[Tensor], Iterator[Tensor]]


def _changes(text: str, numbers: Sequence[int]) -> Iterator[Change]:
    yield from _kinds(text)
    for shape in spoken(text):
        yield lambda t, shape=shape: iter([replace(t, shape=shape)] if t.shape != shape else [])  # type: ignore[misc]
    yield from _ranks(text)
    yield from _sizes(text)
    said = [int(n) for n in dict.fromkeys(re.findall(r"(?<![\w.])\d{1,4}(?![\w.]*\.\d)", text))]
    yield lambda t: _resized(t, [n for n in t.shape if n in said], [n for n in said if n > 0])
    yield lambda t: _resized(t, t.shape, [n for n in numbers[:12] if n not in t.shape], last_first=True)
    yield _reranked


def _kinds(text: str) -> Iterator[Change]:
    """Changes of what a tensor holds."""
    if re.search(r"Long|int64 for index|indices|must be (of type )?(integer|long)|index_|one_hot|used as ind", text):
        yield lambda t: iter([Tensor("long", t.shape, max(t.high, 2))] if t.kind != "long" else [])
    if re.search(
        r"not implemented for '(Long|Int|Bool)'|but found (Long|Bool|Int)|floating|Float|result type Float", text
    ):
        yield lambda t: iter([Tensor("float", t.shape)] if not t.floating else [])
    if re.search(r"index out of range|out of bounds|Target \d+", text):
        yield lambda t: iter([replace(t, high=2)] if t.kind == "long" and t.high > 2 else [])
    if re.search(r"[Bb]ool", text):
        yield lambda t: iter([Tensor("bool", t.shape)] if t.kind != "bool" else [Tensor("float", t.shape)])
    if "between 0 and 1" in text:
        yield lambda t: iter([Tensor("unit", t.shape)])


_RANKS = (
    r"unpack \(expected (\d)",
    r"[Ee]xpect(?:ed|s)?:? (?:input to be |a )?(\d)[- ]?[Dd]",
    r"or (\d)D",
    r"(\d)-?[dD]im",
    r"must be (\d)",
    r"<= (\d) dim",
    r"should have (\d) dim",
    r"but got (\d)D",
    r"dims in.*\(dims\) = (\d)",
)


def _ranks(text: str) -> Iterator[Change]:
    """Changes of the number of dimensions."""
    wanted: list[int] = []
    for pattern in _RANKS:
        wanted += [int(n) for n in re.findall(pattern, text) if n]
    if (found := re.search(r"range of \[-(\d), \d\], but got (-?\d+)", text)) is not None:
        got = int(found[2])
        wanted.append(got + 1 if got >= 0 else -got)
    if "too many indices" in text or "number of dims" in text or "same number of dimensions" in text:
        wanted += [4, 3, 2]
    for rank in dict.fromkeys(wanted):
        if 0 < rank < 6:
            yield lambda t, rank=rank: iter(_with_rank(t, rank))  # type: ignore[misc]


def _with_rank(tensor: Tensor, rank: int) -> list[Tensor]:
    """The tensor with another number of dimensions: channels first, and channels last."""
    shape = tensor.shape
    if len(shape) == rank or not 0 < rank < 6:
        return []
    lead, channels = (shape[0], shape[1] if len(shape) > 3 else shape[-1]) if len(shape) > 1 else (2, *shape, 32)[:2]
    places = {1: (), 2: (), 3: (64,), 4: (8, 8), 5: (4, 8, 8)}[rank]
    if rank == 1:
        return [replace(tensor, shape=(channels,)), replace(tensor, shape=(lead,))]
    first, last = (lead, channels, *places), (lead, *places, channels)
    return [replace(tensor, shape=s) for s in dict.fromkeys((last, first) if rank == 3 else (first, last))]


def _reranked(tensor: Tensor) -> Iterator[Tensor]:
    """Last resort: every number of dimensions, every order."""
    if len(tensor.shape) > 2:
        yield replace(tensor, shape=(tensor.shape[0], *tensor.shape[2:], tensor.shape[1]))
        yield replace(tensor, shape=(tensor.shape[0], tensor.shape[-1], *tensor.shape[1:-1]))
    for rank in (4, 3, 2, 5, 1):
        yield from _with_rank(tensor, rank)
    if len(tensor.shape) >= 3:
        yield replace(tensor, shape=(*tensor.shape[:2], *(2 * n for n in tensor.shape[2:])))
        yield replace(tensor, shape=(*tensor.shape[:2], *(max(n // 2, 1) for n in tensor.shape[2:])))


def _sizes(text: str) -> Iterator[Change]:
    """Changes of one size to another that the text names."""
    for had, wants in said(text):
        yield lambda t, had=had, wants=wants: _scaled(t, had, wants)  # type: ignore[misc]
    if re.search(
        r"[Kk]ernel size|more than 1 value per channel|smaller than|too small|[Pp]adding size",
        text,
    ):
        yield lambda t: iter([replace(t, shape=(*t.shape[:2], *(n * f for n in t.shape[2:]))) for f in (2, 4, 8)])
        yield lambda t: iter([replace(t, shape=(*t.shape[:-1], n)) for n in (64, 224)])
    if (listed := re.search(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", text)) is not None:
        product = 1
        for n in re.findall(r"-?\d+", listed[1]):
            product *= max(int(n), 1)
        size = int(listed[2])
        yield lambda t: _scaled(t, size, product)


def said(text: str) -> list[tuple[int, int]]:
    """(what a size was, what it should be) as a text says it; both ways round where it does not say which."""
    pairs: list[tuple[int, int]] = []
    for pattern, order in _PAIRS:
        for found in re.finditer(pattern, text):
            had, wants = (int(found[i]) for i in order)
            pairs.append((had, wants))
            if order is _BOTH:
                pairs.append((wants, had))
    return list(dict.fromkeys(pairs))


_BOTH = (1, 2)
_PAIRS: tuple[tuple[str, tuple[int, int]], ...] = (
    (r"to have (\d+) channels, but got (\d+)", (2, 1)),
    (r"\(\d+x(\d+) and (\d+)x\d+\)", (1, 2)),
    (r"normalized_shape=\[(\d+)\].*?but got input of size\[(?:\d+, )*(\d+)\]", (2, 1)),
    (r"normalized_shape=\[(\d+)\].*?but got input of size\[\d+, (\d+)", (2, 1)),
    (r"contain (\d+) elements not (\d+)", (1, 2)),
    (r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", _BOTH),
    (r"to match.*?got (\d+) and expected (\d+)", _BOTH),
    (r"[Ee]xpected.*?(\d+).*?(?:got|but|found|not|received|is).*?(\d+)", (2, 1)),
    (r"(\d+)\D+(?:doesn't|does not|must|should) (?:match|equal|be)\D+(\d+)", _BOTH),
    (r"divisible by\D+(\d+)\D+(\d+)", _BOTH),
)


def _scaled(tensor: Tensor, had: int, wants: int) -> Iterator[Tensor]:
    """The size itself where it is one of the tensor's; else the tensor's sizes by the same ratio."""
    shape = tensor.shape
    if had == wants or not had or not wants:
        return
    order = [i for i in (1, len(shape) - 1, *range(len(shape))) if i < len(shape)]
    for index in dict.fromkeys(order):
        if shape[index] == had:
            yield replace(tensor, shape=(*shape[:index], wants, *shape[index + 1 :]))
    same = tuple(wants if n == had else n for n in shape)
    if same != shape:
        yield replace(tensor, shape=same)
    for index in dict.fromkeys(order[::-1]):
        if index and shape[index] * wants % had == 0:
            yield replace(tensor, shape=(*shape[:index], shape[index] * wants // had, *shape[index + 1 :]))
    if len(shape) == 4:
        root = (wants / had) ** 0.5
        h, w = round(shape[2] * root), round(shape[3] * root)
        if h and w and (h, w) != shape[2:]:
            yield replace(tensor, shape=(*shape[:2], h, w))


def _resized(tensor: Tensor, olds: Sequence[int], news: Sequence[int], last_first: bool = False) -> Iterator[Tensor]:
    """One size exchanged for a number that the text or the module names."""
    shape = tensor.shape
    order = [i for i in (1, *range(len(shape) - 1, -1, -1)) if i < len(shape) and shape[i] in olds]
    if last_first:
        order = [i for i in (len(shape) - 1, 1) if 0 < i < len(shape)]
    for index in dict.fromkeys(order):
        for new in news:
            if new != shape[index]:
                yield replace(tensor, shape=(*shape[:index], new, *shape[index + 1 :]))


def _pyramids(values: Values, text: str) -> Iterator[Values]:
    """Lists of maps of one size become maps that halve, or double, from one to the next."""
    if not re.search(r"size of tensor a|Sizes of tensors must match|size mismatch", text):
        return
    for index, value in enumerate(values):
        maps = value.items if isinstance(value, Group) and value.kind != "dict" else ()
        same = [m for m in maps if isinstance(m, Tensor) and len(m.shape) == 4 and m == maps[0]]
        if len(maps) < 2 or len(same) != len(maps):
            continue
        sides = [2 ** (len(maps) + 1 - i) for i in range(len(maps))]
        for order in (sides, sides[::-1]):
            items = tuple(replace(m, shape=(*m.shape[:2], n, n)) for m, n in zip(same, order, strict=True))
            yield (*values[:index], Group(items, "list"), *values[index + 1 :])


def _regrouped(values: Values, text: str) -> Iterator[Values]:
    """A list where one tensor was given, a tensor where a list was, a number for a tensor."""
    listy = re.search(
        r"not iterable|subscriptable|list|tuple|len\(|index out of range|unpack|zip|cat\(|Sequence|attribute", text
    )
    for index, value in enumerate(values):
        options: list[Value] = []
        if isinstance(value, Tensor) and listy:
            options = [Group((value,) * n, kind) for n, kind in ((2, "list"), (3, "list"), (4, "list"), (2, "tuple"))]
        elif isinstance(value, Group) and value.kind in ("list", "tuple") and value.items:
            options = [replace(value, items=(value.items[0],) * n) for n in (1, 2, 3, 4, 5) if n != len(value.items)]
            options.append(value.items[0])
        elif isinstance(value, Plain) and value.code == "None" and "None" in text:
            options = []
        for option in options:
            yield (*values[:index], option, *values[index + 1 :])
