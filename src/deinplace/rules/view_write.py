"""DIP204: a write to a view that autograd does not let anyone write."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import ClassVar

from deinplace.analysis.source import Source, span_of
from deinplace.model import Edit, Evidence, Rewrite, Site
from deinplace.rules import _bindings as names
from deinplace.rules._origins import Origin, origin, written_expressions
from deinplace.rules._own_memory import clone_made, clones, rewrite, rows, single_views
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
            yield from single_views(made, site)
        elif made.kind == "rows":
            yield from rows(made, site)
        elif made.kind == "expanded-several":
            yield from clones(made, site)
        elif made.kind == "expanded" or category in ("hook-view", "function-view", "expanded"):
            yield from clone_made(made, site)

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
    yield rewrite(places[0], site, "clone what is expanded and then written where it is made", edits)


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
