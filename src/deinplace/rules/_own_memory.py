"""Rewrites after which a tensor is whole memory of its own instead of a view."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from deinplace.analysis.source import Source
from deinplace.model import Applicability, Edit, Rewrite, Site
from deinplace.rewrite.block import torch_name
from deinplace.rules import _bindings as names
from deinplace.rules import _lines as lines
from deinplace.rules import _parts
from deinplace.rules._origins import Origin, kind_of, pieces, plain, read_after, viewed


def rewrite(
    made: Origin, site: Site, title: str, edits: Iterable[Edit], how: Applicability = "safe", note: str = ""
) -> Rewrite:
    touched = dict.fromkeys([(site.path, site.function), (made.source.path, made.source.qualname(made.statement))])
    return Rewrite("DIP204", title, tuple(edits), how, site.span.line, site.path, tuple(touched), note)


def _replace(made: Origin, new: str) -> Edit:
    start, end = made.source.bounds(made.node)
    return Edit(made.source.path, start, end, new)


def single_views(made: Origin, site: Site) -> Iterator[Rewrite]:
    """The same parts as single views, then the same over a clone of the base, then clones of the parts."""
    assert isinstance(made.node, ast.Call)
    base, sizes, dim = pieces(made.node)
    if base is None:
        return
    copies = list(clones(made, site))
    kept = any(c.applicability != "safe" for c in copies)
    yield from copies if not kept else ()
    new, exact = _parts.parts(made, base, sizes, dim)
    if new is not None:
        how: Applicability = "safe" if exact else "unsafe"
        note = "" if exact else "the parts are the same where the size divides evenly"
        title = f"take single views of `{made.source.segment(base)}`, through which it sees each write"
        yield rewrite(made, site, title, (_replace(made, new),), how, note)
        if isinstance(base, ast.Name):
            yield from _over_clone(made, site, base, _replace(made, new), note)
    if kept:
        yield from _rebuilt(made, site, base, dim)
        yield from copies


def _kept(made: Origin, base: ast.expr) -> bool:
    """The base is read again below, under a name that the statement itself does not take away."""
    bound = getattr(made.statement, "targets", [])
    if not plain(base) or any(ast.unparse(t) == ast.unparse(base) for target in bound for t in names.flat(target)):
        return False
    return read_after(made.source.scope(made.statement), made.statement.lineno, ast.unparse(base))


def _rebuilt(made: Origin, site: Site, base: ast.expr, dim: ast.expr | None) -> Iterator[Rewrite]:
    """Clones of the parts, and the base put together from them behind the last write."""
    source, statement = made.source, made.statement
    found = lines.block_of(source, statement)
    if found is None or not isinstance(base, ast.Name) or not isinstance(statement, ast.Assign) or not made.count:
        return
    parts = [ast.unparse(t) for t in names.flat(statement.targets[0])]
    rest = found[0][found[1] + 1 :]
    writes = [i for i, s in enumerate(rest) if _writes_any(s, parts)]
    if (
        not writes
        or any(names.mentions(s, base.id) for s in rest[: writes[-1] + 1])
        or _rebound(rest[: writes[-1] + 1], parts)
    ):
        return
    torch = torch_name(source, statement)
    if torch is None:
        return
    assert isinstance(made.node, ast.Call)
    joins = "stack" if ast.unparse(made.node.func).endswith("unbind") else "cat"
    along = f", dim={source.segment(dim)}" if dim is not None else ""
    put = lines.insert_after(source, rest[writes[-1]], [f"{base.id} = {torch}.{joins}(({', '.join(parts)}){along})"])
    if put is None:
        return
    new = f"(t.clone() for t in {source.segment(made.node)})"
    own = _fresh(source, statement, base)
    note = "" if own else f"other names of the tensor in `{base.id}` no longer see the writes"
    title = f"write clones of the parts and put `{base.id}` together from them"
    yield rewrite(made, site, title, (_replace(made, new), put), "safe" if own else "unsafe", note)


def _writes_any(statement: ast.stmt, parts: list[str]) -> bool:
    return any(
        isinstance(n, ast.stmt) and (w := names.written(n)) is not None and ast.unparse(names.root(w)) in parts
        for n in ast.walk(statement)
    )


def _rebound(statements: list[ast.stmt], parts: list[str]) -> bool:
    """A part gets another tensor, so that its name no longer stands for the base's memory."""
    return any(
        isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in parts and not _augmented(s, n)
        for s in statements
        for n in ast.walk(s)
    )


def _augmented(statement: ast.stmt, name: ast.Name) -> bool:
    return any(isinstance(n, ast.AugAssign) and n.target is name for n in ast.walk(statement))


def _fresh(source: Source, statement: ast.stmt, base: ast.expr) -> bool:
    """The base was just made by an operation, so that no other name can read its memory."""
    if isinstance(base, ast.Name):
        before = [a for a in names.assignments(source.scope(statement), base.id) if a.lineno < statement.lineno]
        value = before[-1].value if before else None
    else:
        value = base
    if isinstance(value, ast.Call):
        return viewed(value) is None and not kind_of(value)
    return isinstance(value, ast.BinOp)


def _over_clone(made: Origin, site: Site, base: ast.Name, edit: Edit, note: str) -> Iterator[Rewrite]:
    """Single views of a clone of the base: where the base may not be written itself."""
    put = lines.insert_before(made.source, made.statement, [f"{base.id} = {base.id}.clone()"])
    if put is None or made.source.scope(made.statement) is made.source.tree:
        return
    scope = made.source.scope(made.statement)
    returned = any(
        isinstance(n, ast.Return) and n.value is not None and names.mentions(n.value, base.id) for n in ast.walk(scope)
    )
    own = base.id not in names.parameters(scope) or returned
    said = "" if own else f"the caller's tensor no longer sees the writes to `{base.id}`"
    notes = "; ".join(n for n in (note, said) if n)
    title = f"clone `{base.id}` and take single views of the clone"
    yield rewrite(made, site, title, (put, edit), "unsafe" if notes else "safe", notes)


def rows(made: Origin, site: Site) -> Iterator[Rewrite]:
    """A loop over a tensor: over its rows as single views."""
    if not plain(made.node):
        return
    text, index = made.source.segment(made.node), _parts.unused(made.source)
    edit = _replace(made, f"[{text}[{index}] for {index} in range(len({text}))]")
    note = "iterating over a tensor gives views that must not be written; indexing gives single views"
    yield rewrite(made, site, f"take the rows of `{text}` one by one", (edit,), "safe", note)
    if isinstance(made.node, ast.Name):
        yield from _over_clone(made, site, made.node, edit, "")


def clones(made: Origin, site: Site) -> Iterator[Rewrite]:
    """`a, b = x.chunk(2)` as clones of the parts."""
    source, call = made.source, made.node
    text = source.segment(call)
    new = f"(t.clone() for t in {text})" if made.count else f"[t.clone() for t in {text}]"
    assert isinstance(call, ast.Call)
    base = pieces(call)[0]
    shared = (
        base is not None and made.kind == "several" and (_kept(made, base) or not _fresh(source, made.statement, base))
    )
    doubt = f"`{source.segment(base)}` no longer sees the writes" if base is not None and shared else ""
    yield rewrite(
        made, site, f"clone the parts that `{text}` makes", (_replace(made, new),), "unsafe" if doubt else "safe", doubt
    )


def clone_made(made: Origin, site: Site) -> Iterator[Rewrite]:
    """A clone where the view was made: the name keeps being updated in place for all who share it."""
    if not isinstance(made.node, ast.Call | ast.Subscript):
        return
    end = made.source.bounds(made.node)[1]
    title = f"clone `{made.source.segment(made.node)}` where it is made"
    yield rewrite(made, site, title, (Edit(made.source.path, end, end, ".clone()"),))
