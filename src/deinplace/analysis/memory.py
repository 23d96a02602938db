"""Abstract memory: storages, containers and frames, and how two versions of it become one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import compress
from operator import is_not

from deinplace.analysis.terms import Terms
from deinplace.analysis.values import (
    Bound,
    Content,
    Fields,
    Fn,
    Grad,
    Items,
    Obj,
    Part,
    Storage,
    Ten,
    Union,
    Value,
    union,
)

_ORDER = {"no": 0, "maybe": 1, "yes": 2}
_KINDS = {"unknown": 0, "likely": 1, "tensor": 2}


class Memory:
    """A mutable map from ids to immutable contents; forking it copies no more than what changed since the last fork."""

    __slots__ = ("born", "cells", "kept", "limit", "under")

    def __init__(
        self,
        cells: dict[int, Content] | None = None,
        born: dict[int, Content] | None = None,
        limit: int = 0,
        kept: set[int] | None = None,
        under: dict[int, Content] | None = None,
    ) -> None:
        self.limit = limit
        """Ids below it were settled before: they live in `born`, and in `cells` only once they changed."""
        self.cells: dict[int, Content] = cells if cells is not None else {}
        """What changed last, on top of `under`."""
        self.under: dict[int, Content] = under if under is not None else {}
        """What changed before that: several memories share it, none changes it."""
        self.born: dict[int, Content] = born if born is not None else {}
        """What everything held at first, for what was made on another path than this one."""
        self.kept: set[int] = kept if kept is not None else set()
        """Ids from `limit` on that are settled all the same: those of modules that were imported meanwhile."""

    def fork(self) -> Memory:
        """A copy that can change on its own."""
        if len(self.cells) * 4 > len(self.under) + 40:
            self.under = {**self.under, **self.cells}
            self.cells = {}
        return Memory(dict(self.cells), self.born, self.limit, self.kept, self.under)

    def changed(self, oid: int) -> Content | None:
        """What an id holds, where that is not what was settled."""
        return self.cells.get(oid) or self.under.get(oid)

    def changes(self) -> dict[int, Content]:
        """All that was made or changed since the rest was settled, by id."""
        return {**self.under, **self.cells}

    def settle(self, limit: int) -> None:
        """Move everything below an id to the base that forks share."""
        self.born.update(self.under)
        self.born.update(self.cells)
        self.cells, self.under, self.kept = {}, {}, set()
        self.limit = limit

    def absorb(self, beside: Memory, first: int) -> None:
        """Take in what a module did beside this path: what it made from id `first` on is settled for all paths."""
        same = beside.under is self.under
        for oid, content in (beside.cells if same else {**beside.under, **beside.cells}).items():
            if oid >= first:
                self.born[oid] = content
                self.kept.add(oid)
            else:
                self.cells[oid] = content

    def make(self, oid: int, content: Content) -> None:
        """Something new."""
        self.cells[oid] = self.born[oid] = content

    def peek(self, oid: int) -> Content | None:
        """What an id holds; None for an id that was never made."""
        return self.cells.get(oid) or self.under.get(oid) or self.born.get(oid)

    def storage(self, sid: int) -> Storage:
        """The storage `sid`."""
        found = self.peek(sid)
        assert isinstance(found, Storage)
        return found

    def fields(self, oid: int) -> Fields:
        """The fields of a dict, instance or frame."""
        found = self.peek(oid)
        assert isinstance(found, Fields)
        return found

    def items(self, oid: int) -> Items:
        """The items of a list or tuple."""
        found = self.peek(oid)
        assert isinstance(found, Items)
        return found

    def put(self, oid: int, key: object, value: Value) -> None:
        """Set one field."""
        old = self.fields(oid)
        self.cells[oid] = Fields({**old.fields, key: value}, old.open, old.tag)

    def drop(self, oid: int, key: object) -> None:
        """Remove one field."""
        old = self.fields(oid)
        self.cells[oid] = Fields({k: v for k, v in old.fields.items() if k != key}, old.open, old.tag)


def join(first: Memory | None, second: Memory | None, terms: Terms, condition: int) -> Memory | None:
    """Memory after two paths meet; None stands for a path that does not get here."""
    if first is None or second is None or first is second:
        return first if second is None else second
    limit = max(first.limit, second.limit)
    if first.under is not second.under:
        return _join_all(first, second, limit, terms, condition)
    cells, under, born, kept = dict(first.cells), first.under, first.born, first.kept
    for key, right in second.cells.items():
        left = cells.get(key) or under.get(key) or (born.get(key) if key < limit or key in kept else None)
        if left is None:
            cells[key] = right
        elif left is not right:
            cells[key] = _join_cell(left, right, terms, condition)
    for key in sorted(first.cells.keys() - second.cells.keys()):
        left = first.cells[key]
        other = under.get(key) or (born[key] if key < limit or key in kept else None)
        if other is not None and other is not left:
            cells[key] = _join_cell(left, other, terms, condition)
    return Memory(cells, born, limit, kept, under)


def _join_all(first: Memory, second: Memory, limit: int, terms: Terms, condition: int) -> Memory:
    """The same for memories that have nothing in common."""
    mine, theirs = {**first.under, **first.cells}, {**second.under, **second.cells}
    cells = dict(mine)
    # Nearly everything is the same on both paths: what is not is picked out without a step of the interpreter each.
    differs = map(is_not, theirs.values(), map(mine.get, theirs))
    for key, right in compress(theirs.items(), differs):
        left = cells.get(key) or (first.born.get(key) if key < limit or key in first.kept else None)
        if left is None:
            cells[key] = right
        elif left is not right:
            cells[key] = _join_cell(left, right, terms, condition)
    for key in sorted(mine.keys() - theirs.keys()):
        left = mine[key]
        if (key < limit or key in first.kept) and first.born[key] is not left:
            cells[key] = _join_cell(left, first.born[key], terms, condition)
    return Memory({}, first.born, limit, first.kept, cells)


def _join_cell(left: Content, right: Content, terms: Terms, condition: int) -> Content:
    if isinstance(left, Storage) and isinstance(right, Storage):
        return _join_storage(left, right, terms, condition)
    if isinstance(left, Items) and isinstance(right, Items):
        return _join_items(left, right, condition)
    if isinstance(left, Fields) and isinstance(right, Fields):
        fields = dict(left.fields)
        for key, value in right.fields.items():
            old = fields.get(key)
            fields[key] = value if old is None or old is value else union((old, value), condition)
        return Fields(fields, left.open or right.open, left.tag)
    return left


def _join_items(left: Items, right: Items, condition: int) -> Items:
    swap = len(left.items) > len(right.items)
    short, long = (right.items, left.items) if swap else (left.items, right.items)
    items = tuple(
        a if a == b else union((b, a) if swap else (a, b), condition) for a, b in zip(short, long, strict=False)
    )
    return Items(items + long[len(short) :], left.open or right.open or len(short) != len(long))


def _join_storage(a: Storage, b: Storage, terms: Terms, condition: int) -> Storage:
    """A save that happened on one path only is a `maybe`."""
    sure = a.saves & b.saves
    return replace(
        a,
        kind=a.kind if _KINDS[a.kind] <= _KINDS[b.kind] else b.kind,
        dtype=a.dtype if a.dtype == b.dtype else "",
        grad=a.grad if a.grad == b.grad else "maybe",
        term=terms.choose(condition, a.term, b.term),
        graph=terms.choose(condition, a.graph, b.graph),
        nodes=a.nodes | b.nodes,
        saves=sure,
        maybe=(a.saves | b.saves | a.maybe | b.maybe) - sure,
        flags=a.flags | b.flags,
    )


def stronger(a: Grad, b: Grad) -> Grad:
    """The stronger of two gradient modes: a result requires gradients when one of its inputs does."""
    return a if _ORDER[a] >= _ORDER[b] else b


def tensors_in(value: Value, memory: Memory, depth: int = 4) -> Iterator[Ten]:
    """Tensors that `value` is or holds."""
    if isinstance(value, Ten):
        yield value
    elif depth:
        for child in children(value, memory):
            yield from tensors_in(child, memory, depth - 1)


def children(value: Value, memory: Memory) -> Iterator[Value]:
    """What a value holds directly."""
    if isinstance(value, Union):
        yield from value.options
    elif isinstance(value, Obj):
        content = memory.peek(value.oid)
        if isinstance(content, Items):
            yield from content.items
        elif isinstance(content, Fields):
            yield from content.fields.values()
    elif isinstance(value, Fn):
        if value.bound is not None:
            yield value.bound
        yield from (v for _, v in value.defaults)
    elif isinstance(value, Bound):
        yield value.base
    elif isinstance(value, Part):
        yield value.func
        yield from value.args
        yield from (v for _, v in value.kwargs)
