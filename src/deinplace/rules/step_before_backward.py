"""DIP201: an optimizer steps between a forward and a backward that still needs the old weights."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import ClassVar

from deinplace.analysis.source import Function, Source, span_of
from deinplace.model import Applicability, Conflict, Edit, Evidence, Place, Rewrite, Site
from deinplace.rules import _bindings as names
from deinplace.rules import _delay as plans
from deinplace.rules import _intent as intent
from deinplace.rules import _lines as lines
from deinplace.rules._actions import Action, actions
from deinplace.rules._later import written_later
from deinplace.rules._optimizers import held, related
from deinplace.rules._scene import Scene, function_name, scene
from deinplace.rules.base import Case, Incident, Project, Rule


class StepBeforeBackward(Rule):
    """Optimizer step between a forward and its backward.

    ## What it does
    Finds an `optimizer.step()` that overwrites weights which a later `backward()` still needs: GANs, actor and critic,
    several losses that share one forward.

    ## Why is this bad
    `step` writes the parameters in place. A graph that was built with the old weights can then not be differentiated:
    "one of the variables needed for gradient computation has been modified by an inplace operation". No in-place
    syntax is near; switching `inplace=True` off anywhere does not help.

    ## Example
    ```python
    loss_d.backward(retain_graph=True)
    opt_d.step()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    ```

    ## Use instead
    ```python
    loss_d.backward(retain_graph=True)
    opt_g.zero_grad()
    loss_g.backward(inputs=list(gen.parameters()))
    opt_d.step()
    opt_g.step()
    ```
    "All backward() first, then all step()" is not the same program: without `inputs=` the second loss also adds its
    gradient to the parameters that the first optimizer is about to step.

    ## Fix safety
    Safe where each step is shown to consume the gradients that it consumed before. Averages, copies and clips of
    parameters that are written by hand move behind the backward, where nothing between can see them. Where one
    optimizer steps twice, or the forward would have to be computed again after the step, the meaning is the author's
    to choose: those rewrites are unsafe and say how they differ.

    Often said, and wrong: that "all backward() first, then all step()" is always the same. Where the second loss also
    reaches the first optimizer's parameters, its gradients are added to those that the first step consumes.

    ## References
    - https://pytorch.org/docs/stable/generated/torch.Tensor.backward.html
    """

    code: ClassVar[str] = "DIP201"
    reorders: ClassVar[bool] = True
    name: ClassVar[str] = "step-before-backward"
    cases: ClassVar[tuple[Case, ...]] = (
        Case(
            "noop-loss-computed-after-the-step",
            "loss_d = d(f)\nloss_d.backward()\nopt_d.step()\nloss_g = d(g(z))\nloss_g.backward()\nopt_g.step()\n",
        ),
        Case("noop-one-backward", "loss = net(x)\nloss.backward()\nopt.step()\n"),
        Case(
            "noop-scheduler-steps-between",
            "loss = net(x)\nother = net(y)\nloss.backward()\nscheduler.step()\nother.backward()\nopt.step()\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Steps that a backward follows whose loss was computed before them."""
        if b"backward" not in source.data or b"step" not in source.data:
            return
        scopes = [source.tree, *(n for n in source.nodes if isinstance(n, Function))]
        for scope in scopes:
            found = [a for a in actions(source, scope) if a.owner is scope]
            for at, step in enumerate(found):
                if step.kind == "step" and any(_old_loss(scope, step, later) for later in found[at + 1 :]):
                    yield _site(source, step.call, step.subject)

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """A conflict whose write was made by an optimizer's step, where the step precedes the backward."""
        conflict = incident.conflict
        if conflict is None or not conflict.write.stack:
            return None
        place = conflict.write.stack[0]
        source = project.get(place.path)
        if conflict.write.optimizer is None:
            return _by_hand(source, place) if source is not None and project.editable(place.path) else None
        call = source.innermost(place.span, ast.Call) if source else None
        if source is None or not isinstance(call, ast.Call) or not project.editable(place.path):
            return None
        view = scene(conflict, project)
        return _site(source, call, view.optimizer if view else source.segment(call.func).rsplit(".", 1)[0])

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Limit the backward, delay the step, or choose another meaning."""
        conflict = incident.conflict if incident else None
        if conflict is not None and conflict.write.optimizer is None:
            yield from written_later(self.code, site, conflict, project)
            return
        view = scene(conflict, project) if conflict else None
        if view is None:
            return
        twice = any(
            plans.same_parameters(view.source, view.optimizer, s.subject) for s in plans.consumers(view, view.backward)
        )
        if twice:
            yield from _single_step(view, site)
        else:
            yield from _exact(view, project, site)
        yield from _recompute(view, site)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """Names both lines and the meanings to choose from."""
        conflict = incident.conflict if incident else None
        if conflict is None or not conflict.backward:
            return f"`{site.target}.step()` on line {site.span.line} overwrites weights that a later backward needs."
        back, step = conflict.backward[0], conflict.write.stack[0]
        if conflict.write.optimizer is None:
            return (
                f"{_short(step.path)}:{step.span.line} writes `{site.target}`, a parameter, before "
                f"{_short(back.path)}:{back.span.line} has run its backward, which needs it as it was (clipped or "
                "averaged weights, a copy between networks). Move the write behind that backward, or compute the "
                "forward after it if the loss is meant to see the new weights. Through .data PyTorch raises no error: "
                "the gradients are wrong in silence."
            )
        if (early := _before_loop(conflict, project)) is not None:
            loop, line = early
            return (
                f"{_short(step.path)}:{step.span.line} steps `{site.target}` in every round of the loop on line "
                f"{loop}, and {_short(back.path)}:{back.span.line} goes back each time through what "
                f"line {line} computed once, before the loop, with the first weights. If only its values are meant "
                "(old log-probabilities, advantages, targets), detach them there with .detach() or compute them under "
                "torch.no_grad(); if it is meant to be trained, compute it anew in every round."
            )
        saved = conflict.save.place
        where = f" (forward at {_short(saved.path)}:{saved.span.line})" if saved else ""
        text = (
            f"{_short(step.path)}:{step.span.line} steps `{site.target}` before {_short(back.path)}:{back.span.line} "
            f"has run its backward{where}, which needs the weights as they were. "
        )
        view = scene(conflict, project)
        if view is not None and any(
            plans.same_parameters(view.source, view.optimizer, s.subject) for s in plans.consumers(view, view.backward)
        ):
            return text + (
                "The same parameters step twice, so the meaning is yours to choose: one step after both backward calls "
                "(the gradients add up); a new forward after the first step (the second loss sees the new weights); or "
                "both gradients with the old weights: take the second by torch.autograd.grad before the first step and "
                "add it to .grad after."
            )
        return text + (
            "Run this backward before the step, limited by inputs= to the parameters that its optimizer trains "
            "(without inputs= the two losses mix their gradients); or, if the loss is meant to see the new weights, "
            "compute its forward after the step: that changes the numbers."
        )


def _before_loop(conflict: Conflict, project: Project) -> tuple[int, int] | None:
    """Lines of the loop that holds step and backward, and of what was computed in front of it; None elsewhere."""
    step, back = conflict.write.stack[0], conflict.backward[0]
    source = project.get(step.path)
    statement = names.statement_at(source, step.span) if source is not None else None
    frames = [p for p in conflict.save.stack if (p.path, p.function) == (step.path, step.function)]
    if source is None or statement is None or not frames or (back.path, back.function) != (step.path, step.function):
        return None
    for loop in source.ancestors(statement):
        if isinstance(loop, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
        if isinstance(loop, ast.For | ast.While):
            lines_of = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
            if back.span.line in lines_of and all(p.span.line < loop.lineno for p in frames):
                return loop.lineno, frames[0].span.line
    return None


def _by_hand(source: Source, place: Place) -> Site | None:
    """A loop over parameters that clips, averages or copies weights between a forward and its backward."""
    statement = names.statement_at(source, place.span)
    target = names.written(statement) if statement is not None else None
    if statement is None or target is None:
        return None
    text = ast.unparse(names.root(target))
    if not intent.over_parameters(source, statement, text) or intent.updates_by_gradient(
        statement, source.scope(statement)
    ):
        return None
    span = span_of(statement)
    why = Evidence(kind="tensor", why="a parameter, written while a graph still needs it")
    return Site("DIP201", source.path, span, span, text, source.qualname(statement), "", why)


def _short(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _site(source: Source, call: ast.Call, optimizer: str) -> Site:
    return Site(
        "DIP201",
        source.path,
        span_of(call),
        span_of(source.statement(call)),
        optimizer,
        source.qualname(call),
        "step",
        Evidence(kind="tensor", why="the weights that an optimizer steps"),
    )


def _old_loss(scope: ast.AST, step: Action, later: Action) -> bool:
    """The loss of a later backward was bound before the step."""
    if later.kind != "backward" or not later.subject.isidentifier():
        return False
    bound = [a for a in names.assignments(scope, later.subject) if a.lineno < later.call.lineno]
    return bool(bound) and bound[-1].lineno < step.call.lineno


def _rewrite(view: Scene, site: Site, title: str, edits: list[Edit], how: Applicability, note: str = "") -> Rewrite:
    owners = {view.source.qualname(a.call) for a in (view.step, view.backward)}
    touched = owners | {view.source.qualname(view.step.top), view.source.qualname(view.backward.top)}
    unique = tuple(dict.fromkeys(edits))
    return Rewrite(
        "DIP201", title, unique, how, site.span.line, site.path, tuple((site.path, o) for o in sorted(touched)), note
    )


def _exact(view: Scene, project: Project, site: Site) -> Iterator[Rewrite]:
    """Rewrites in which each step consumes what it consumed before."""
    back = view.backward.call.lineno
    offers: list[tuple[str, plans.Plan | None]] = [
        (
            f"step `{view.optimizer}` after the backward of line {back}, which is limited to what it trains",
            plans.delay(view, project),
        ),
        (f"limit the backward of line {back} to the parameters that it trains", plans.limit_only(view, project)),
    ]
    if _upstream(view):
        offers.reverse()
    for title, plan in offers:
        if plan is None:
            continue
        how: Applicability = "unsafe" if plan.doubts else "safe"
        yield _rewrite(view, site, title, plan.edits, how, "; ".join(plan.doubts))
        keep = plans.keep_graph(view)
        if keep is not None and len(plan.edits) > 1:
            yield _rewrite(
                view, site, f"{title}, and keep the shared graph", [keep, *plan.edits], how, "; ".join(plan.doubts)
            )


def _upstream(view: Scene) -> bool:
    """The save's inputs do not come from what the backward trains, so its gradients need not pass the save."""
    if view.saved is None:
        return False
    trained = [held(view.source, s.subject) for s in plans.consumers(view, view.backward)]
    if not trained or any(t is None or not t.roots for t in trained):
        return False
    seen = _slice(view.source, view.scope, view.saved)
    return not any(related(root, text) for t in trained if t is not None for root in t.roots for text in seen)


def _slice(source: Source, scope: ast.AST, saved: ast.stmt) -> set[str]:
    """Dotted names that a statement's value is computed from, assignments in front of it followed."""
    seen = {text for text, _ in names.chains(saved)}
    earlier = [n for n in ast.walk(scope) if isinstance(n, ast.Assign) and n.lineno < saved.lineno]
    for statement in sorted(earlier, key=lambda n: n.lineno, reverse=True):
        targets = {ast.unparse(t) for target in statement.targets for t in names.flat(target)}
        if targets & seen:
            seen |= {text for text, _ in names.chains(statement.value)}
    return seen


def _single_step(view: Scene, site: Site) -> Iterator[Rewrite]:
    """One step after both backward passes: the gradients add up and the parameters move once."""
    if view.step.owner is not view.scope or not isinstance(view.step.top, ast.Expr):
        return
    doomed = [view.step.top, *(a.top for a in view.after_step() if a.kind == "zero" and a.owner is view.scope)]
    edits = [lines.delete(view.source, s) for s in doomed]
    kept = [e for e in edits if e is not None]
    if len(kept) == len(doomed):
        note = (
            f"changes the meaning: `{view.optimizer}` steps once with the sum of both gradients, where it stepped "
            "twice, the second time with the gradients of a graph of old weights"
        )
        yield _rewrite(view, site, f"step `{view.optimizer}` once, after both backward passes", kept, "unsafe", note)


def _recompute(view: Scene, site: Site) -> Iterator[Rewrite]:
    """The forward that saved moves behind the step, where nothing in between uses its result."""
    saved, source = view.saved, view.source
    found = lines.block_of(source, saved) if saved is not None else None
    if saved is None or found is None or found[0] is not view.block or not isinstance(saved, ast.Assign):
        return
    if found[1] >= view.first or not isinstance(saved.value, ast.Call):
        return
    targets = {ast.unparse(t) for target in saved.targets for t in names.flat(target)}
    passed = view.block[found[1] + 1 : view.last]
    if any(names.mentions(s, t) for s in passed for t in targets) or _rebinds(passed, saved.value):
        return
    text, gone = lines.code_lines(source, saved), lines.delete(source, saved)
    put = lines.insert_before(source, view.block[view.last], text) if text else None
    if gone is None or put is None:
        return
    note = (
        f"changes the numbers: the loss of line {view.backward.top.lineno} then sees the weights after the step of "
        f"`{view.optimizer}`, where the code as written uses those before it"
    )
    title = f"compute line {saved.lineno} after the step in `{function_name(view.scope)}`"
    yield _rewrite(view, site, title, [gone, put], "unsafe", note)


def _rebinds(passed: list[ast.stmt], value: ast.expr) -> bool:
    read = {text for text, _ in names.chains(value)}
    for statement in passed:
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Name | ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node) in read
            ):
                return True
    return False
