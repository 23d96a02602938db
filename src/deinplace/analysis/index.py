"""The project: its modules, classes and functions, and how a dotted name leads to one of them."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from deinplace.analysis.imports import bindings, module_name
from deinplace.analysis.source import Function, Source

_HOOKS = re.compile(rb"register_\w*hook")
_FILLS = re.compile(r"\.(?:append|appendleft|extend|insert|update|add|setdefault|__setitem__)\(|\]\s*=(?!=)|\+=|\|=")
_FILLED = re.compile(r"(\w+)(?=\[|\s*$)")
"""In what stands before it in its line: names with an index, and the last one."""
_SETS = re.compile(r"(?<!\bself)\.(\w+)\s*=(?!=)")
MANY = 40
"""A project of so many files is large: what few of its runs would show costs too much there."""


@dataclass(frozen=True, eq=False)
class FunctionInfo:
    """A function or method of the project."""

    node: Function
    path: str
    qualname: str
    owner: ClassInfo | None = None

    @property
    def name(self) -> str:
        """Its last name."""
        return self.node.name


@dataclass(frozen=True, eq=False)
class ClassInfo:
    """A class of the project: its own methods, and its bases as they are written."""

    node: ast.ClassDef
    path: str
    qualname: str
    methods: dict[str, FunctionInfo] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Its last name."""
        return self.node.name

    @cached_property
    def bound(self) -> dict[str, ast.stmt]:
        """The first statement of its body that gives each name a value."""
        found: dict[str, ast.stmt] = {}
        for stmt in self.node.body:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
            if getattr(stmt, "value", None) is not None:
                for target in targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, stmt)
        return found


@dataclass(frozen=True, eq=False)
class ModuleInfo:
    """One file: its dotted name, the names its imports bind, and its definitions by qualified name."""

    path: str
    name: str
    package: str
    source: Source
    imports: dict[str, str]
    functions: dict[ast.AST, FunctionInfo]
    classes: dict[ast.AST, ClassInfo]
    asks: frozenset[str] = frozenset()
    """Dotted names of all that it imports anywhere, and of what holds that."""

    @cached_property
    def starred(self) -> bool:
        """Whether it imports all that another module holds."""
        return any(name.startswith("*") for name in self.imports)

    @cached_property
    def acts(self) -> bool:
        """Whether its top level does more than to define: it calls something, loops, or is a program."""
        return _acts(self.source.tree.body)

    @cached_property
    def top(self) -> dict[str, list[ast.stmt]]:
        """The statements that bind each name at its top level."""
        found: dict[str, list[ast.stmt]] = {}
        _bound(self.source.tree.body, found)
        return found

    @cached_property
    def named(self) -> dict[str, FunctionInfo]:
        """Its functions by qualified name; of several the last."""
        return {info.qualname: info for info in self.functions.values()}

    @cached_property
    def named_classes(self) -> dict[str, ClassInfo]:
        """Its classes by qualified name; of several the last."""
        return {info.qualname: info for info in self.classes.values()}


class Index:
    """All modules of a project."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        folders = frozenset(str(PurePath(p).parent) for p in sources if PurePath(p).name == "__init__.py")
        self.modules: dict[str, ModuleInfo] = {p: read_module(s, folders) for p, s in sources.items()}
        self.sets_default_dtype = any(b"set_default_" in source.data for source in sources.values())
        self._by_name: dict[str, list[ModuleInfo]] = {}
        for module in self.modules.values():
            for name in self._names(module):
                self._by_name.setdefault(name, []).append(module)

    @staticmethod
    def _names(module: ModuleInfo) -> Iterator[str]:
        """Dotted names under which the module may be imported: by its packages, or by its folders."""
        yield module.name
        pure = PurePath(module.path)
        parts = list(pure.parts[:-1]) + ([] if pure.stem == "__init__" else [pure.stem])
        depth = len(module.name.split("."))
        for extra in range(1, 4):
            tail = parts[-depth - extra :]
            if len(tail) == depth + extra:
                yield ".".join(tail)

    @property
    def large(self) -> bool:
        """Whether it is so large that only what shows most is looked at."""
        return len(self.modules) >= MANY

    @cached_property
    def autocasts(self) -> bool:
        """Whether any of its code speaks of autocast."""
        return any(b"autocast" in module.source.data for module in self.modules.values())

    @cached_property
    def hooks(self) -> bool:
        """Whether any of its code registers a hook."""
        return any(_HOOKS.search(module.source.data) is not None for module in self.modules.values())

    @cached_property
    def filled(self) -> frozenset[str]:
        """The last names of all containers that some code of the project puts something into."""
        found: set[str] = set()
        for text in (module.source.text for module in self.modules.values()):
            for match in _FILLS.finditer(text):
                found.update(_FILLED.findall(text, text.rfind("\n", 0, match.start()) + 1, match.start()))
        return frozenset(found)

    @cached_property
    def assigned(self) -> frozenset[str]:
        """The names of all attributes that code sets on something else than `self`."""
        return frozenset(name for m in self.modules.values() for name in _SETS.findall(m.source.text))

    @cached_property
    def overridden(self) -> dict[str, frozenset[str]]:
        """By the name of a class, what classes derived from it define anew, here or in other files."""
        below: dict[str, set[ClassInfo]] = {}
        for module in self.modules.values():
            for info in module.classes.values():
                for base in info.node.bases:
                    name = getattr(base, "attr", getattr(base, "id", ""))
                    below.setdefault(name, set()).add(info)
        found: dict[str, frozenset[str]] = {}
        for name in below:
            todo, seen = [*below[name]], set(below[name])
            for info in todo:
                more = below.get(info.name, set()) - seen
                seen |= more
                todo += more
            found[name] = frozenset(own for info in seen for own in (*info.methods, *info.bound))
        return found

    @cached_property
    def imported(self) -> frozenset[str]:
        """Paths of the modules that another module of the project imports."""
        found: set[str] = set()
        for module in self.modules.values():
            for name in module.asks:
                other = self.module(name, module.path)
                if other is not None and other is not module:
                    found.add(other.path)
        return frozenset(found)

    def module(self, name: str, near: str = "") -> ModuleInfo | None:
        """The module called `name`, the one closest to the file `near` where there are several."""
        found = self._by_name.get(name)
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        return max(found, key=lambda m: _shared(m.path, near))


def _shared(first: str, second: str) -> int:
    """How many leading folders two paths have in common."""
    pairs = zip(PurePath(first).parts, PurePath(second).parts, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), 0)


def _bound(body: list[ast.stmt], found: dict[str, list[ast.stmt]]) -> None:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = [node]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in _names(target):
                    found.setdefault(name, []).append(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(node)
        else:
            for name in ("body", "orelse", "finalbody"):
                _bound(getattr(node, name, None) or [], found)
            for handler in getattr(node, "handlers", ()):
                _bound(handler.body, found)


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _names(part)


def _acts(body: Iterable[ast.stmt]) -> bool:
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return True
        if isinstance(node, (ast.For, ast.While, ast.With, ast.AsyncFor, ast.AsyncWith, ast.Match)):
            return True
        if isinstance(node, (ast.If, ast.Try, ast.TryStar)) and _acts([*node.body, *node.orelse]):
            return True
    return False


def read_module(source: Source, packages: frozenset[str]) -> ModuleInfo:
    """Definitions and imports of one file."""
    name, package = module_name(source.path, packages)
    found = _Definitions(source.path, package)
    found.collect(source.tree.body, "", None)
    asks = {dotted.rsplit(".", n)[0] for dotted in found.asks for n in range(dotted.count(".") + 1)}
    return ModuleInfo(
        source.path, name, package, source, found.imports, found.functions, found.classes, frozenset(asks)
    )


class _Definitions:
    """What the statements of a file define and import, found without a look into any expression."""

    def __init__(self, path: str, package: str) -> None:
        self.path, self.package = path, package
        self.functions: dict[ast.AST, FunctionInfo] = {}
        self.classes: dict[ast.AST, ClassInfo] = {}
        self.imports: dict[str, str] = {}
        self.asks: set[str] = set()

    def collect(self, body: list[ast.stmt], prefix: str, owner: ClassInfo | None) -> None:
        """Take in what a block holds; `owner` is the class whose block it is."""
        pending = body[::-1]  # not by recursion: a long chain of `elif` is nested deeper than Python goes
        while pending:
            node = pending.pop()
            kind = type(node)
            if kind in _SIMPLE:
                continue
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._function(node, prefix, owner)
            elif isinstance(node, ast.ClassDef):
                cls = self.classes[node] = ClassInfo(node, self.path, prefix + node.name)
                self.collect(node.body, f"{prefix}{node.name}.", cls)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                pairs = list(bindings(node, self.package, len(self.imports)))
                self.imports.update(pairs)
                self.asks.update(dotted.removesuffix(".*") for _, dotted in pairs)
                self.asks.update(alias.name for alias in node.names if isinstance(node, ast.Import))
            else:
                for handler in [*getattr(node, "cases", ()), *getattr(node, "handlers", ())][::-1]:
                    pending += handler.body[::-1]
                for name in ("finalbody", "orelse", "body"):
                    pending += (getattr(node, name, None) or [])[::-1]

    def _function(self, node: Function, prefix: str, owner: ClassInfo | None) -> None:
        info = self.functions[node] = FunctionInfo(node, self.path, prefix + node.name, owner)
        if owner is not None:
            setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)
            if not setter or node.name not in owner.methods:
                owner.methods[node.name] = info
        self.collect(node.body, f"{prefix}{node.name}.<locals>.", None)


_SIMPLE = frozenset(
    {ast.Assign, ast.Expr, ast.Return, ast.AugAssign, ast.AnnAssign, ast.Raise, ast.Assert, ast.Delete, ast.Pass,
     ast.Break, ast.Continue, ast.Global, ast.Nonlocal}
)  # fmt: skip


class Lineage(ABC):
    """Questions about classes that their order of resolution answers."""

    @abstractmethod
    def bases(self, info: ClassInfo) -> list[ClassInfo | str]:
        """The class and its ancestors, depth first; dotted names for those outside the project."""

    def is_module(self, info: ClassInfo) -> bool:
        """True for subclasses of nn.Module."""
        return any(isinstance(b, str) and b.startswith("torch.nn.") for b in self.bases(info))

    def find_method(self, info: ClassInfo, name: str, after: ClassInfo | None = None) -> FunctionInfo | None:
        """A method by the order of resolution; those behind `after` only, for super()."""
        order = self.bases(info)
        start = order.index(after) + 1 if after in order else 0
        for base in order[start:]:
            if isinstance(base, ClassInfo) and name in base.methods:
                return base.methods[name]
        return None
