"""What each imported name of a file stands for, as a dotted name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePath


def import_map(tree: ast.Module, package: str) -> dict[str, str]:
    """Names bound by imports anywhere in a file, as dotted names of what they stand for.

    `package` is the dotted package that relative imports start from. Star imports appear as `*0`, `*1`, ...
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(bindings(node, package, len(names)))
    return names


def bindings(node: ast.Import | ast.ImportFrom, package: str, serial: int = 0) -> Iterator[tuple[str, str]]:
    """(name, dotted name) of what one import statement binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            else:
                top = alias.name.partition(".")[0]
                yield top, top
        return
    base = absolute(node.module or "", node.level, package)
    for alias in node.names:
        if alias.name == "*":
            yield f"*{serial}", base
        else:
            yield alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name


def dotted_path(node: ast.AST) -> tuple[str, ...]:
    """`('a', 'b', 'c')` for `a.b.c`; empty for what is no dotted path from a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def absolute(module: str, level: int, package: str) -> str:
    """Dotted name of `from <level dots><module>` inside `package`."""
    if not level:
        return module
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - level + 1]
    return ".".join([*parts, *([module] if module else [])])


def module_name(path: str, packages: frozenset[str]) -> tuple[str, str]:
    """Dotted name of the module at `path` and of the package that its relative imports start from.

    `packages` are the folders that hold an `__init__.py`; a name starts below the outermost of them.
    """
    pure = PurePath(path)
    parts: list[str] = []
    folder = pure.parent
    while str(folder) in packages:
        parts.append(folder.name)
        folder = folder.parent
    package = ".".join(reversed(parts))
    if pure.stem == "__init__":
        return package, package
    return (f"{package}.{pure.stem}" if package else pure.stem), package
