"""The state of an abstract run: memory, and what lives in it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from deinplace.analysis.builders import Builders
from deinplace.analysis.index import ClassInfo, FunctionInfo, Index, Lineage
from deinplace.analysis.memory import Memory
from deinplace.analysis.records import Added, ExhaustedError, Frame, Save, Settled, UnreachedError, Write
from deinplace.analysis.source import Function
from deinplace.analysis.terms import Terms
from deinplace.analysis.values import Fields, Items, Kind, Obj, Spec, Storage, Ten, Value, evolved
from deinplace.model import Place, Span

if TYPE_CHECKING:
    from deinplace.analysis.receiver import Built


class Store(Lineage):
    """Everything that an abstract run changes: its memory, the frames, and what was made, saved and written."""

    def __init__(self, index: Index, terms: Terms, steps: int, lenient: bool = False) -> None:
        self.index, self.terms, self.lenient = index, terms, lenient
        self.mem: Memory | None = Memory()
        self.frames: list[Frame] = []
        self.parents: list[frozenset[int]] = []
        self.saves: list[Save] = []
        self.writes: list[Write] = []
        self.sinks: list[tuple[frozenset[int], int]] = []
        self.trace: list[tuple[object, ...]] = []
        self.visited: dict[tuple[str, Span], str] = {}
        self.globals: dict[str, int] = {}
        self.exposed: dict[int, Fields] = {}
        """Names of modules, as they were when something last saw all of them."""
        self.reached: set[ast.AST] = set()
        self.external: dict[tuple[object, ...], tuple[Ten, int]] = {}
        self.arrived: dict[int, int] = {}
        """The term of what each storage from outside held at first."""
        self.specs: dict[int, Spec] = {}
        """What annotations and uses say of values that are no tensors as far as is known, by storage."""
        self.asked: set[int] = set()
        """Storages of values whose class the program itself asks about."""
        self.flags: dict[tuple[str, Span], str] = {}
        """Modules of torch's own that were told to work in place, by the calls that led to their construction."""
        self.glance = False
        """Whether calls are followed only a little way: for functions that take too many steps otherwise."""
        self.steps, self.clock, self._next, self._serial = steps, 0, 0, 0
        self.most = steps
        """So many steps a program may take."""
        self.most_built = steps
        """So many steps the constructor of an instance may take that a method runs on."""
        self.limits: Mapping[tuple[str, str], int] = {}
        """So many steps some functions may take that run on their own."""
        self.grad = "on"
        self.inference = False
        """Whether `torch.inference_mode()` is on."""
        self.ran: set[tuple[str, str]] = set()
        """Path and qualified name of each function that the running unit has entered."""
        self.patched: dict[Function, Function] = {}
        """Functions that stand in the place of others while a rewrite is tried."""
        self.edited: frozenset[tuple[str, str]] = frozenset()
        """Path and qualified name of each function that differs from the one that it stands for."""
        self.receivers: dict[tuple[ClassInfo, bool], Built] = {}
        self.builders = Builders(self, index)
        self.building = False
        """Whether the instance that a method runs on is being constructed, and only its modules and tensors matter."""
        self.passed: set[FunctionInfo] = set()
        self.looked_at: dict[ClassInfo, bool] = {}
        """Classes with special methods that run where no call stands."""
        self.me: Value | None = None
        """The instance on which a method runs on its own, where that is proved: one of a derived class may come."""
        self.autocast = False
        """Whether operations may give a lower precision than their inputs have."""
        self.hasty = False
        """Whether nothing is proved, in a large project: of its programs only what shows most is followed."""
        self.constructing = False
        """Whether an instance is being made for the methods of its class, in a large project."""
        self.endless: set[tuple[str, str]] = set()
        """Functions that took more steps than a constructor has there."""
        """Functions that make nothing and went too far in this construction: not followed again."""
        self.discarded: ast.AST | None = None
        """The call whose result the running statement leaves."""
        self.traced = True
        """Whether what can be seen of a run is written down."""
        self.settling = False
        """Whether programs run: what a module makes that they import is settled for all of their paths."""
        self.tuples: set[int] = set()
        """Storages of results that may be a tuple of tensors: what is taken out of one need be no view."""
        self.names: dict[int, tuple[str, ...]] = {}
        """What the members of a tuple that an operation gave are called, by the tuple's id."""
        self.notes: set[str] = set()
        self.places: dict[tuple[ast.AST | None, str, str], Place] = {}
        self.labels: dict[ast.AST, str] = {}
        """What calls into the unknown are called, by what is called there."""
        self.questions: dict[ast.AST, tuple[ast.expr, ...]] = {}
        """What each condition asks the class of."""
        self.class_fields: dict[ClassInfo, dict[str, Value]] = {}
        self.flag_places: dict[int, Place] = {}
        self.default_values: dict[tuple[str, ast.AST], tuple[tuple[str, Value], ...]] = {}
        self.optimized: dict[str, tuple[Ten, ...]] = {}
        self.bound: dict[tuple[int, str], int] = {}
        self.looked: dict[int, int] = {}
        self.written: dict[int, int] = {}
        self.orders: dict[ClassInfo, list[ClassInfo | str]] = {}
        self.evaluate: Callable[[ast.expr], Value]
        self.execute: Callable[[list[ast.stmt]], None]
        self.call: Callable[[Value, list[Value], dict[str, Value], ast.AST], Value]

    @property
    def m(self) -> Memory:
        """The current memory.

        Raises:
            UnreachedError: no path gets here.
        """
        if self.mem is None:
            raise UnreachedError
        return self.mem

    def new_id(self) -> int:
        """A fresh id."""
        self._next += 1
        return self._next

    def begin(self, unit: tuple[str, str]) -> None:
        """Count from where this unit always counts, whatever ran before it."""
        self._serial = self.terms.base(unit)
        self.ran = set()

    def switch(self, unit: tuple[str, str]) -> int:
        """Count from where another unit counts; what to `switch_back` to."""
        now, self._serial = self._serial, self.terms.base(unit)
        return now

    def switch_back(self, serial: int) -> None:
        """Go on counting where that was left."""
        self._serial = serial

    def serial(self) -> int:
        """A number that counts events which two comparable runs share."""
        self._serial += 1
        return self._serial

    def step(self, cost: int = 1) -> None:
        """Count a step.

        Raises:
            ExhaustedError: there are none left.
        """
        self.steps -= cost
        if self.steps < 0:
            raise ExhaustedError

    def sequence(self, items: list[Value] | tuple[Value, ...], what: str = "list", opened: bool = False) -> Obj:
        """A new list or tuple."""
        oid = self.new_id()
        self.m.make(oid, Items(tuple(items), opened))
        return Obj(oid, what)

    def record(self, fields: dict[object, Value], what: str = "dict", opened: bool = False, tag: object = None) -> Obj:
        """A new dict, instance or module."""
        oid = self.new_id()
        self.m.make(oid, Fields(fields, opened, tag))
        return Obj(oid, what)

    def tensor(self, why: str, term: int, **known: object) -> Ten:
        """A tensor in fresh memory."""
        sid = self.new_id()
        base = Storage(origin="fresh", kind="tensor", why=why, grad="no", term=term)
        made = evolved(base, **known)
        self.m.make(sid, evolved(made, flags=made.flags | {"inference"}) if self.inference else made)
        return Ten((sid,))

    def outside(self, key: tuple[object, ...], origin: str, why: str, kind: Kind = "unknown", **known: object) -> Ten:
        """Something that came from outside: the same key gives the same value."""
        known_term = self.external.get(key)
        if known_term is None:
            term = known.pop("term", 0) or self.terms.make("outside", self.serial())
            known_term = self.external[key] = (Ten((self.new_id(),)), int(str(term)))
            self.arrived[known_term[0].sids[0]] = known_term[1]
        found, term = known_term
        known.pop("term", 0)
        sid = found.sids[0]
        if self.m.peek(sid) is None:
            made = Storage(origin, kind, why, term=term, graph=self.terms.make("graph", term), grad="maybe")
            self.m.make(sid, evolved(made, **known))
        return found

    def update(self, sid: int, **changes: object) -> None:
        """Change what is known of a storage."""
        self.m.cells[sid] = evolved(self.m.storage(sid), **changes)

    @property
    def _caches(self) -> tuple[dict[Any, Any], ...]:
        return self.external, self.default_values, self.globals

    def settled(self) -> Settled:
        """How far the caches went, which a unit of its own must leave as they were."""
        return Settled(self._next, tuple(map(len, self._caches)))

    def added(self, since: Settled) -> Added:
        """What the caches got since `settled`."""
        return tuple(
            tuple(islice(reversed(cache.items()), len(cache) - size))[::-1]
            for cache, size in zip(self._caches, since.sizes, strict=True)
        )

    def rewind(self, kept: Settled, added: Added = ()) -> None:
        """Leave the caches as they were when `settled`, with what was `added` then."""
        for cache, size in zip(self._caches, kept.sizes, strict=True):
            while len(cache) > size:
                cache.popitem()
        for cache, more in zip(self._caches, added, strict=False):
            cache.update(more)

    def restore(self, kept: Settled) -> None:
        """Forget what was made since `settled`."""
        self.rewind(kept)
        born = self.m.born
        lasting = [built.born for built in self.receivers.values() if built.born.stop > kept.last]
        for oid in range(kept.last + 1, self._next + 1):
            if not any(oid in ids for ids in lasting):
                born.pop(oid, None)

    def forget_receivers(self) -> None:
        """Forget the instances that methods were run on: another file's functions need others."""
        for built in self.receivers.values():
            for oid in built.born:
                self.m.born.pop(oid, None)
        self.receivers.clear()
