"""Which classes are tensors: those of the project and of the environment, by reading their bases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deinplace.analysis.imports import import_map, module_name
from deinplace.analysis.source import Source, SourceError
from deinplace.typing_evidence.kinds import Kind, known

_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)", re.MULTILINE)
_DEPTH = 12
_LARGE = 4_000_000


@dataclass
class Classes:
    """Looks classes up by name; files of the environment are read only when one of their classes is asked for."""

    sources: Mapping[str, Source]
    search: tuple[Path, ...] = ()
    """Folders that imports are looked up in."""
    _by_name: dict[str, list[tuple[str, ast.ClassDef]]] | None = field(default=None, repr=False)
    _known: dict[str, Kind] = field(default_factory=dict, repr=False)
    _read: dict[Path, Source | None] = field(default_factory=dict, repr=False)

    def __call__(self, name: str) -> Kind:
        """Whether the class is a tensor; unknown where its name is ambiguous or a base cannot be followed."""
        if name not in self._known:
            self._known[name] = "unknown"  # for bases that lead back here
            self._known[name] = self._look(name, 0)
        return self._known[name]

    def _look(self, name: str, depth: int) -> Kind:
        outside = known(name)
        found = self._own(name)
        if "." in name:
            if outside != "unknown" and not found:
                return outside
            if not found:
                return self._installed(name, depth)
            return self._agreed(found, depth)
        kinds = self._agreed(found, depth) if found else outside
        return kinds if not found or outside in ("unknown", kinds) else "unknown"

    def _agreed(self, found: Iterable[tuple[str, ast.ClassDef]], depth: int) -> Kind:
        kinds = {self._bases(self.sources[path], node, depth) for path, node in found}
        return kinds.pop() if len(kinds) == 1 else "unknown"

    def _own(self, name: str) -> list[tuple[str, ast.ClassDef]]:
        """Classes of the project that a checker may print as `name`."""
        if self._by_name is None:
            self._by_name = {}
            for path, source in self.sources.items():
                if _CLASS.search(source.data):
                    for node in ast.walk(source.tree):
                        if isinstance(node, ast.ClassDef):
                            self._by_name.setdefault(node.name, []).append((path, node))
        found = self._by_name.get(name.rpartition(".")[2], [])
        if "." not in name:
            return found
        return [(path, node) for path, node in found if _lies_in(name, path, self.sources[path], node)]

    def _bases(self, source: Source, node: ast.ClassDef, depth: int) -> Kind:
        """What a class's bases make of it: any tensor makes a tensor, any that is unknown leaves it open."""
        if depth > _DEPTH or any(k.arg is None for k in node.keywords):
            return "unknown"
        packages = frozenset(_packages(Path(source.path)))
        name, package = module_name(source.path, packages)
        imports = import_map(source.tree, package)
        kinds = {self._base(base, source, name, imports, depth) for base in node.bases}
        if kinds & {"tensor", "subclass"}:
            return "subclass"
        return "unknown" if "unknown" in kinds else "other"

    def _base(self, base: ast.expr, source: Source, module: str, imports: dict[str, str], depth: int) -> Kind:
        if isinstance(base, ast.Subscript):
            base = base.value
        dotted = ast.unparse(base) if isinstance(base, ast.Name | ast.Attribute) else ""
        first, dot, rest = dotted.partition(".")
        if not dotted:
            return "unknown"
        if first in imports:
            name = imports[first] + dot + rest
            if name.startswith("typing"):
                return "other"
            return self._look(name, depth + 1) if "." in name else "unknown"
        if known(dotted) == "other" or dotted in ("object", "type"):
            return "other"
        mine = [n for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef) and n.name == dotted]
        kinds = {self._bases(source, n, depth + 1) for n in mine}
        return kinds.pop() if len(kinds) == 1 else "unknown"

    def _installed(self, name: str, depth: int) -> Kind:
        """A class of a package in the environment."""
        module, _, last = name.rpartition(".")
        if depth > _DEPTH:
            return "unknown"
        for folder in self.search:
            base = folder.joinpath(*module.split("."))
            for path in (
                base / "__init__.py",
                *(Path(f"{base}{end}") for end in (".py", ".pyi")),
                base / "__init__.pyi",
            ):
                source = self._load(path)
                if source is None:
                    continue
                for node in ast.walk(source.tree):
                    if isinstance(node, ast.ClassDef) and node.name == last:
                        return self._bases(source, node, depth + 1)
                package = module if path.stem == "__init__" else module.rpartition(".")[0]
                again = import_map(source.tree, package).get(last)
                return self._look(again, depth + 1) if again is not None and again != name else "unknown"
        return "unknown"

    def _load(self, path: Path) -> Source | None:
        if path not in self._read:
            self._read[path] = _parsed(path)
        return self._read[path]


def _parsed(path: Path) -> Source | None:
    try:
        if not path.is_file() or path.stat().st_size > _LARGE:
            return None
        return Source.parse(str(path), path.read_bytes())
    except (OSError, SourceError):
        return None


def _packages(path: Path) -> Iterable[str]:
    """Folders above a file that are packages, as far up as they are."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        yield str(folder)
        folder = folder.parent


def _lies_in(name: str, path: str, source: Source, node: ast.ClassDef) -> bool:
    """True where `package.module.Class` can be this class: the module's dotted name ends like the file's path."""
    module = name.rpartition(".")[0]
    parts = [p for p in Path(path).with_suffix("").parts if p != "__init__"]
    outer = source.qualname(node)
    for end in (module, module.removesuffix("." + outer)):
        tail = end.split(".")
        if parts[-len(tail) :] == tail:
            return True
    return False
