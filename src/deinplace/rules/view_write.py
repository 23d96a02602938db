"""DIP204: a write to a view that autograd does not let anyone write."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import ClassVar

from deinplace.analysis.source import Source, span_of
from deinplace.model import Applicability, Edit, Evidence, Rewrite, Site
from deinplace.rewrite.block import torch_name
from deinplace.rules import _bindings as names
from deinplace.rules import _lines as lines
from deinplace.rules import _parts
from deinplace.rules._origins import Origin, kind_of, origin, pieces, plain, read_after, viewed, written_expressions
from deinplace.rules.base import Case, Incident, Project, Rule

_CATEGORIES = ("multi-view", "hook-view", "function-view", "expanded", "detach-view")


class ViewWrite(Rule):
    """Write to a view that must not be written.

    ## What it does
    Finds writes to the outputs of `chunk`, `split` and `unbind`, to the rows that a loop over a tensor yields, to
    expanded memory, and to tensors that a full backward hook or a custom Function hands out.

    ## Why is this bad
    Autograd can follow a write through a single view back to its base, but not through an operation that returns
    several views at once: "Output 0 of Split is a view and is being modified inplace". Expanded tensors hold one
    element in many places: "more than one element of the written-to tensor refers to a single memory location".

    ## Example
    ```python
    value, gate = gates.chunk(2, dim=-1)
    gate.sigmoid_()
    return gates
    ```

    ## Use instead
    ```python
    value, gate = gates.tensor_split(2, dim=-1)
    gate.sigmoid_()
    return gates
    ```
    `gate = gate.sigmoid()` also runs, but `gates` then keeps the old values.

    ## Fix safety
    `tensor_split`, `select` and indexing give single views, through which the base still sees each write. Clones are
    offered where the base is not read again. An expanded tensor is cloned where it is made.

    ## References
    - https://pytorch.org/docs/stable/generated/torch.tensor_split.html
    """

    code: ClassVar[str] = "DIP204"
    name: ClassVar[str] = "view-write"
    cases: ClassVar[tuple[Case, ...]] = (
        Case("noop-outputs-only-read", "def f(x):\n    a, b = x.chunk(2, -1)\n    return a * b\n"),
        Case("noop-rebound-first", "def f(x):\n    a, b = x.chunk(2, -1)\n    a = a.exp()\n    a += b\n    return a\n"),
        Case("noop-expansion-may-be-writable", "def f(x, y):\n    a = x.expand_as(y)\n    a[0] = 1\n    return a\n"),
        Case("noop-single-view", "def f(x):\n    a = x[:, 0]\n    a += 1\n    return x\n"),
        Case(
            "chunk-written-and-base-read",
            "def f(x):\n    a, b = x.chunk(2, -1)\n    a += b\n    return x\n",
            "def f(x):\n    a, b = x.tensor_split(2, -1)\n    a += b\n    return x\n",
        ),
        Case(
            "loop-over-unbind",
            "def f(x):\n    for part in x.unbind(1):\n        part += 1\n    return x\n",
            "def f(x):\n    for part in [x.select(1, i) for i in range(x.size(1))]:\n        part += 1\n    return x\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Writes to names that were bound to one of several views in the same function."""
        project = Project({source.path: source})
        for statement, target in written_expressions(source):
            made = origin(source, names.root(target), statement, (), project)
            if made is not None and made.kind == "several":
                yield _site(source, statement, target, made)

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """Errors that name a view: the write, wherever its view was made."""
        raised = incident.raised
        if raised is None or raised.category not in _CATEGORIES:
            return None
        if raised.category == "expanded" and _in_backward(incident, project):
            written = _expanded_writes(project)
            return _site(written[0][0].source, *written[0][1:], written[0][0]) if written else None
        for source, place in names.frames(raised.stack, project):
            statement = names.statement_at(source, place.span)
            target = _target(source, statement, place.span) if statement is not None else None
            if statement is None or target is None:
                return None
            return _site(source, statement, target, _origin(source, statement, target, incident, project))
        return None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Single views of the base; clones where the base is not read again; a clone where memory was expanded."""
        if incident is not None and _in_backward(incident, project):
            yield from _all_expanded(project, site)
            return
        source = project.get(site.path)
        statement = names.statement_at(source, site.statement) if source else None
        target = _target(source, statement, site.span) if source and statement else None
        if source is None or statement is None or target is None:
            return
        made = _origin(source, statement, target, incident, project)
        if made is None or not project.editable(made.source.path):
            return
        category = incident.raised.category if incident and incident.raised else ""
        if made.kind == "several":
            yield from _single_views(made, site)
        elif made.kind == "rows":
            yield from _rows(made, site)
        elif made.kind == "expanded-several":
            yield from _clones(made, site)
        elif made.kind == "expanded" or category in ("hook-view", "function-view", "expanded"):
            yield from _clone_made(made, site)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """Names the write and where its view was made."""
        source = project.get(site.path)
        statement = names.statement_at(source, site.statement) if source else None
        target = _target(source, statement, site.span) if source and statement else None
        made = _origin(source, statement, target, incident, project) if source and statement and target else None
        text = f"line {site.span.line} writes `{site.target}`, a view that autograd does not let anyone write"
        if made is not None:
            text += f"; it was made on line {made.statement.lineno} (`{made.source.segment(made.node)}`)"
        return text + (
            ". Write out of place and rebuild the base (torch.cat, torch.stack) if it is read again, take single views "
            "(indexing, tensor_split), or clone where the view is made."
        )


def _in_backward(incident: Incident, project: Project) -> bool:
    """The error came up in a backward, long after the write: a masked write to expanded memory only warns."""
    for source, place in names.frames(incident.raised.stack if incident.raised else (), project):
        call = source.innermost(place.span, ast.Call)
        return isinstance(call, ast.Call) and ast.unparse(call.func).rsplit(".", 1)[-1] in ("backward", "grad")
    return False


def _expanded_writes(project: Project) -> list[tuple[Origin, ast.stmt, ast.expr]]:
    """Every write in the project to memory that the same function expanded."""
    found: list[tuple[Origin, ast.stmt, ast.expr]] = []
    for source in project.sources.values():
        for statement, target in written_expressions(source):
            made = origin(source, names.root(target), statement, (), project)
            if made is not None and made.kind == "expanded":
                found.append((made, statement, target))
    return found


def _all_expanded(project: Project, site: Site) -> Iterator[Rewrite]:
    """Clones at all expansions of one file that are written: a backward that fails does not say which it was."""
    places = [made for made, _, _ in _expanded_writes(project) if made.source.path == site.path]
    if not places:
        return
    ends = sorted({made.source.bounds(made.node)[1] for made in places})
    edits = [Edit(site.path, end, end, ".clone()") for end in ends]
    yield _rewrite(places[0], site, "clone what is expanded and then written where it is made", edits)


def _target(source: Source, statement: ast.stmt | None, where: object) -> ast.expr | None:
    """What a statement writes: its target, or the first argument of the call that failed."""
    if statement is None:
        return None
    target = names.written(statement)
    if target is not None:
        return target
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            return node.func.value
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and n.args and span_of(n) == where]
    calls = calls or [n for n in ast.walk(statement) if isinstance(n, ast.Call) and n.args]
    return calls[0].args[0] if calls else None


def _origin(
    source: Source, statement: ast.stmt, target: ast.expr, incident: Incident | None, project: Project
) -> Origin | None:
    stack = incident.raised.stack if incident and incident.raised else ()
    depth = next(
        (i for i, p in enumerate(stack) if p.path == source.path and p.function == source.qualname(statement)), 0
    )
    return origin(source, names.root(target), statement, stack[depth + 1 :], project)


def _site(source: Source, statement: ast.stmt, target: ast.expr, made: Origin | None) -> Site:
    span = span_of(statement)
    where = f"a view made on line {made.statement.lineno}" if made is not None else "a view"
    return Site(
        "DIP204",
        source.path,
        span,
        span,
        source.segment(target),
        source.qualname(statement),
        "",
        Evidence(kind="tensor" if made else "likely", origin="view", why=where),
    )


def _rewrite(
    made: Origin, site: Site, title: str, edits: Iterable[Edit], how: Applicability = "safe", note: str = ""
) -> Rewrite:
    touched = dict.fromkeys([(site.path, site.function), (made.source.path, made.source.qualname(made.statement))])
    return Rewrite("DIP204", title, tuple(edits), how, site.span.line, site.path, tuple(touched), note)


def _replace(made: Origin, new: str) -> Edit:
    start, end = made.source.bounds(made.node)
    return Edit(made.source.path, start, end, new)


def _single_views(made: Origin, site: Site) -> Iterator[Rewrite]:
    """The same parts as single views, then the same over a clone of the base, then clones of the parts."""
    assert isinstance(made.node, ast.Call)
    base, sizes, dim = pieces(made.node)
    if base is None:
        return
    copies = list(_clones(made, site))
    kept = any(c.applicability != "safe" for c in copies)
    yield from copies if not kept else ()
    new, exact = _parts.parts(made, base, sizes, dim)
    if new is not None:
        how: Applicability = "safe" if exact else "unsafe"
        note = "" if exact else "the parts are the same where the size divides evenly"
        title = f"take single views of `{made.source.segment(base)}`, through which it sees each write"
        yield _rewrite(made, site, title, (_replace(made, new),), how, note)
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
    yield _rewrite(made, site, title, (_replace(made, new), put), "safe" if own else "unsafe", note)


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
    yield _rewrite(made, site, title, (put, edit), "unsafe" if notes else "safe", notes)


def _rows(made: Origin, site: Site) -> Iterator[Rewrite]:
    """A loop over a tensor: over its rows as single views."""
    if not plain(made.node):
        return
    text, index = made.source.segment(made.node), _parts.unused(made.source)
    edit = _replace(made, f"[{text}[{index}] for {index} in range(len({text}))]")
    note = "iterating over a tensor gives views that must not be written; indexing gives single views"
    yield _rewrite(made, site, f"take the rows of `{text}` one by one", (edit,), "safe", note)
    if isinstance(made.node, ast.Name):
        yield from _over_clone(made, site, made.node, edit, "")


def _clones(made: Origin, site: Site) -> Iterator[Rewrite]:
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
    yield _rewrite(
        made, site, f"clone the parts that `{text}` makes", (_replace(made, new),), "unsafe" if doubt else "safe", doubt
    )


def _clone_made(made: Origin, site: Site) -> Iterator[Rewrite]:
    """A clone where the view was made: the name keeps being updated in place for all who share it."""
    if not isinstance(made.node, ast.Call | ast.Subscript):
        return
    end = made.source.bounds(made.node)[1]
    title = f"clone `{made.source.segment(made.node)}` where it is made"
    yield _rewrite(made, site, title, (Edit(made.source.path, end, end, ".clone()"),))
