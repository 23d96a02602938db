"""The parts that chunk, split and unbind make, spelt as single views that may be written."""

from __future__ import annotations

import ast

from deinplace.analysis.source import Source
from deinplace.rules import _bindings as names
from deinplace.rules._origins import Origin, plain


def parts(made: Origin, base: ast.expr, sizes: list[ast.expr], dim: ast.expr | None) -> tuple[str | None, bool]:
    """An expression for the same parts as single views, and whether it is so for every size."""
    source, call = made.source, made.node
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Attribute)
    text, name = source.segment(base), call.func.attr
    along = f", {source.segment(dim)}" if dim is not None else ""
    by_keyword = next((k for k in call.keywords if k.arg == "dim"), None)
    along = f", dim={source.segment(dim)}" if dim is not None and by_keyword is not None else along
    method = call.func.value is base
    if name == "unbind":
        return _selected(source, base, dim, made.count), plain(base)
    if not sizes:
        return None, False
    size = sizes[0]
    if name in ("chunk", "unsafe_chunk"):
        parts = source.segment(size)
        head = (
            f"{text}.tensor_split({parts}"
            if method
            else f"{source.segment(call.func.value)}.tensor_split({text}, {parts}"
        )
        return f"{head}{along})", isinstance(size, ast.Constant) and size.value == 2
    if name not in ("split", "split_with_sizes", "unsafe_split"):
        return None, False
    borders = _borders(source, size, made.count)
    if borders is None:
        return None, False
    head = (
        f"{text}.tensor_split({borders}"
        if method
        else f"{source.segment(call.func.value)}.tensor_split({text}, {borders}"
    )
    return f"{head}{along})", True


def _borders(source: Source, size: ast.expr, count: int) -> str | None:
    """Where `split` cuts, as the indices that `tensor_split` takes."""
    if isinstance(size, ast.List | ast.Tuple) and size.elts and not any(isinstance(e, ast.Starred) for e in size.elts):
        texts = [source.segment(e) for e in size.elts]
        if all(isinstance(e, ast.Constant) for e in size.elts):
            numbers = [int(t) for t in texts if t.isdigit()]
            if len(numbers) == len(texts):
                return _tuple([str(sum(numbers[: i + 1])) for i in range(len(numbers) - 1)])
        if all(plain(e) or isinstance(e, ast.Constant) for e in size.elts):
            return _tuple([" + ".join(texts[: i + 1]) for i in range(len(texts) - 1)])
        return None
    if count < 2 or not (plain(size) or isinstance(size, ast.Constant)):
        return None
    text = source.segment(size)
    if isinstance(size, ast.Constant):
        return _tuple([str(int(size.value) * i) for i in range(1, count)]) if isinstance(size.value, int) else None
    return _tuple([text, *(f"{i} * {text}" for i in range(2, count))])


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _selected(source: Source, base: ast.expr, dim: ast.expr | None, count: int) -> str | None:
    """`x.unbind(d)` as a generator of `x.select(d, i)`."""
    if not plain(base):
        return None
    text, along = source.segment(base), source.segment(dim) if dim is not None else "0"
    index = unused(source)
    how_many = str(count) if count else f"{text}.size({along})"
    open_, close = "()" if count else "[]"
    return f"{open_}{text}.select({along}, {index}) for {index} in range({how_many}){close}"


def unused(source: Source) -> str:
    """A name that the file does not use, for the index of a comprehension."""
    used = names.names_in(source.tree)
    return next(n for n in ("i", "index", "position", "_index", "_position") if n not in used)
