"""Names by which files of a project are imported, and who imports them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from deinplace.verify.harness.copies import SKIPPED

_LARGEST = 500_000
_MOST = 5_000


def module_of(path: str, root: str) -> tuple[str, str]:
    """The folder that has to be on `sys.path`, and the dotted name of a file's module."""
    file = Path(path)
    top = file.parent
    while (top / "__init__.py").exists() and top.parent != top:
        top = top.parent
    if top == file.parent and file.is_relative_to(root) and not (Path(root) / "src").is_dir():
        nested = file.relative_to(root).with_suffix("").parts
        if len(nested) > 1 and all(part.isidentifier() for part in nested):
            top = Path(root)  # folders without __init__.py are packages, too
    parts = list(file.relative_to(top).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return str(top), ".".join(parts)


def imported(tree: ast.Module) -> set[str]:
    """Dotted names that a file imports, relative ones without their dots."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names |= {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)}
    return names - {""}


def tests_of(root: str, modules: Iterable[str]) -> list[tuple[str, str]]:
    """Test files below `root`, each with the module that it imports; those that name it exactly come first."""
    wanted = list(dict.fromkeys(modules))
    words = re.compile(
        "|".join(rf"\b{re.escape(m.rpartition('.')[2])}\b|\b{re.escape(m.split('.')[0])}\b" for m in wanted)
    )
    found: list[tuple[int, str, str]] = []
    for path in _test_files(root):
        text = _text(path)
        if not wanted or words.search(text) is None:
            continue
        try:
            names = imported(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError):
            continue
        ranks = [(rank, m) for m in wanted if (rank := _rank(m, names)) is not None]
        if ranks:
            rank, module = min(ranks)
            found.append((rank, str(path), module))
    return [(path, module) for _, path, module in sorted(found)]


def _rank(module: str, names: set[str]) -> int | None:
    """0 where the module itself is imported, 1 where a package around it is, None elsewhere."""
    if module in names or any(module.endswith(f".{name}") and "." in name for name in names):
        return 0
    return 1 if any(module.startswith(f"{name}.") for name in names) else None


def _test_files(root: str) -> Iterator[Path]:
    seen = 0
    for base, folders, names in os.walk(root):
        here = Path(base)
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not (here / f / "pyvenv.cfg").exists())
        for name in sorted(names):
            if name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")):
                seen += 1
                if seen > _MOST:
                    return
                yield here / name


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8") if path.stat().st_size <= _LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return ""
