"""The loop that fills a buffer, written over a list of rows: edits that keep everything else as it is."""

from __future__ import annotations

import ast
from itertools import pairwise

from deinplace.analysis.source import Source
from deinplace.model import Edit
from deinplace.rewrite.block import torch_name
from deinplace.rewrite.expression import atomic, fresh_name
from deinplace.rules import _bindings as names
from deinplace.rules import _lines as lines
from deinplace.rules._buffer import Buffer, elements, fits, full, index_parts, is_row, length_asked, row_written
from deinplace.rules._names import loops_around


def rewritten(buffer: Buffer, spread: bool) -> tuple[list[Edit], str] | None:
    """Edits that keep the rows in a list, and what they cost; None where a line cannot be put in.

    With `spread`, each value is spread to the shape of the row that it replaces, as the write did.
    """
    source, dims = buffer.source, buffer.dims
    torch = torch_name(source, buffer.loop)
    if torch is None:
        return None
    ends = _ends(buffer)
    mentions = [*buffer.early, *buffer.inside, *(buffer.late if ends else ())]
    edits: list[Edit] = []
    statements: dict[ast.stmt, None] = {}
    for name in mentions:
        edits += _access(buffer, name, torch)
        if isinstance(getattr(source.parents.get(name), "ctx", None), ast.Store):
            statements[source.statement(name)] = None
    for statement in statements:
        edits += _write(buffer, statement, torch, spread)
    opened = _opened(buffer)
    if opened is None:
        return None
    edits += opened
    if not ends:
        closed = lines.insert_after(source, buffer.loop, [f"{buffer.name.id} = {_stacked(buffer, torch)}"])
        if closed is None:
            return None
        edits.append(closed)
    sliced = any(_sliced(source, n, dims) for n in mentions)
    return edits, "Copies the rows read so far in every round." if sliced else ""


def _ends(buffer: Buffer) -> bool:
    """Everything behind the loop can read the list; nobody further out sees the name."""
    source = buffer.source
    if loops_around(source, buffer.loop) or isinstance(source.scope(buffer.loop), ast.Module | ast.ClassDef):
        return False
    return all(fits(source, n, buffer.dims) for n in buffer.late)


def _sliced(source: Source, name: ast.Name, dims: tuple[int, ...]) -> bool:
    parent = source.parents.get(name)
    return isinstance(parent, ast.Subscript) and parent.value is name and not is_row(source, parent, dims)


def _opened(buffer: Buffer) -> list[Edit] | None:
    """Take the buffer apart where it is allocated, else before the loop."""
    source = buffer.source
    head, tail = _unbound(buffer)
    if buffer.made is not None:
        start, end = source.bounds(buffer.made.value)
        return [Edit(source.path, start, start, head), Edit(source.path, end, end, tail)]
    put = lines.insert_before(source, buffer.loop, [f"{buffer.name.id} = {head}{buffer.name.id}{tail}"])
    return [put] if put is not None else None


def _unbound(buffer: Buffer) -> tuple[str, str]:
    first, *second = buffer.dims
    if not second:
        return "list(", f".unbind({first}))"
    row = fresh_name(buffer.source, "row", set())
    return f"[list({row}.unbind({_inner(buffer.dims)})) for {row} in ", f".unbind({first})]"


def _inner(dims: tuple[int, ...]) -> int:
    """The second dimension once the first is gone."""
    return dims[1] - 1 if dims[1] >= 0 else dims[1]


def _stacked(buffer: Buffer, torch: str) -> str:
    name, first = buffer.name.id, buffer.dims[0]
    if len(buffer.dims) == 1:
        return f"{torch}.stack({name}{_dim(first)})"
    row = fresh_name(buffer.source, "row", set())
    return f"{torch}.stack([{torch}.stack({row}{_dim(_inner(buffer.dims))}) for {row} in {name}]{_dim(first)})"


def _dim(dim: int) -> str:
    return f", dim={dim}" if dim else ""


def _access(buffer: Buffer, name: ast.Name, torch: str) -> list[Edit]:
    """One mention of the buffer in terms of the list."""
    source, dims = buffer.source, buffer.dims
    asked = length_asked(source, name, dims)
    if asked is not None:
        start, end = source.bounds(asked)
        return [Edit(source.path, start, end, f"len({name.id})")]
    node = source.parents[name]
    assert isinstance(node, ast.Subscript)
    if not is_row(source, node, dims):
        return _slice(buffer, node, torch)
    return _indexed(buffer, node)


def _indexed(buffer: Buffer, node: ast.Subscript) -> list[Edit]:
    """`buf[:, t, :]` as `buf[t]`: only what stands around the index goes, so that edits inside it still fit."""
    source = buffer.source
    at = index_parts(node.slice, buffer.dims) or []
    parts = elements(node.slice)
    open_end, stop = source.bounds(node.value)[1], source.bounds(node)[1]
    pieces = [source.bounds(parts[i]) for i in at]
    rest = [source.segment(p) for i, p in enumerate(parts) if i not in at]
    tail = "]" if all(full(p) for i, p in enumerate(parts) if i not in at) else f"][{', '.join(rest)}]"
    cuts = [(open_end, pieces[0][0], "[")]
    cuts += [(left[1], right[0], "][") for left, right in pairwise(pieces)]
    cuts.append((pieces[-1][1], stop, tail))
    return [Edit(source.path, a, b, new) for a, b, new in cuts if source.text[a:b] != new]


def _slice(buffer: Buffer, node: ast.Subscript, torch: str) -> list[Edit]:
    source = buffer.source
    at = (index_parts(node.slice, buffer.dims) or [0])[0]
    parts = elements(node.slice)
    rest = [":" if i == at else source.segment(p) for i, p in enumerate(parts)]
    tail = "" if all(full(p) for i, p in enumerate(parts) if i != at) else f"[{', '.join(rest)}]"
    start, end = source.bounds(node)
    part = source.segment(parts[at])
    new = f"{torch}.stack({buffer.name.id}[{part}]{_dim(buffer.dims[0])}){tail}"
    return [Edit(source.path, start, end, new)]


def _write(buffer: Buffer, statement: ast.stmt, torch: str, spread: bool) -> list[Edit]:
    """What a write stores: out of place for `+=`, as large as the row for numbers and, with `spread`, for all."""
    source = buffer.source
    target = row_written(statement)
    assert target is not None
    value: ast.expr = statement.value  # type: ignore[attr-defined]
    start, end = source.bounds(value)
    row = _text(buffer, target)
    if isinstance(statement, ast.AugAssign):
        between = source.text[source.bounds(target)[1] : start]
        symbol = between.strip(" \t()\\\r\n").removesuffix("=")
        wrapped = not isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
        stop = source.bounds(statement)[1]
        low = source.bounds(target)[1] + between.index("=") + 1
        edits = [Edit(source.path, source.bounds(target)[1], low, f" = {row} {symbol}")]
        if wrapped and "(" not in between:
            edits += [Edit(source.path, start, start, "("), Edit(source.path, stop, stop, ")")]
        return edits
    if _scalar(value):
        return [Edit(source.path, start, end, f"{torch}.full_like({row}, {source.segment(value)})")]
    if _written_later(buffer, value):
        return [Edit(source.path, end, end, ".clone()")]
    if not spread:
        return []
    head, tail = ("", "") if atomic(value) else ("(", ")")
    return [Edit(source.path, start, start, head), Edit(source.path, end, end, f"{tail}.expand_as({row})")]


def _written_later(buffer: Buffer, value: ast.expr) -> bool:
    """The value has a name that the loop writes in place: the buffer held a copy, a list would hold the tensor."""
    if not isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        return False
    root = ast.unparse(names.root(value))
    for node in ast.walk(buffer.loop):
        target = names.written(node) if isinstance(node, ast.stmt) else None
        if target is not None and ast.unparse(names.root(target)) == root and root != buffer.name.id:
            return True
    return False


def _text(buffer: Buffer, target: ast.Subscript) -> str:
    parts = elements(target.slice)
    at = index_parts(target.slice, buffer.dims) or []
    return buffer.name.id + "".join(f"[{buffer.source.segment(parts[i])}]" for i in at)


def _scalar(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("float", "int")
    if isinstance(value, ast.Attribute):
        return value.attr in ("inf", "nan", "pi")
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)
