"""Which expressions a type checker is asked about: what a site writes to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from deinplace.analysis.source import span_of
from deinplace.model import Span


@dataclass(frozen=True)
class Question:
    """One expression of a file. `element` is asked where the value it lies in turns out to be a container."""

    path: str
    expr: ast.expr
    element: ast.expr | None = None
    statement: ast.stmt | None = None
    """The augmented assignment in whose target the expression stands: it is asked just before."""

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
        return _keyword(path, node, ("out",))
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


def everywhere(path: str, tree: ast.Module, imports: dict[str, str]) -> Iterator[tuple[ast.AST, Question]]:
    """Every place of a file that looks like a write in place, with what to ask about it."""
    for node in ast.walk(tree):
        found = _looks(path, node, imports)
        if found is not None:
            yield node, found


def _looks(path: str, node: ast.AST, imports: dict[str, str]) -> Question | None:
    if isinstance(node, ast.AugAssign):
        return of_statement(path, node)
    if isinstance(node, ast.Assign):
        written = next((t for t in node.targets if isinstance(t, ast.Subscript) or _is_part(t)), None)
        return Question(path, written.value) if isinstance(written, ast.Subscript | ast.Attribute) else None
    if not isinstance(node, ast.Call):
        return None
    if any(k.arg == "out" for k in node.keywords):
        return _keyword(path, node, ("out",))
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    underscored = name.endswith("_") and not name.endswith("__") and not name.startswith("_")
    flagged = any(k.arg == "inplace" and isinstance(k.value, ast.Constant) and k.value.value for k in node.keywords)
    if not (underscored or flagged):
        return None
    if isinstance(func, ast.Attribute) and not _module(func.value, imports):
        return Question(path, func.value) if underscored or not name[:1].isupper() else None
    return _first(path, node) if not name[:1].isupper() else None


def _is_part(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("data", "real", "imag")


def _module(node: ast.expr, imports: dict[str, str]) -> bool:
    """True for a dotted name that starts at an imported one, such as `nn.init`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in imports


def _first(path: str, node: ast.Call) -> Question | None:
    if node.args and not isinstance(node.args[0], ast.Starred):
        return Question(path, node.args[0])
    return _keyword(path, node, ("input", "self", "tensor"))


def _keyword(path: str, node: ast.Call, names: tuple[str, ...]) -> Question | None:
    return next((Question(path, k.value) for k in node.keywords if k.arg in names), None)
