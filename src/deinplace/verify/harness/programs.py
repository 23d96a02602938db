"""The first rung: files that are programs by themselves, and train."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from deinplace.analysis.source import Source
from deinplace.verify.harness.copies import root_of
from deinplace.verify.harness.model import Harness

_TRAINS = (".backward(", "autograd.grad(", "autograd.backward(")
_TESTS = ("test_", "conftest")


def programs(sources: Mapping[str, Source], cwd: str) -> list[Harness]:
    """A harness for each file that trains when it is run; scripts before modules that only hold a main block."""
    trains = any(_mentions(source) for source in sources.values())
    found: list[tuple[int, str, Harness]] = []
    for path, source in sources.items():
        if Path(path).name.startswith(_TESTS) or path.endswith(".ipynb"):
            continue
        rank = 0 if _top_level_trains(source.tree) else 1 if trains and _main_block(source.tree) is not None else 2
        if rank < 2:
            found.append((rank, path, program(source, cwd)))
    return [harness for _, _, harness in sorted(found, key=lambda entry: entry[:2])]


def program(source: Source, cwd: str) -> Harness:
    """A file as a program: run from the user's folder where it lies below that, as a module where it needs to be."""
    path = source.path
    here = os.path.realpath(cwd)
    root = root_of(path, here)
    folder = here if Path(path).is_relative_to(here) and Path(here).is_relative_to(root) else root
    if _relative_imports(source.tree):
        top, name = as_module(path)
        return Harness("program", f"python -m {name}", top, ((path, ""),), command=("python", "-m", name))
    name = os.path.relpath(path, folder)
    return Harness("program", f"python {name}", folder, ((path, ""),), command=("python", name))


def as_module(path: str) -> tuple[str, str]:
    """Folder that holds a file's outermost package, and the file's name as a module from there."""
    top = Path(path).parent
    while (top / "__init__.py").exists() and top.parent != top:
        top = top.parent
    parts = Path(path).relative_to(top).with_suffix("").parts
    return str(top), ".".join(parts[:-1] if parts[-1] == "__main__" else parts)


def _mentions(source: Source) -> bool:
    return any(word in source.text for word in _TRAINS)


def _main_block(tree: ast.Module) -> ast.If | None:
    """`if __name__ == "__main__":` at the top level."""
    for node in tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
            words = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            words |= {str(n.value) for n in ast.walk(node.test) if isinstance(n, ast.Constant)}
            if {"__name__", "__main__"} <= words:
                return node
    return None


def _top_level_trains(tree: ast.Module) -> bool:
    """True where the top level, its main block included, calls backward or a step, itself or in what it calls."""
    functions: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            functions.setdefault(node.name, []).append(node)
    todo: list[ast.AST] = [
        n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    seen: set[str] = set()
    while todo:
        for call in _calls(todo.pop()):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if _is_training(call, name):
                return True
            if name and name not in seen:
                seen.add(name)
                todo += functions.get(name, [])
    return False


def _is_training(call: ast.Call, name: str) -> bool:
    if name == "backward":
        return True
    whole = ast.unparse(call.func) if name == "grad" else ""
    return whole in ("torch.autograd.grad", "autograd.grad") or (whole == "grad" and bool(call.args))


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call))


def _relative_imports(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
