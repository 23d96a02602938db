"""Loads of a file what it defines and leaves out what it does. A harness carries these functions as they stand here."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_DOES = {"parse_args", "parse_known_args", "open", "input", "load", "load_dataset", "download", "DataLoader", "init"}
_DOES |= {
    "backward",
    "step",
    "fit",
    "run",
    "main",
    "train",
    "system",
    "init_process_group",
    "makedirs",
    "mkdir",
    "save",
}
_HARMLESS = {
    "append",
    "extend",
    "insert",
    "update",
    "register",
    "filterwarnings",
    "simplefilter",
    "basicConfig",
    "print",
}
_HARMLESS |= {"manual_seed", "seed", "setdefault", "add", "setLevel", "set_default_dtype", "getLogger", "wrap"}


def keeps(node: ast.AST) -> bool:
    """True for imports, constants, functions and classes, and for conditions and attempts that hold nothing else."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)):
        return True
    if isinstance(node, ast.Try):
        parts = [*node.body, *node.orelse, *node.finalbody, *(n for h in node.handlers for n in h.body)]
        return all(map(keeps, parts))
    if isinstance(node, ast.If):
        return "__name__" not in ast.unparse(node.test) and all(map(keeps, [*node.body, *node.orelse]))
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
        simple = {"torch", "nn", "math", "partial", "functools", "namedtuple", "dict", "list", "tuple", "set", "range"}
        simple |= {"len", "int", "float", "str", "TypeVar", "logging", "frozenset", "np", "numpy", "os", "Path"}
        names = [ast.unparse(f).replace("()", "").split(".") for f in calls]
        return all(n[0] in simple and n[-1] not in ("load", "open", "makedirs", "mkdir", "save") for n in names)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class Definitions(importlib.machinery.SourceFileLoader):
    """A loader that leaves out what a file does beside defining; it neither reads nor writes compiled files."""

    def path_stats(self, path: Any) -> Any:
        """No file's time, so no compiled file."""
        raise OSError(path)

    def source_to_code(self, data: Any, path: Any, *_: Any, _optimize: int = -1) -> Any:  # type: ignore[override]
        """The code of the file's definitions."""
        tree = data if isinstance(data, ast.Module) else ast.parse(data)
        tree.body = [node for node in tree.body if keeps(node)]
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)


def definitions(name: str, path: str) -> Any:
    """The module `name` from `path`, its imports, constants, functions and classes only."""
    loader = Definitions(name, os.path.abspath(path))
    spec = importlib.util.spec_from_loader(name, loader, origin=loader.path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = loader.path
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def acts(tree: ast.Module) -> bool:
    """True where importing the file would do more than define: train, read data, parse a command line."""
    local = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return any(_acts(node, local) for node in tree.body if not keeps(node))


def _acts(node: ast.stmt, local: set[str]) -> bool:
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return False
    called = [ast.unparse(n.func).split(".")[-1] for n in ast.walk(node) if isinstance(n, ast.Call)]
    if isinstance(node, ast.Expr):
        return bool(called) and not (set(called) <= _HARMLESS or called[0] in _HARMLESS)
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return bool(set(called) & _DOES)
    return bool(set(called) & (_DOES | local))
