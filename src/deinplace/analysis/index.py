"""The project: its modules, classes and functions, and how a dotted name leads to one of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from deinplace.analysis.imports import import_map, module_name
from deinplace.analysis.source import Function, Source


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


class Index:
    """All modules of a project."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        folders = frozenset(str(PurePath(p).parent) for p in sources if PurePath(p).name == "__init__.py")
        self.modules: dict[str, ModuleInfo] = {p: read_module(s, folders) for p, s in sources.items()}
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


def read_module(source: Source, packages: frozenset[str]) -> ModuleInfo:
    """Definitions and imports of one file."""
    name, package = module_name(source.path, packages)
    functions: dict[ast.AST, FunctionInfo] = {}
    classes: dict[ast.AST, ClassInfo] = {}
    _collect(source.tree.body, source.path, "", None, functions, classes)
    return ModuleInfo(source.path, name, package, source, import_map(source.tree, package), functions, classes)


def _collect(
    body: list[ast.stmt],
    path: str,
    prefix: str,
    owner: ClassInfo | None,
    functions: dict[ast.AST, FunctionInfo],
    classes: dict[ast.AST, ClassInfo],
) -> None:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            info = FunctionInfo(node, path, prefix + node.name, owner)
            functions[node] = info
            if owner is not None:
                owner.methods.setdefault(node.name, info)
                if any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list) is False:
                    owner.methods[node.name] = info
            _collect(node.body, path, f"{prefix}{node.name}.<locals>.", None, functions, classes)
        elif isinstance(node, ast.ClassDef):
            cls = ClassInfo(node, path, prefix + node.name)
            classes[node] = cls
            _collect(node.body, path, f"{prefix}{node.name}.", cls, functions, classes)
        else:
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(node, name, None)
                if isinstance(inner, list):
                    _collect(inner, path, prefix, owner, functions, classes)
            for handler in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
                _collect(handler.body, path, prefix, owner, functions, classes)
