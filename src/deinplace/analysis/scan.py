"""One walk over a function's statements: its writes, what its names are bound to, and what it calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from deinplace.analysis.source import Function


@dataclass
class Scan:
    """What one walk over a function collects."""

    sites: list[ast.AST] = field(default_factory=list)
    bound: dict[str, list[ast.expr | None]] = field(default_factory=dict)
    """The expressions that are bound to each local name; None for what cannot be named."""
    grown: dict[str, list[ast.expr]] = field(default_factory=dict)
    """What is added to each name by augmented assignments."""
    loads: dict[str, list[ast.Name]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    loops: list[ast.AST] = field(default_factory=list)
    methods: dict[str, set[str]] = field(default_factory=dict)
    """The methods that are called on each name."""
    nested: bool = False
    builds: bool = False
    """True for a constructor: what it counts are sizes, and what it calls builds modules."""


def scan(function: Function) -> Scan:
    """Everything that the judgement of a function needs, in one walk."""
    found = Scan(builds=function.name == "__init__")
    args = function.args
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        found.bound[arg.arg] = [_annotated_as(arg.annotation)]
    if args.vararg is not None:
        found.bound[args.vararg.arg] = [ast.Tuple([], ast.Load())]
    if args.kwarg is not None:
        found.bound[args.kwarg.arg] = [ast.Dict([], [])]
    todo: list[ast.AST] = [*function.body]
    loads = found.loads
    while todo:
        node = todo.pop()
        kind: Any = type(node)
        if isinstance(node, ast.Name):
            if type(node.ctx) is not ast.Store:
                loads.setdefault(node.id, []).append(node)
            continue
        if kind is ast.Constant or not isinstance(node, ast.AST):
            continue
        handler = _SCANS.get(kind)
        if handler is not None:
            handler(found, node)
        for name in _children(kind):
            value = getattr(node, name, None)
            if type(value) is list:
                todo += [v for v in value if v is not None]
            elif value is not None:
                todo.append(value)
    return found


@cache
def _children(kind: Any) -> tuple[str, ...]:
    """The fields of a kind of node that hold nodes worth a look."""
    return tuple(name for name in kind._fields if name not in _LEAVES)


_LEAVES = frozenset(
    {"ctx", "op", "ops", "id", "attr", "kind", "type_comment", "name", "names", "arg", "module", "level", "is_async",
     "simple", "conversion", "rest", "kwd_attrs", "type_params", "returns", "annotation"}
)  # fmt: skip


def _annotated_as(node: ast.expr | None) -> ast.expr | None:
    """A literal of the type that an annotation names, where that is surely no tensor."""
    if isinstance(node, ast.Subscript):
        node = node.value
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    if name in ("int", "float", "bool"):
        return ast.Constant(0)
    if name in ("str", "bytes"):
        return ast.Constant("")
    if name.lower() in ("dict", "list", "tuple", "set", "mapping", "sequence"):
        return ast.Dict([], [])
    return None


def _bind(found: Scan, target: ast.expr, value: ast.expr | None) -> None:
    if isinstance(target, ast.Name):
        found.bound.setdefault(target.id, []).append(value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for n, part in enumerate(target.elts):
            sized = value if isinstance(value, ast.Attribute) and value.attr == "shape" else None
            _bind(found, part, value.elts[n] if same else sized)  # type: ignore[union-attr]
    elif isinstance(target, ast.Starred):
        _bind(found, target.value, ast.List([], ast.Load()))


def _assign(found: Scan, node: ast.Assign) -> None:
    for target in node.targets:
        _bind(found, target, node.value)
    if any(isinstance(t, (ast.Subscript, ast.Attribute)) for t in node.targets):
        found.sites.append(node)


def _annotated(found: Scan, node: ast.AnnAssign) -> None:
    if node.value is not None:
        _bind(found, node.target, node.value)


def _augmented(found: Scan, node: ast.AugAssign) -> None:
    found.sites.append(node)
    if isinstance(node.target, ast.Name):
        found.loads.setdefault(node.target.id, []).append(node.target)
        found.grown.setdefault(node.target.id, []).append(node.value)


def _for(found: Scan, node: ast.For | ast.AsyncFor) -> None:
    found.loops.append(node)
    _iterate(found, node.target, node.iter)


def _iterate(found: Scan, target: ast.expr, over: ast.expr) -> None:
    """What a loop binds: numbers for `range`, and for the first of the pairs of `enumerate`."""
    name = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
    if name == "range":
        _bind(found, target, ast.Constant(0))
    elif name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        _bind(found, target.elts[0], ast.Constant(0))
        _bind(found, target.elts[1], None)
    else:
        _bind(found, target, None)


def _comprehension(found: Scan, node: ast.comprehension) -> None:
    _iterate(found, node.target, node.iter)


def _while(found: Scan, node: ast.While) -> None:
    found.loops.append(node)


def _with(found: Scan, node: ast.withitem) -> None:
    if node.optional_vars is not None:
        _bind(found, node.optional_vars, None)


def _named(found: Scan, node: ast.NamedExpr) -> None:
    _bind(found, node.target, node.value)


def _handler(found: Scan, node: ast.ExceptHandler) -> None:
    if node.name:
        found.bound.setdefault(node.name, []).append(None)


def _call(found: Scan, node: ast.Call) -> None:
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    found.called.add(name)
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        found.methods.setdefault(func.value.id, set()).add(name)
    if name.endswith("_") or any(k.arg in ("inplace", "out") for k in node.keywords):
        found.sites.append(node)


def _inner(found: Scan, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef) -> None:
    found.nested = True
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            found.bound.setdefault(arg.arg, []).append(None)


def _outer(found: Scan, node: ast.Global | ast.Nonlocal) -> None:
    for name in node.names:
        found.bound.setdefault(name, []).append(None)


def _captured(found: Scan, node: ast.MatchAs | ast.MatchStar) -> None:
    if node.name:
        found.bound.setdefault(node.name, []).append(None)


_SCANS: dict[type[ast.AST], Callable[[Scan, Any], None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.comprehension: _comprehension,
    ast.withitem: _with,
    ast.NamedExpr: _named,
    ast.ExceptHandler: _handler,
    ast.Call: _call,
    ast.FunctionDef: _inner,
    ast.AsyncFunctionDef: _inner,
    ast.Lambda: _inner,
    ast.ClassDef: _inner,
    ast.Global: _outer,
    ast.Nonlocal: _outer,
    ast.MatchAs: _captured,
    ast.MatchStar: _captured,
}
