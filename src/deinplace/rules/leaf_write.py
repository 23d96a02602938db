"""DIP203: a write to a leaf that requires grad, or to a view of one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import ClassVar

from deinplace.analysis.source import Function, Source, span_of
from deinplace.model import Edit, Event, Evidence, Rewrite, Site
from deinplace.rewrite import block
from deinplace.rewrite.statement import Refused
from deinplace.rules import _bindings as names
from deinplace.rules import _intent as intent
from deinplace.rules import _lines as lines
from deinplace.rules import _runs
from deinplace.rules.base import Case, Incident, Project, Rule

_FACTORY_FLAG = "requires_grad"


class LeafWrite(Rule):
    """Write to a leaf that requires grad.

    ## What it does
    Finds writes in place to parameters and other leaf tensors that require grad, or to views of them: hand-written
    update steps, initialisation by assignment, buffers that were allocated with `requires_grad=True` and then filled.

    ## Why is this bad
    Autograd refuses it on the spot: "a leaf Variable that requires grad is being used in an in-place operation", or
    "a view of a leaf Variable ...". A leaf has no history, so a write that is recorded would turn it into the result
    of an operation, and its gradient would never reach it.

    ## Example
    ```python
    for w in weights:
        w -= lr * w.grad
    ```

    ## Use instead
    ```python
    with torch.no_grad():
        for w in weights:
            w -= lr * w.grad
    ```
    `w = w - lr * w.grad` is the wrong cure: the name then holds a tensor that is no leaf, its `grad` stays `None`, and
    the original is never updated. `w.data -= ...` runs, but hides the write from the version counter.

    ## Fix safety
    An update or an initialisation gets `torch.no_grad()` around the unchanged statements. A buffer that is filled with
    computed values loses `requires_grad=True`. Inside a differentiable inner loop (MAML) `no_grad` would silence the
    error and lose the outer gradient, so the container is rebuilt from clones instead. A leaf that is an input to a
    computation is left to the rules that write out of place.

    ## References
    - https://pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd
    """

    code: ClassVar[str] = "DIP203"
    owns: ClassVar[frozenset[str]] = frozenset({"leaf", "leaf-view", "inference", "cast"})
    name: ClassVar[str] = "leaf-write"
    cases: ClassVar[tuple[Case, ...]] = (
        Case("noop-under-no-grad", "import torch\nwith torch.no_grad():\n    w -= lr * w.grad\n"),
        Case("noop-no-gradient-on-the-right", "import torch\ntotal -= rate * count\n"),
        Case("noop-out-of-place", "import torch\nw = w - lr * w.grad\n"),
        Case(
            "update-pair",
            "def program():\n    import torch\n    w = torch.ones(3, requires_grad=True)\n"
            "    v = torch.ones(3, requires_grad=True)\n    (w * v).sum().backward()\n"
            "    w -= 0.5 * w.grad\n    v -= 0.5 * v.grad  # both\n    return w * v\n",
            "def program():\n    import torch\n    w = torch.ones(3, requires_grad=True)\n"
            "    v = torch.ones(3, requires_grad=True)\n    (w * v).sum().backward()\n    with torch.no_grad():\n"
            "        w -= 0.5 * w.grad\n        v -= 0.5 * v.grad  # both\n    return w * v\n",
        ),
        Case(
            "update-loop",
            "def program(net, x):\n    import torch\n    net(x).sum().backward()\n    for p in net.parameters():\n"
            "        p.add_(p.grad, alpha=-0.1)\n    return net(x).sum()\n",
            "def program(net, x):\n    import torch\n    net(x).sum().backward()\n    with torch.no_grad():\n"
            "        for p in net.parameters():\n            p.add_(p.grad, alpha=-0.1)\n    return net(x).sum()\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Updates of a tensor by its own `.grad` where autograd is on: wrong whatever the tensor's type."""
        for node in (*source.of(ast.AugAssign), *source.of(ast.Expr)):
            target = names.written(node)
            if target is None or names.grad_off(source, node):
                continue
            if _own_gradient(node, target) and not _runs.through_data(target):
                yield _site(source, node, "its own gradient is on the right")

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """Leaf errors where the write means to stay, inference and cast errors, and inner loops of MAML."""
        if incident.raised is not None:
            return self._claim_raised(incident, project)
        if incident.conflict is not None and incident.conflict.write.optimizer is None:
            return _claim_inner_loop(incident.conflict.write, project)
        return None

    def _claim_raised(self, incident: Incident, project: Project) -> Site | None:
        raised = incident.raised
        if raised is None or raised.category not in ("leaf", "leaf-view", "inference", "cast"):
            return None
        for depth, place in enumerate(raised.stack):
            source = project.get(place.path)
            if source is None or not project.editable(place.path):
                continue
            statement = names.statement_at(source, place.span)
            if statement is None:
                return None
            if raised.category in ("inference", "cast"):
                return _site(source, statement, raised.category) if names.written(statement) is not None else None
            rest = raised.stack[depth + 1 :]
            if _flagged_buffer(source, statement) or intent.updates(source, statement, rest, project):
                return _site(source, statement, raised.category)
            return None
        return None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """`no_grad` around an update; the flag off a filled buffer; the container rebuilt in an inner loop."""
        source = project.get(site.path)
        statement = names.statement_at(source, site.span) if source else None
        if source is None or statement is None:
            return
        category = incident.raised.category if incident and incident.raised else ""
        if category == "cast":
            yield from _casts(source, statement, site)
        elif category == "inference":
            yield from _inference(source, statement, site)
        elif incident is not None and incident.conflict is not None:
            yield from _inner_loop(source, statement, site)
        else:
            filled = list(_drop_flag(source, statement, site))
            yield from filled
            if not filled and not _runs.needs_gradient(statement):
                yield from _no_grad(source, statement, site)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """Where the write stands and the two things that it can mean."""
        category = incident.raised.category if incident is not None and incident.raised is not None else ""
        if category == "cast":
            return (
                f"line {site.span.line} would put fractions into `{site.target}`, which holds whole numbers: divide "
                "with `//=`, or make the tensor float before anything else holds it."
            )
        if category == "inference":
            return (
                f"line {site.span.line} writes `{site.target}`, which was made under torch.inference_mode(): write it "
                "there, or clone it where it leaves that block, before anything else holds it."
            )
        if incident is not None and incident.conflict is not None:
            return (
                f"line {site.span.line} updates `{site.target}` inside a differentiable inner loop: build new tensors; "
                "under no_grad, or through .data, the outer gradient would be lost without an error."
            )
        return (
            f"line {site.span.line} writes `{site.target}`, a leaf that requires grad or a view of one. If the write "
            f"updates or initialises it, put `with torch.no_grad():` around line {site.span.line}; if it is a step of "
            "the computation, write out of place into a new name."
        )


def _site(source: Source, statement: ast.stmt, why: str) -> Site:
    target = names.written(statement)
    method = ""
    if isinstance(statement, ast.AugAssign):
        method = "op="
    elif isinstance(statement, ast.Assign):
        method = "[]="
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        method = ast.unparse(statement.value.func).rsplit(".", 1)[-1]
    return Site(
        "DIP203",
        source.path,
        span_of(statement),
        span_of(statement),
        source.segment(target) if target is not None else source.segment(statement).split("\n")[0],
        source.qualname(statement),
        method,
        Evidence(kind="tensor", why=why),
    )


def _rewrite(source: Source, site: Site, title: str, edits: Iterable[Edit], note: str = "", **more: str) -> Rewrite:
    applicability = more.get("applicability", "safe")
    return Rewrite(
        "DIP203",
        title,
        tuple(edits),
        "safe" if applicability == "safe" else "unsafe" if applicability == "unsafe" else "display",
        site.span.line,
        site.path,
        ((source.path, site.function),),
        note,
    )


def _own_gradient(statement: ast.stmt, target: ast.expr) -> bool:
    text = f"{ast.unparse(names.root(target))}.grad"
    return any(isinstance(n, ast.Attribute) and ast.unparse(n) == text for n in ast.walk(statement)) and (
        not isinstance(target, ast.Attribute) or target.attr != "grad"
    )


def _no_grad(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    first, last = _runs.unit(source, statement)
    title = f"write `{site.target}` under no_grad"
    try:
        header, imports = block.no_grad(source, first)
        edits = block.wrap(source, _runs.siblings(source, first, last), header)
    except Refused:
        hidden = _on_one_line(source, statement)
        if hidden:
            yield _rewrite(source, site, title, hidden)
        return
    yield _rewrite(source, site, title, (*imports, *edits))


def _on_one_line(source: Source, statement: ast.stmt) -> list[Edit]:
    """`with torch.no_grad(): w -= g` where the statement shares its line with others that follow none of its kind."""
    parent = source.parents.get(statement)
    if isinstance(parent, ast.stmt) and parent.lineno == statement.lineno:
        return []
    if lines.lines_of(source, statement) is None:
        return []
    try:
        header, imports = block.no_grad(source, statement)
    except Refused:
        return []
    start, _ = source.bounds(statement)
    return [*imports, Edit(source.path, start, start, f"{header} ")]


def _flagged_buffer(source: Source, statement: ast.stmt) -> ast.Call | None:
    """The factory call with `requires_grad=True` that made the written name, where its gradient is not wanted."""
    target = names.written(statement)
    if target is None:
        return None
    text = ast.unparse(names.root(target))
    scope = source.scope(statement)
    before = [a for a in names.assignments(scope, text) if a.lineno < statement.lineno]
    value = before[-1].value if before else None
    if not isinstance(value, ast.Call) or intent.updates_by_gradient(statement, scope) or intent.trained(scope, text):
        return None
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr) or "Parameter" in ast.unparse(value.func):
        return None
    flag = next((k for k in value.keywords if k.arg == _FACTORY_FLAG), None)
    if flag is not None and isinstance(flag.value, ast.Constant) and flag.value.value is True:
        return value
    if isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_" and not value.keywords:
        return value
    return None


def _drop_flag(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    call = _flagged_buffer(source, statement)
    if call is None:
        return
    edit = lines.remove_keyword(source, call, _FACTORY_FLAG)
    if edit is None and isinstance(call.func, ast.Attribute):
        edit = Edit(source.path, source.bounds(call.func.value)[1], source.bounds(call)[1], "")
    if edit is not None:
        title = f"allocate `{ast.unparse(names.root(names.written(statement) or call))}` without requires_grad"
        yield _rewrite(source, site, title, (edit,))


def _claim_inner_loop(write: Event, project: Project) -> Site | None:
    """A conflict whose write updates fast weights by gradients that were taken with `create_graph=True`."""
    for source, place in names.frames(write.stack[:1], project):
        statement = names.statement_at(source, place.span)
        if statement is not None and _container(source, statement) is not None:
            return _site(source, statement, "an update inside a differentiable inner loop")
    return None


def _container(source: Source, statement: ast.stmt) -> tuple[ast.For, str, str] | None:
    """Loop, container's name, and how the loop reads it (`values`, `items` or nothing), for an inner-loop update."""
    target = names.written(statement)
    if not isinstance(target, ast.Name) or not intent.updates_by_gradient(statement, source.scope(statement)):
        return None
    loop = names.loop_over(source, statement, target.id)
    over = names.iterated(loop, target.id) if loop is not None else None
    if loop is None or "create_graph=True" not in ast.unparse(source.scope(statement)):
        return None
    if isinstance(over, ast.Name):
        return loop, over.id, ""
    called = over.func if isinstance(over, ast.Call) else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.attr in ("values", "items"):
        return loop, called.value.id, called.attr
    return None


def _inner_loop(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    found = _container(source, statement)
    if found is None:
        return
    loop, name, how = found
    code = f"{name} = {{k: v.clone() for k, v in {name}.items()}}" if how else f"{name} = [v.clone() for v in {name}]"
    edit = lines.insert_before(source, loop, [code])
    scope = source.scope(statement)
    handed_back = any(
        isinstance(n, ast.Return) and n.value is not None and names.mentions(n.value, name) for n in ast.walk(scope)
    )
    if edit is None:
        return
    private = handed_back or name not in names.parameters(scope)
    yield _rewrite(
        source,
        site,
        f"update clones of `{name}`, so that its graph keeps the values it saved",
        (edit,),
        "" if private else f"the caller's `{name}` is no longer updated: it has to take the new container",
        applicability="safe" if private else "unsafe",
    )


def _casts(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    """An integer tensor times a fraction: floor division where that is exact for a whole divisor."""
    if not isinstance(statement, ast.AugAssign):
        return
    divisor = _divisor(statement)
    if divisor:
        start, end = source.bounds(statement)
        target = source.segment(statement.target)
        edit = Edit(source.path, start, end, f"{target} //= {divisor}")
        yield _rewrite(
            source,
            site,
            f"halve `{target}` in whole numbers" if divisor == 2 else f"divide `{target}` in whole numbers",
            (edit,),
            "rounds down; the dtype and every holder of the tensor stay as they are",
        )
        return
    start, end = source.bounds(statement)
    operator = (
        source.text[source.bounds(statement.target)[1] : source.bounds(statement.value)[0]].replace("=", "", 1).strip()
    )
    target, value = source.segment(statement.target), source.segment(statement.value)
    if operator in ("+", "-", "*", "/", "//", "%", "**") and isinstance(statement.target, ast.Name):
        edit = Edit(source.path, start, end, f"{target}.copy_({target} {operator} ({value}))")
        yield _rewrite(
            source,
            site,
            f"cast the result back to the dtype of `{target}`",
            (edit,),
            "drops the fraction of each element",
            applicability="display",
        )


def _divisor(statement: ast.AugAssign) -> int:
    value = statement.value
    if not isinstance(value, ast.Constant) or not isinstance(value.value, int | float) or not value.value:
        return 0
    if isinstance(statement.op, ast.Div) and float(value.value).is_integer() and value.value > 0:
        return int(value.value)
    inverse = 1 / value.value
    if (
        isinstance(statement.op, ast.Mult)
        and inverse > 1
        and inverse.is_integer()
        and not int(inverse) & (int(inverse) - 1)
    ):
        return int(inverse)
    return 0


def _inference(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    torch = block.torch_name(source, statement)
    try:
        edits = block.wrap(source, [statement], f"with {torch}.inference_mode():") if torch else []
    except Refused:
        edits = []
    if edits:
        yield _rewrite(source, site, f"write `{site.target}` in inference mode, where it was made", edits)
    target = names.written(statement)
    base = names.root(target) if target is not None else None
    if not isinstance(base, ast.Name):
        return
    before = [a for a in names.assignments(source.scope(statement), base.id) if a.lineno < statement.lineno]
    if not before:
        return
    made: ast.stmt = before[-1]
    for parent in source.ancestors(made):
        if isinstance(parent, ast.With) and "inference_mode" in ast.unparse(parent.items[0]):
            made = parent
        if isinstance(parent, Function):
            break
    after = lines.insert_after(source, made, [f"{base.id} = {base.id}.clone()"])
    if after is not None:
        yield _rewrite(source, site, f"turn `{base.id}` into an ordinary tensor where it was made", (after,))
