"""What a value may be in a quick look: cells of memory, marks, and things that can be called or entered."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from deinplace.analysis.index import ClassInfo, FunctionInfo
from deinplace.analysis.source import Function
from deinplace.analysis.values import Cls, Const, Mod, Ref

OPTIONS = 6
"""So many of the values that a name may have are told apart."""


MULTI, EXPANDED, WHOLE, FRACTION, CUT, OPAQUE = "multi", "expanded", "whole", "fraction", "cut", "opaque"
"""Marks in a value: one of several views, an expansion, whole numbers, a fraction, out of the graph, anything."""


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """A function of the project, or a lambda, with what it is bound to and closes over."""

    node: Function | ast.Lambda
    path: str
    info: FunctionInfo | None = None
    me: Value | None = None
    scopes: tuple[dict[str, Value], ...] = ()
    owner: ClassInfo | None = None


@dataclass(eq=False, slots=True)
class Thing:
    """An instance of one of the project's classes; what its attributes hold grows while its methods are looked at."""

    info: ClassInfo
    fields: dict[str, Value] = field(default_factory=dict, repr=False)


@dataclass(eq=False, slots=True)
class Box:
    """A container: its items in order where all of them are known, and what else it may hold."""

    items: list[Value] = field(default_factory=list, repr=False)
    rest: Value = field(default=frozenset(), repr=False)
    named: dict[object, Value] = field(default_factory=dict, repr=False)
    """Of a dict, what is known by its key."""


@dataclass(slots=True, eq=False)
class Layer:
    """A module of torch's own: whether it works in place, and its children."""

    name: str
    inplace: Value
    children: Box | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """`functools.partial`."""

    func: Value
    args: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Parent:
    """`super()`."""

    after: ClassInfo
    me: Value


Member = int | str | Const | Ref | Mod | Cls | Code | Thing | Box | Layer | Partial | Parent


Value = frozenset[Member]


NOTHING: Value = frozenset()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a call does: to the cells of its arguments, and to those that last."""

    cells: tuple[int, ...]
    saved: frozenset[int]
    written: frozenset[int]
    result: Value
    hot: frozenset[ast.AST]
    boxes: tuple[Box | None, ...] = ()
    """Containers that stood for those that were given: what was put into them is put into those, too."""
    read: frozenset[str] = frozenset()
    """The attributes of instances and modules that it depends on."""
    made: int = 0
    """How many changes to such attributes came before it."""


@dataclass(slots=True)
class Scope:
    """A function that is being looked at."""

    path: str
    names: dict[str, Value]
    outer: tuple[dict[str, Value], ...] = ()
    owner: ClassInfo | None = None
    me: Value = NOTHING
    results: list[Value] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)


def cells_of(value: Iterable[Member], depth: int = 3) -> set[int]:
    """The cells that a value lies in, or that it holds."""
    out: set[int] = set()
    for member in value:
        if type(member) is int:
            out.add(member)
        elif type(member) is Box and depth:
            out |= cells_of(contents(member), depth - 1)
    return out


def contents(box: Box) -> Value:
    """All that a container may hold; of a dict as much as the machine follows."""
    held = list(box.named.values())[:OPTIONS] if box.named else ()
    return box.rest.union(*box.items, *held)
