"""What a quick look keeps in mind: what is saved, what names and classes of the project stand for."""

from __future__ import annotations

import ast
import builtins

from deinplace.analysis.builders import Builders
from deinplace.analysis.index import ClassInfo, Index, Lineage
from deinplace.analysis.scout.members import (
    NOTHING,
    Code,
    Member,
    Scope,
    Summary,
    Thing,
    Value,
)
from deinplace.analysis.values import Cls, Mod, Ref

STEPS = 4_000
"""So many nodes are looked at for one function, at most."""


STEPS_OF_MANY = 1_500
"""So many in a large project, before no call is followed any more: nine in ten take less."""


DEPTH = 14
"""So deep are calls followed."""


_BUILTINS = frozenset(dir(builtins))


EVERY = "*"
"""Stands for all attributes of an instance, where its contents are read."""


class GiveUpError(Exception):
    """Too much to look at."""


class Scout(Lineage):
    """The project, and what is known of its functions so far."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.most = STEPS_OF_MANY if index.large else STEPS
        self.steps = 0
        self.saved: set[int] = set()
        """Cells that an operation keeps for backward, on some path to here."""
        self.written: set[int] = set()
        self.likely: set[int] = set()
        """Cells that were used as only tensors are; nothing else is saved."""
        self.constant: set[int] = set()
        """Cells that surely require no gradients."""
        self.leaves: set[int] = set()
        self.inferred: set[int] = set()
        """Cells that were made in inference mode: torch refuses to write them outside it."""
        self.inference = False
        self.grad = True
        self.hot: set[ast.AST] = set()
        """Functions in whose code a write was met that the machine has to judge."""
        self.here: ast.AST | None = None
        """The function whose code is looked at; of nested ones the outer."""
        self.scope = Scope("", {})
        self.depth = 0
        self.running: list[ast.AST] = []
        """The functions that are being looked at."""
        self.builders = Builders(self, index)
        self.building = False
        """Whether the instance is being made that a method runs on: of what makes nothing only its result counts."""
        self.discarded: ast.AST | None = None
        """The call whose result the running statement leaves."""
        self.calling: ast.AST | None = None
        """The call that is looked at."""
        self.summaries: dict[tuple[object, ...], Summary | None] = {}
        self.read: set[str] = set()
        """Attributes of instances and modules that the running code has asked for."""
        self.changes = 0
        """How often an attribute was changed from elsewhere."""
        self._changed: dict[str, int] = {}
        self.huge: set[tuple[object, ...]] = set()
        """Calls that take too many steps to sum up."""
        self.shallow = False
        """Whether no calls into the project are followed."""
        self.things: dict[tuple[object, ...], Thing] = {}
        self._next = 0
        self._derived: dict[tuple[object, object], int] = {}
        self._globals: dict[tuple[str, str], Value] = {}
        self.constants: dict[tuple[ClassInfo, str], Value] = {}
        """What classes bind in their bodies, by name."""
        self._orders: dict[ClassInfo, list[ClassInfo | str]] = {}

    def cell(self) -> int:
        """A new cell."""
        self._next += 1
        return self._next

    @property
    def last(self) -> int:
        """The newest cell."""
        return self._next

    def derived(self, base: object, name: object) -> int:
        """The cell of an attribute or element of something: the same each time."""
        found = self._derived.get((base, name))
        if found is None:
            found = self._derived[base, name] = self.cell()
        return found

    def step(self) -> None:
        """Count a node.

        Raises:
            GiveUpError: there were too many.
        """
        self.steps -= 1
        if self.steps < 0:
            raise GiveUpError

    def forget(self, attr: str) -> None:
        """Something else than its own methods changed an attribute: what was summed up before may not hold."""
        self.changes += 1
        self._changed[attr] = self._changed[EVERY] = self.changes

    def holds(self, made: Summary) -> bool:
        """Whether nothing that a summary depends on has changed since."""
        return made.made == self.changes or not any(
            self._changed[attr] > made.made for attr in made.read & self._changed.keys()
        )

    def blame(self) -> None:
        """The code that is looked at holds a write that the machine has to judge."""
        if self.here is not None:
            self.hot.add(self.here)

    # names

    def top(self, path: str) -> dict[str, list[ast.stmt]]:
        """The statements that bind each name at a file's top level."""
        return self.index.modules[path].top

    def resolve(self, path: str, name: str) -> Value:
        """What a name stands for at the top level of a file."""
        key = (path, name)
        found = self._globals.get(key)
        if found is None:
            self._globals[key] = frozenset({self.derived(path, name)})  # while it is being found out
            try:
                found = self._globals[key] = self._resolve(path, name)
            except (GiveUpError, RecursionError):
                del self._globals[key]
                raise
        return found

    def _resolve(self, path: str, name: str) -> Value:
        module = self.index.modules[path]
        out: set[Member] = set()
        for node in self.top(path).get(name, ()):
            if isinstance(node, ast.ClassDef):
                out.add(Cls(module.classes[node]))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                out.add(Code(node, path, module.functions[node]))
            else:
                out |= self.bound_at_top(path, node, name)
        if not out and name in module.imports:
            return self.dotted(module.imports[name], path)
        if out:
            return frozenset(out)
        for key, dotted in module.imports.items():
            if key.startswith("*"):
                starred = self._starred(dotted, path, name)
                if starred is not None:
                    return starred
        if name in _BUILTINS:
            return frozenset({Ref(name)})
        return frozenset({self.derived(path, name)})

    def _starred(self, dotted: str, near: str, name: str) -> Value | None:
        holder = self.index.module(dotted, near)
        if holder is None:
            torch = dotted.startswith("torch") and name not in _BUILTINS
            return frozenset({Ref(f"{dotted}.{name}")}) if torch else None
        if holder.path == near:
            return None
        stars = any(k.startswith("*") for k in holder.imports)
        if name in self.top(holder.path) or name in holder.imports or stars:
            found = self.resolve(holder.path, name)
            return None if found == {self.derived(holder.path, name)} else found
        return None

    def bound_at_top(self, path: str, node: ast.stmt, name: str) -> Value:
        """What a statement at the top level of a file binds a name to; filled in by the walker."""
        raise NotImplementedError

    def dotted(self, dotted: str, near: str) -> Value:
        """A dotted name: a module of the project, something in one, or something outside."""
        found = self.index.module(dotted, near)
        if found is not None:
            return frozenset({Mod(found.path)})
        base, _, last = dotted.rpartition(".")
        holder = self.index.module(base, near) if base else None
        if holder is not None:
            return self.of_file(holder.path, last)
        return frozenset({Ref(dotted)})

    def of_file(self, path: str, name: str) -> Value:
        """What a module of the project holds under a name."""
        module = self.index.modules[path]
        if name not in self.top(path) and name not in module.imports:
            inner = self.index.module(f"{module.name}.{name}", path)
            if inner is not None and inner is not module:
                return frozenset({Mod(inner.path)})
        return self.resolve(path, name)

    # classes

    def bases(self, info: ClassInfo) -> list[ClassInfo | str]:
        """The class and its ancestors, depth first; dotted names for those outside the project."""
        known = self._orders.get(info)
        if known is not None:
            return known
        order: list[ClassInfo | str] = [info]
        self._orders[info] = order
        for base in info.node.bases:
            for member in self.named(info.path, base):
                if isinstance(member, Cls):
                    order += [b for b in self.bases(member.info) if b not in order]
                elif isinstance(member, Ref):
                    order.append(member.name)
        return order

    def named(self, path: str, node: ast.expr) -> Value:
        """What a dotted expression stands for at the top level of a file."""
        if isinstance(node, ast.Name):
            return self.resolve(path, node.id)
        if not isinstance(node, ast.Attribute):
            return NOTHING
        out: set[Member] = set()
        for member in self.named(path, node.value):
            if isinstance(member, Ref):
                out.add(Ref(f"{member.name}.{node.attr}"))
            elif isinstance(member, Mod):
                out |= self.of_file(member.path, node.attr)
        return frozenset(out)
