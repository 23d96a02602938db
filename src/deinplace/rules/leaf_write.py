"""DIP203: a write to a leaf that requires grad, or to a view of one."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import ClassVar

from deinplace.analysis.source import Source, span_of
from deinplace.model import Event, Evidence, Rewrite, Site
from deinplace.rules import _bindings as names
from deinplace.rules import _intent as intent
from deinplace.rules import _runs
from deinplace.rules._leaves import (
    casts,
    container,
    drop_flag,
    flagged_buffer,
    inference,
    inner_loop,
    no_grad,
    own_gradient,
)
from deinplace.rules.base import Case, Incident, Project, Rule


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
            if own_gradient(node, target) and not _runs.through_data(target):
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
            if flagged_buffer(source, statement) or intent.updates(source, statement, rest, project):
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
            yield from casts(source, statement, site)
        elif category == "inference":
            yield from inference(source, statement, site)
        elif incident is not None and incident.conflict is not None:
            yield from inner_loop(source, statement, site)
        else:
            filled = list(drop_flag(source, statement, site))
            yield from filled
            if not filled and not _runs.needs_gradient(statement):
                yield from no_grad(source, statement, site)

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


def _claim_inner_loop(write: Event, project: Project) -> Site | None:
    """A conflict whose write updates fast weights by gradients that were taken with `create_graph=True`."""
    for source, place in names.frames(write.stack[:1], project):
        statement = names.statement_at(source, place.span)
        if statement is not None and container(source, statement) is not None:
            return _site(source, statement, "an update inside a differentiable inner loop")
    return None
