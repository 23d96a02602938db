"""Which expressions a type checker is asked about: what a site writes to."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from deinplace.analysis import facts
from deinplace.analysis.imports import dotted_path
from deinplace.analysis.source import Source, span_of
from deinplace.model import Span


@dataclass(frozen=True)
class Question:
    """One expression of a file. `element` is asked where the value it lies in turns out to be a container."""

    path: str
    expr: ast.expr
    element: ast.expr | None = None
    statement: ast.stmt | None = None
    """The augmented assignment in whose target the expression stands: it is asked just before."""
    spread: bool = False
    """A tuple or list is not what is written: its elements are."""

    @property
    def span(self) -> Span:
        """Where the expression stands."""
        return span_of(self.expr)

    @property
    def parts(self) -> tuple[ast.expr, ...]:
        """The expressions to reveal."""
        return (self.expr,) if self.element is None else (self.expr, self.element)


def about(path: str, form: str, node: ast.AST | None) -> Question | None:
    """The question for a write of the analysis, by its `form` and node; None where no expression holds the target."""
    if isinstance(node, ast.AugAssign):
        return of_statement(path, node)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return of_statement(path, node)
    if not isinstance(node, ast.Call):
        return None
    if form == "method":
        return Question(path, node.func.value) if isinstance(node.func, ast.Attribute) else None
    if form == "out":
        return _out(path, node)
    if form in ("function", "flag"):
        return _first(path, node)
    return None


def of_statement(path: str, node: ast.stmt) -> Question | None:
    """The question for an assignment that may write in place."""
    if isinstance(node, ast.AugAssign):
        target = node.target
        if isinstance(target, ast.Subscript):
            return Question(path, target.value, target, node)
        return Question(path, target, statement=node)
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    for each in targets:
        if isinstance(each, ast.Subscript | ast.Attribute):
            return Question(path, each.value)
    return None


def of_candidate(source: Source, span: Span, form: str, imports: Mapping[str, str]) -> Question | None:
    """The question for a place of the census; None where none of its expressions holds what is written."""
    for node in source.by_span.get(span, ()):
        if isinstance(node, ast.AugAssign | ast.Assign | ast.AnnAssign):
            return of_statement(source.path, node)
        if isinstance(node, ast.Call):
            return _of_call(source.path, node, form, imports)
    return None


def _of_call(path: str, node: ast.Call, form: str, imports: Mapping[str, str]) -> Question | None:
    func = node.func
    if form == "out":
        return _out(path, node)
    called = _called(func, imports)
    if form == "flag":
        # Anything else may be a class, or a function that makes one: what that will write is not at hand.
        return _first(path, node) if facts.function(called) is not None else None
    if called or not isinstance(func, ast.Attribute):
        return _first(path, node)
    return Question(path, func.value)


def _called(func: ast.expr, imports: Mapping[str, str]) -> str:
    """The dotted name of an imported function; empty for a method."""
    path = dotted_path(func)
    return ".".join((imports[path[0]], *path[1:])) if path and path[0] in imports else ""


def _first(path: str, node: ast.Call) -> Question | None:
    if node.args and not isinstance(node.args[0], ast.Starred):
        return Question(path, node.args[0])
    return _keyword(path, node, ("input", "self", "tensor"))


def _out(path: str, node: ast.Call) -> Question | None:
    value = next((k.value for k in node.keywords if k.arg == "out"), None)
    if isinstance(value, ast.Tuple | ast.List):
        value = value.elts[0] if value.elts and not isinstance(value.elts[0], ast.Starred) else None
    return Question(path, value, spread=True) if value is not None else None


def _keyword(path: str, node: ast.Call, names: tuple[str, ...]) -> Question | None:
    return next((Question(path, k.value) for k in node.keywords if k.arg in names), None)
