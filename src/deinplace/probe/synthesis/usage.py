"""What a function's own text tells about its parameters: ranks, keys, attributes, whether they are lists."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Usage:
    """How one parameter is used. `keys` are strings it is subscripted with, `attributes` those no tensor has."""

    rank: int | None = None
    listed: bool = False
    keys: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    tensor: bool = False
    number: bool = False
    last: int = 0
    """Size that the last dimension must have at least."""
    items: int = 0
    """So many items a list must have."""
    texts: tuple[str, ...] = ()
    """Strings that it is compared with."""


@functools.lru_cache(maxsize=256)
def tree_of(path: str) -> ast.Module | None:
    """The syntax tree of a file; None where it cannot be had."""
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def imported(path: str) -> frozenset[str]:
    """Top-level names of the modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return frozenset(found)


def node_of(function: Callable[..., Any]) -> tuple[str, FunctionNode] | None:
    """Path and definition of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    tree = tree_of(code.co_filename)
    if tree is None:
        return None
    name = code.co_name
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode) and node.name == name:
            lines = [node.lineno, *(d.lineno for d in node.decorator_list)]
            if min(lines) <= code.co_firstlineno <= node.lineno:
                return code.co_filename, node
    return None


def usage(function: Callable[..., Any], name: str) -> Usage:
    """How a function uses its parameter `name`."""
    found = node_of(function)
    if found is None:
        return Usage()
    path, node = found
    return _usage(path, node.lineno, name)


@functools.lru_cache(maxsize=4096)
def _usage(path: str, line: int, name: str) -> Usage:
    tree = tree_of(path)
    node = next(n for n in ast.walk(tree or ast.Module([], [])) if isinstance(n, FunctionNode) and n.lineno == line)
    rank = listed = tensor = number = None
    keys: dict[str, None] = {}
    attributes: dict[str, None] = {}
    texts: dict[str, None] = {}
    last = items = 0
    for child in ast.walk(node):
        match child:
            case ast.Assign(targets=[ast.Tuple(elts=elts)], value=value) if _is_shape(value, name):
                rank = rank or len(elts) + _cut(value)
                tensor = True
            case ast.Assign(targets=[ast.Tuple(elts=elts)], value=ast.Name(id=n)) if n == name:
                items = max(items, len(elts))
                listed = True
            case ast.Subscript(value=value, slice=ast.Constant(value=int(n))) if _is_shape(value, name):
                rank = rank or (n + 1 if n > 1 else None)
                tensor = True
            case ast.Subscript(value=ast.Name(id=n), slice=ast.Constant(value=str(key))) if n == name:
                keys[key] = None
            case ast.Subscript(value=ast.Name(id=n), slice=ast.Tuple(elts=elts)) if n == name:
                tensor = True
                last = max(last, _last(elts))
                places = [e for e in elts if not (isinstance(e, ast.Constant) and e.value in (None, ...))]
                if not any(isinstance(e, ast.Constant) and e.value is ... for e in elts) and len(places) > 1:
                    rank = rank or len(places)
            case ast.For(iter=ast.Name(id=n)) | ast.comprehension(iter=ast.Name(id=n)) if n == name:
                listed = True
            case ast.Call(func=ast.Name(id="zip" | "enumerate" | "reversed"), args=args):
                listed = listed or any(isinstance(a, ast.Name) and a.id == name for a in args)
            case ast.Call(func=ast.Name(id="range"), args=args):
                number = number or any(isinstance(a, ast.Name) and a.id == name for a in args)
            case ast.Compare(left=ast.Name(id=n), comparators=[other]) if n == name:
                texts.update(dict.fromkeys(_strings(other)))
            case ast.Attribute(value=ast.Name(id=n), attr=attribute) if n == name:
                if hasattr(torch.Tensor, attribute):
                    tensor = True
                else:
                    attributes[attribute] = None
    return Usage(
        rank, bool(listed), tuple(keys), tuple(attributes), bool(tensor), bool(number), last, items, tuple(texts)
    )


def _strings(node: ast.expr) -> Iterator[str]:
    """A string, or those in a tuple, list or set of strings."""
    for item in node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]:
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value


def _is_shape(node: ast.expr, name: str) -> bool:
    """`name.shape`, `name.size()`, or a part of them that starts or ends where they do."""
    match node:
        case ast.Attribute(value=ast.Name(id=n), attr="shape"):
            return n == name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=n), attr="size"), args=[]):
            return n == name
        case ast.Subscript(value=value, slice=ast.Slice()):
            return _is_shape(value, name)
    return False


def _cut(node: ast.expr) -> int:
    """Dimensions that a slice of a shape leaves out: two in `x.shape[2:]` and in `x.shape[:-2]`."""
    match node:
        case ast.Subscript(slice=ast.Slice(lower=ast.Constant(value=int(n)), upper=None)):
            return n
        case ast.Subscript(slice=ast.Slice(lower=ast.UnaryOp(operand=ast.Constant(value=int(n))), upper=None)):
            return 4 - n if n < 4 else 0
    return 0


def _last(elts: list[ast.expr]) -> int:
    """The least size of the last dimension that an index needs: 4 for `x[..., 3]` and `x[:, 2:4]`."""
    match elts[-1]:
        case ast.Constant(value=int(n)) if not isinstance(n, bool):
            return n + 1
        case ast.Slice(lower=lower, upper=upper):
            ends = [e.value for e in (lower, upper) if isinstance(e, ast.Constant) and isinstance(e.value, int)]
            return max(ends, default=0)
    return 0


def attributes_anywhere(path: str, name: str) -> Iterator[tuple[str, bool]]:
    """Attributes (and string keys: True) that any function of a file reads of its name `name`, such as `config`."""
    tree = tree_of(path)
    seen: dict[tuple[str, bool], None] = {}
    for node in ast.walk(tree) if tree is not None else ():
        match node:
            case ast.Attribute(value=ast.Name(id=n), attr=attribute, ctx=ast.Load()) if n == name:
                seen[attribute, False] = None
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=n), attr=attribute) if n == name:
                seen[attribute, False] = None
            case ast.Subscript(value=ast.Name(id=n), slice=ast.Constant(value=str(key))) if n == name:
                seen[key, True] = None
    yield from seen


def module_path(thing: Any) -> str:
    """File that defines a class or function; empty where unknown."""
    try:
        return inspect.getsourcefile(thing) or ""
    except (TypeError, OSError):
        return ""


def asked(path: str, lines: set[int]) -> set[str]:
    """Names that have to be so or so for some lines of a file to run: those in the tests around them, and those that
    what these tests read is made from (`self.q_bias` is one thing if `qkv_bias` is true)."""
    tree = tree_of(path)
    if tree is None or not lines:
        return set()
    found: set[str] = set()
    made: dict[str, set[str]] = {}

    def visit(node: ast.AST, tests: set[str]) -> None:
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.stmt) and line in lines:
            found.update(tests)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute):
                    made.setdefault(target.attr, set()).update(tests, _names(node.value))
        inner = tests | _names(node.test) if isinstance(node, ast.If | ast.While | ast.IfExp) else tests
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = set()
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(tree, set())
    return found | {name for attribute in found for name in made.get(attribute, ())}


def _names(node: ast.AST) -> set[str]:
    plain = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return plain | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
