"""Buffers that a loop fills row by row: which accesses they see, and the same loop over a list of rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deinplace.analysis.source import Source
from deinplace.rules import _lines as lines
from deinplace.rules._clone import bases
from deinplace.rules._names import assignable, bound_before, function_of, loops_around, own_nodes, rebinds

_PLAIN = ast.Name | ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Call | ast.Subscript
_FACTORIES = ("zeros", "ones", "empty", "full", "zeros_like", "empty_like", "ones_like", "new_zeros", "new_empty")

_MOVES = ("to", "cuda", "cpu", "float", "double", "half", "bfloat16", "type_as")


@dataclass(frozen=True)
class Buffer:
    """A name whose tensor a loop fills: the loop, the dimensions that each write indexes, and every access."""

    source: Source
    name: ast.Name
    loop: ast.stmt
    dims: tuple[int, ...]
    inside: tuple[ast.Name, ...]
    """Mentions of the name in the loop."""
    made: ast.Assign | None
    """The statement that allocates it, where nothing but reads and writes of rows stand between it and the loop."""
    early: tuple[ast.Name, ...]
    """Mentions between the allocation and the loop."""
    late: tuple[ast.Name, ...]
    """Mentions behind the loop."""


def buffer_of(source: Source, statement: ast.stmt) -> Iterator[Buffer]:
    """The buffer that a statement writes a row of, for each loop in which every access is to rows, outermost first."""
    target = row_written(statement)
    loops = loops_around(source, statement) if target is not None else []
    if target is None or not loops:
        return
    owners = bases(source, target)
    name = owners[0] if owners else None
    dims = _dims(target)
    if not isinstance(name, ast.Name) or target.value is not name or not dims:
        return
    if not assignable(source, statement, name.id) or _held_elsewhere(source, statement, name.id):
        return
    for loop in reversed(loops):
        if rebinds(loop, name) or not bound_before(source, loop, name):
            continue
        inside = _mentions(loop, name.id)
        if not _list_before(source, loop, name) and all(fits(source, n, dims) for n in inside):
            yield _placed(source, name, loop, dims, inside)


def _list_before(source: Source, loop: ast.stmt, name: ast.Name) -> bool:
    """The name was last bound to a list."""
    start = source.bounds(loop)[0]
    made: ast.expr | None = None
    for node in own_nodes(function_of(source, loop)):
        if not isinstance(node, ast.Assign) or source.bounds(node)[0] >= start:
            continue
        if any(isinstance(t, ast.Name) and t.id == name.id for t in node.targets):
            made = node.value
    called = made.func if isinstance(made, ast.Call) else None
    return isinstance(made, ast.List | ast.ListComp) or (isinstance(called, ast.Name) and called.id == "list")


def row_written(statement: ast.stmt) -> ast.Subscript | None:
    """The one element or slice that a statement assigns."""
    if isinstance(statement, ast.AugAssign):
        target: ast.expr | None = statement.target
    else:
        single = isinstance(statement, ast.Assign) and len(statement.targets) == 1
        target = statement.targets[0] if isinstance(statement, ast.Assign) and single else None
    return target if isinstance(target, ast.Subscript) else None


def _placed(source: Source, name: ast.Name, loop: ast.stmt, dims: tuple[int, ...], inside: list[ast.Name]) -> Buffer:
    scope = function_of(source, loop)
    start, end = source.bounds(loop)
    every = [n for n in own_nodes(scope) if isinstance(n, ast.Name) and n.id == name.id]
    late = tuple(n for n in every if source.bounds(n)[0] >= end)
    made, early = _allocation(source, loop, name, dims, [n for n in every if source.bounds(n)[0] < start])
    if loops_around(source, loop):
        late = tuple(n for n in every if n not in inside)  # the next round of an outer loop may read it, too
    return Buffer(source, name, loop, dims, tuple(inside), made, early, late)


def _allocation(
    source: Source, loop: ast.stmt, name: ast.Name, dims: tuple[int, ...], before: Sequence[ast.Name]
) -> tuple[ast.Assign | None, tuple[ast.Name, ...]]:
    """The allocation in the loop's own block, where it can hand out rows at once."""
    block = lines.block_of(source, loop)
    if block is None:
        return None, ()
    body, at = block
    for index in range(at - 1, -1, -1):
        made = body[index]
        if not (isinstance(made, ast.Assign) and len(made.targets) == 1 and isinstance(made.targets[0], ast.Name)):
            continue
        if made.targets[0].id != name.id or not _allocates(made.value):
            continue
        _, end = source.bounds(made)
        early = tuple(n for n in before if source.bounds(n)[0] >= end)
        fitting = all(fits(source, n, dims) for n in early)
        return (made, early) if fitting else (None, ())
    return None, ()


def _allocates(value: ast.expr) -> bool:
    """A call of a factory: its result has no other name."""
    called = value.func if isinstance(value, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if name in _MOVES and isinstance(called, ast.Attribute):
        return _allocates(called.value)
    return name in _FACTORIES


def _mentions(node: ast.AST, name: str) -> list[ast.Name]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]


def _held_elsewhere(source: Source, statement: ast.stmt, name: str) -> bool:
    """A nested function reads the name, or the name belongs to a scope further out."""
    scope = function_of(source, statement)
    for node in ast.walk(scope):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return True
        nested = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        if nested and node is not scope and _mentions(node, name):
            return True
    return False


# ---- accesses


def elements(index: ast.expr) -> list[ast.expr]:
    """The parts of a subscript's index."""
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def full(part: ast.expr) -> bool:
    """`:` or `...`"""
    if isinstance(part, ast.Slice):
        return part.lower is part.upper is part.step is None
    return isinstance(part, ast.Constant) and part.value is Ellipsis


def _integer(part: ast.expr) -> bool:
    """What may be one integer; masks and lists of indices are told apart when the program runs."""
    if isinstance(part, ast.Constant):
        return isinstance(part.value, int) and not isinstance(part.value, bool)
    return isinstance(part, _PLAIN) and pure_enough(part)


def pure_enough(part: ast.expr) -> bool:
    """No assignment, await or yield inside."""
    return not any(isinstance(n, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for n in ast.walk(part))


def _dims(target: ast.Subscript) -> tuple[int, ...]:
    """Dimensions that a write of a whole row indexes; counted from the end behind an ellipsis; () where unfit."""
    parts = elements(target.slice)
    dots = [i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is Ellipsis]
    found: list[int] = []
    for at, part in enumerate(parts):
        if full(part):
            continue
        if not _integer(part):
            return ()
        found.append(at - len(parts) if dots and at > dots[0] else at)
    mixed = any(d < 0 for d in found) and any(d >= 0 for d in found)
    return tuple(found) if len(found) in (1, 2) and not mixed and len(dots) <= 1 else ()


def index_parts(index: ast.expr, dims: tuple[int, ...]) -> list[int] | None:
    """Positions in an index of the parts that stand for `dims`, or None where one of them is not there."""
    parts = elements(index)
    dots = next((i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is Ellipsis), len(parts))
    if any(isinstance(p, ast.Constant) and p.value is None for p in parts):
        return None
    found = []
    for dim in dims:
        at = dim if dim >= 0 else len(parts) + dim
        if not 0 <= at < len(parts) or (at >= dots if dim >= 0 else at <= dots or dots == len(parts)):
            return None
        found.append(at)
    return found


def fits(source: Source, name: ast.Name, dims: tuple[int, ...]) -> bool:
    """True where a mention of the buffer can be one of a list of rows."""
    parent = source.parents.get(name)
    if isinstance(parent, ast.Subscript) and parent.value is name:
        return is_row(source, parent, dims) or (len(dims) == 1 and _span(parent, dims))
    return length_asked(source, name, dims) is not None


def is_row(source: Source, node: ast.Subscript, dims: tuple[int, ...]) -> bool:
    at = index_parts(node.slice, dims)
    if at is None or isinstance(node.ctx, ast.Del):
        return False
    parts = elements(node.slice)
    if not all(_integer(parts[i]) for i in at):
        return False
    rest = [p for i, p in enumerate(parts) if i not in at]
    if isinstance(node.ctx, ast.Store):
        return all(full(p) for p in rest) and row_written(source.statement(node)) is node
    # A write through a read row, such as `buf[t].zero_()` or `buf[t][0] = 1`, would go to the row that was put there.
    return not _written_through(source, node)


def _written_through(source: Source, node: ast.expr) -> bool:
    parent = source.parents.get(node)
    while isinstance(parent, ast.Subscript | ast.Attribute | ast.Call):
        if isinstance(getattr(parent, "ctx", None), ast.Store | ast.Del):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr.endswith("_") and not parent.attr.endswith("__"):
            return True
        if isinstance(parent, ast.Call) and parent.func is not node:
            return False
        node, parent = parent, source.parents.get(parent)
    return isinstance(parent, ast.AugAssign) and parent.target is node and not isinstance(node, ast.Subscript)


def _span(node: ast.Subscript, dims: tuple[int, ...]) -> bool:
    """`buf[:, a:b]`: the rows so far."""
    at = index_parts(node.slice, dims)
    if at is None or not isinstance(node.ctx, ast.Load):
        return False
    part = elements(node.slice)[at[0]]
    return isinstance(part, ast.Slice) and not full(part) and (part.step is None) and dims[0] >= 0


def length_asked(source: Source, name: ast.Name, dims: tuple[int, ...]) -> ast.expr | None:
    """The expression that asks for the buffer's length along its one indexed dimension, or for `len`."""
    parent = source.parents.get(name)
    above = source.parents.get(parent) if parent is not None else None
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len":
        return parent if dims[0] == 0 else None
    if not isinstance(parent, ast.Attribute) or len(dims) != 1:
        return None
    if parent.attr == "shape" and isinstance(above, ast.Subscript):
        return above if _number(above.slice) == dims[0] else None
    if parent.attr == "size" and isinstance(above, ast.Call) and len(above.args) == 1:
        return above if _number(above.args[0]) == dims[0] else None
    return None


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return -inner if inner is not None else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def reads_rows(buffer: Buffer) -> bool:
    """True where the loop reads the buffer back: only then can a write destroy what was saved."""
    return any(isinstance(getattr(buffer.source.parents.get(n), "ctx", None), ast.Load) for n in buffer.inside)


def remade(buffer: Buffer) -> bool:
    """True where a loop further out would take the same buffer apart and put it together in every round."""
    outer = loops_around(buffer.source, buffer.loop)
    return bool(outer) and not rebinds(outer[0], buffer.name)
