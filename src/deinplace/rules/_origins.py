"""Where a written tensor became a view that autograd does not let anyone write."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from deinplace.analysis.source import Function, Source
from deinplace.model import Place
from deinplace.rules import _bindings as names
from deinplace.rules._intent import argument_for
from deinplace.rules.base import Project

SEVERAL = ("chunk", "split", "unbind", "split_with_sizes", "vsplit", "dsplit", "unsafe_chunk", "unsafe_split")
EXPANDED = ("expand", "expand_as", "broadcast_to", "as_strided", "unfold")
EXPANDED_SEVERAL = ("broadcast_tensors", "meshgrid")
_VIEWS = [
    "view",
    "view_as",
    "reshape",
    "reshape_as",
    "transpose",
    "t",
    "permute",
    "squeeze",
    "unsqueeze",
    "flatten",
    "unflatten",
    "narrow",
    "select",
    "diagonal",
    "movedim",
    "swapaxes",
    "contiguous",
    "to",
    "type_as",
    "float",
    "detach",
    "mT",
    "real",
    "imag",
    "ravel",
]


@dataclass(frozen=True)
class Origin:
    """The expression that made the view: a call that returns several, or an expansion; or a loop over a tensor."""

    source: Source
    node: ast.expr
    statement: ast.stmt
    kind: str
    """`several`, `expanded`, `expanded-several`, `rows` (a loop over a tensor), or `made` (anything else)."""
    count: int
    """How many names take the several views apart; 0 where that is not visible."""


def origin(
    source: Source, node: ast.expr, statement: ast.stmt, callers: tuple[Place, ...], project: Project
) -> Origin | None:
    """Follow a written expression to where its view was made, through names, views of views and callers."""
    return _follow(source, node, statement, callers, project, 0)


def _follow(
    source: Source, node: ast.expr, at: ast.stmt, callers: tuple[Place, ...], project: Project, depth: int
) -> Origin | None:
    if depth > 12:
        return None
    if isinstance(node, ast.Call):
        kind = kind_of(node)
        if kind:
            return Origin(source, node, at, kind, _count(node, at))
        inner = viewed(node)
        found = _follow(source, inner, at, callers, project, depth + 1) if inner is not None else None
        return found or Origin(source, node, at, "made", 0)
    if isinstance(node, ast.Subscript):
        found = _follow(source, node.value, at, callers, project, depth + 1)
        return found if found is not None and found.kind != "made" else Origin(source, node, at, "made", 0)
    if not isinstance(node, ast.Name | ast.Attribute):
        return None
    text = ast.unparse(node)
    loop = names.loop_over(source, at, text)
    bound = [
        a for a in names.assignments(source.scope(at), text) if (a.lineno, a.col_offset) < (at.lineno, at.col_offset)
    ]
    if loop is not None and not any(a.lineno > loop.lineno for a in bound):
        return _over(source, loop, text, callers, project, depth)
    if not bound and isinstance(node, ast.Attribute):
        bound = names.assignments(source.tree, text)
    for assignment in reversed(bound):
        if assignment.value is not None and assignment is not at:
            return _follow(source, _matching(assignment, text), assignment, callers, project, depth + 1)
    if text in names.parameters(source.scope(at)):
        return _in_caller(source, text, at, callers, project, depth)
    return None


def _matching(assignment: ast.Assign | ast.AnnAssign, text: str) -> ast.expr:
    """The part of an assignment's value that a name gets, where a tuple is written out."""
    value = assignment.value or ast.Constant(None)
    for target in assignment.targets if isinstance(assignment, ast.Assign) else []:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for item, part in zip(target.elts, value.elts, strict=True):
                if ast.unparse(item) == text:
                    return part
    return value


def _over(
    source: Source, loop: ast.For, text: str, callers: tuple[Place, ...], project: Project, depth: int
) -> Origin | None:
    over = names.iterated(loop, text)
    if over is None:
        return None
    if isinstance(over, ast.Call) and (kind := kind_of(over)):
        return Origin(source, over, loop, kind, 0)
    if isinstance(over, ast.Name):
        found = _follow(source, over, loop, callers, project, depth + 1)
        if found is not None and found.kind in ("several", "expanded-several"):
            return found
    if isinstance(over, ast.Name | ast.Attribute):
        return Origin(source, over, loop, "rows", 0)
    return None


def _in_caller(
    source: Source, text: str, at: ast.stmt, callers: tuple[Place, ...], project: Project, depth: int
) -> Origin | None:
    scope = source.scope(at)
    if not callers or not isinstance(scope, Function):
        return None
    outer = project.get(callers[0].path)
    call = outer.innermost(callers[0].span, ast.Call) if outer is not None else None
    if outer is None or not isinstance(call, ast.Call) or not project.editable(outer.path):
        return None
    argument = argument_for(call, scope, text)
    if argument is None:
        return None
    return _follow(outer, argument, outer.statement(call), callers[1:], project, depth + 1)


def kind_of(call: ast.Call) -> str:
    """What sort of forbidden view a call makes, or nothing."""
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    if name in SEVERAL and isinstance(call.func, ast.Attribute):
        return "several"
    if name in EXPANDED and isinstance(call.func, ast.Attribute):
        return "expanded"
    return "expanded-several" if name in EXPANDED_SEVERAL else ""


def viewed(call: ast.Call) -> ast.expr | None:
    """The tensor that a view method looks at."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _VIEWS:
        base = call.func.value
        if isinstance(base, ast.Name) and base.id in ("torch", "th"):
            return call.args[0] if call.args else None
        return base
    return None


def _count(call: ast.Call, statement: ast.stmt) -> int:
    """Number of names that an assignment unpacks a call into."""
    if (
        isinstance(statement, ast.Assign)
        and statement.value is call
        and isinstance(statement.targets[0], ast.Tuple | ast.List)
    ):
        items = statement.targets[0].elts
        return 0 if any(isinstance(i, ast.Starred) for i in items) else len(items)
    return 0


def pieces(call: ast.Call) -> tuple[ast.expr | None, list[ast.expr], ast.expr | None]:
    """Tensor, sizes and dimension of a call such as `x.chunk(2, dim=-1)` or `torch.split(x, 3, 1)`."""
    if not isinstance(call.func, ast.Attribute):
        return None, [], None
    base: ast.expr | None = call.func.value
    positional = list(call.args)
    if isinstance(base, ast.Name) and base.id in ("torch", "th", "F"):
        base = (
            positional.pop(0)
            if positional
            else next((k.value for k in call.keywords if k.arg in ("input", "tensor")), None)
        )
    keywords = {k.arg: k.value for k in call.keywords}
    unbind = call.func.attr == "unbind"
    dim = keywords.get("dim")
    sizes = [v for k, v in keywords.items() if k in ("chunks", "split_size", "split_size_or_sections", "split_sizes")]
    if not unbind and not sizes and positional:
        sizes = [positional.pop(0)]
    if dim is None and positional:
        dim = positional.pop(0)
    return base, sizes, dim


def read_after(scope: ast.AST, line: int, text: str) -> bool:
    """True where a name or attribute is read below a line of its function, or kept or returned there."""
    return any(
        isinstance(n, ast.Name | ast.Attribute)
        and n.lineno > line
        and isinstance(n.ctx, ast.Load)
        and ast.unparse(n) == text
        for n in ast.walk(scope)
    )


def plain(node: ast.expr) -> bool:
    """An expression that may be evaluated twice: a name or a dotted attribute."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and plain(node.value))


def written_expressions(source: Source) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Statements that write in place, with what they write."""
    for node in source.nodes:
        if isinstance(node, (ast.AugAssign, ast.Assign, ast.Expr)):
            target = names.written(node)
            if target is not None and not names.grad_off(source, node):
                yield node, target
