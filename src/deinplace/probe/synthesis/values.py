"""Arguments as text: tensors with a shape that can be changed, groups of values, and plain expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

_FLOATING = {"float": "torch.randn", "unit": "torch.rand", "box": "torch.rand"}


@dataclass(frozen=True)
class Tensor:
    """A tensor to make: `kind` is float, unit (0 to 1), box (corners), long (below `high`), bool, or data: numbers that
    want no gradients."""

    kind: str
    shape: tuple[int, ...]
    high: int = 2

    @property
    def floating(self) -> bool:
        """True where it can require gradients."""
        return self.kind in _FLOATING

    def leaf(self) -> str:
        """Text of the tensor itself, a leaf."""
        sizes = ", ".join(map(str, self.shape))
        if self.floating:
            return f"{_FLOATING[self.kind]}({sizes or '()'}, requires_grad=True)"
        if self.kind == "data":
            return f"torch.randn({sizes or '()'})"
        if self.kind == "bool":
            return f"torch.rand({sizes or '()'}) > 0.5"
        return f"torch.randint(0, {self.high}, {self.shape})"

    def text(self) -> str:
        """Text of the tensor as an argument: one that may be written to."""
        return self.changed(self.leaf())

    def changed(self, leaf: str) -> str:
        """Text of what is passed, made of the leaf: no leaf itself, and of boxes the corners in order."""
        if self.kind == "box":
            return f"{leaf}.cumsum(-1)"
        return f"{leaf} * 1.0" if self.floating else leaf


@dataclass(frozen=True)
class Plain:
    """Any expression. `imports` are (module, name) pairs that it needs."""

    code: str
    imports: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """The expression."""
        return self.code


@dataclass(frozen=True)
class Group:
    """A list, a tuple or a dict of values."""

    items: tuple[Value, ...]
    kind: str = "list"
    keys: tuple[str, ...] = ()

    def text(self) -> str:
        """The display, or a call of SimpleNamespace for an object with attributes."""
        parts = [item.text() for item in self.items]
        if self.kind == "dict":
            return "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(self.keys, parts, strict=True)) + "}"
        if self.kind == "object":
            return "SimpleNamespace(" + ", ".join(f"{k}={p}" for k, p in zip(self.keys, parts, strict=True)) + ")"
        if self.kind == "tuple":
            return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"
        return "[" + ", ".join(parts) + "]"


Value = Tensor | Plain | Group


def tensors(value: Value) -> Iterator[Tensor]:
    """All tensors in a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Group):
        for item in value.items:
            yield from tensors(item)


def mapped(value: Value, change: Callable[[Tensor], Tensor]) -> Value:
    """The value with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Group):
        return replace(value, items=tuple(mapped(item, change) for item in value.items))
    return value


def imports(value: Value) -> Iterator[tuple[str, str]]:
    """What a value's text needs to have imported."""
    if isinstance(value, Plain):
        yield from value.imports
    elif isinstance(value, Group):
        if value.kind == "object":
            yield ("types", "SimpleNamespace")
        for item in value.items:
            yield from imports(item)


def parse(template: str, sizes: Mapping[str, int], main: Tensor, high: int) -> Value:
    """A value from the tables' notation; `x` and `like` stand for the main tensor."""
    template = template.strip()
    if template in ("x", "like"):
        return main
    if re.match(r"(float|unit|box|long|bool):", template):
        kind, _, rest = template.partition(":")
        if not re.search(r"[;\]\)]", rest):
            shape = tuple(sizes[s] if s in sizes else int(s) for s in rest.split(","))
            return Tensor(kind, shape, high)
    if template[0] in "[(" and (":" in template or re.fullmatch(r"[\[(]x(; ?x)*[\])]", template)):
        items = tuple(parse(part, sizes, main, high) for part in template[1:-1].split(";"))
        return Group(items, "list" if template[0] == "[" else "tuple")
    return Plain(template)
