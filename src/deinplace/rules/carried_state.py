"""DIP202: state that is carried over optimizer steps together with its graph."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import ClassVar

from deinplace.analysis.source import Source, span_of
from deinplace.model import Applicability, Edit, Event, Evidence, Place, Rewrite, Site
from deinplace.rules import _bindings as names
from deinplace.rules import _intent as intent
from deinplace.rules import _lines as lines
from deinplace.rules._actions import Action, actions, of_statement
from deinplace.rules._before_loop import built_before
from deinplace.rules._carry import (
    Carry,
    Round,
    Shape,
    attribute_carries,
    carries,
    cut,
    part,
    round_of,
    shape_of,
)
from deinplace.rules._scene import scene
from deinplace.rules.base import Case, Incident, Project, Rule

_NOTE = (
    "changes gradients on purpose: backpropagation through time is cut here, earlier rounds get no gradient from later "
    "losses (their graph was built with weights that have been stepped since)"
)


class CarriedState(Rule):
    """State carried over optimizer steps with its graph.

    ## What it does
    Finds hidden state, memory or running values that one round of a training loop computes and the next round uses
    again, although the optimizer has stepped in between, or weights were updated by hand; and what is computed from
    weights once in front of the loop, such as a penalty, and used in every round.

    ## Why is this bad
    The value still holds the graph of the earlier round. The next backward runs into it and either finds it freed
    ("Trying to backward through the graph a second time") or, hushed with `retain_graph=True`, finds weights that have
    been overwritten ("modified by an inplace operation"). Each round would also take longer than the one before.

    ## Example
    ```python
    for x, y in batches:
        out, h = model(x, h)
        loss = criterion(out, y)
        loss.backward(retain_graph=True)
        opt.step()
    ```

    ## Use instead
    ```python
    for x, y in batches:
        out, h = model(x, h)
        loss = criterion(out, y)
        loss.backward()
        opt.step()
        h = h.detach()
    ```

    ## Fix safety
    Unsafe: `detach()` truncates backpropagation through time, so gradients change. That is what nearly every such loop
    means, but it is not what the code says. What was computed in front of the loop is computed inside it, or detached.
    Clones of the old weights would prove the code right as it is written, and are not tried for that reason.

    Often said, and wrong: that `retain_graph=True` mends "backward through the graph a second time" in such a loop. It
    keeps the graph of earlier rounds alive, whose weights have been stepped since: the next error is "modified by an
    inplace operation".

    ## References
    - https://pytorch.org/docs/stable/generated/torch.Tensor.detach.html
    """

    code: ClassVar[str] = "DIP202"
    changes_gradients: ClassVar[bool] = True
    name: ClassVar[str] = "carried-state"
    cases: ClassVar[tuple[Case, ...]] = (
        Case(
            "noop-detached-at-the-carry",
            "for x in xs:\n    out, h = model(x, h.detach())\n    out.sum().backward(retain_graph=True)\n"
            "    opt.step()\n",
        ),
        Case("noop-nothing-carried", "for x in xs:\n    model(x).sum().backward(retain_graph=True)\n    opt.step()\n"),
        Case("noop-counter", "for x in xs:\n    loss = model(x)\n    loss.backward()\n    opt.step()\n    n = n + 1\n"),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Carried names in loops whose backward retains its graph although an optimizer steps."""
        if b"backward" not in source.data:
            return
        for loop in (n for n in source.nodes if isinstance(n, ast.For | ast.While)):
            view = Round(source, loop, loop.body[0], _actions(source, loop))
            retained = [a for a in view.actions if a.kind == "backward" and _keeps(a)]
            if retained and any(a.kind == "step" for a in view.actions) and _innermost(loop, retained[0]):
                for carry in carries(view):
                    if not _cut_in(loop, carry.name):
                        yield _site(source, carry.binds, carry.name)

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """A backward that meets the graph of an earlier round: freed, or built with weights that have been stepped."""
        stack = _stack(incident, project)
        if not stack or (incident.conflict is not None and scene(incident.conflict, project) is not None):
            return None
        for source, found in _found(stack, incident, project):
            return _site(source, found[0].binds, ", ".join(c.name for c in found))
        by_hand = incident.conflict is not None and incident.conflict.write.optimizer is None
        view = round_of(stack, project)
        if view is not None and (before := built_before(view)):
            return _site(view.source, before[0], ast.unparse(before[0].targets[0]))
        for source, place in names.frames(stack, project):
            statement = names.statement_at(source, place.span)
            if statement is not None and (incident.raised is not None or (view is not None and not by_hand)):
                return _site(source, statement, source.segment(statement).split("\n")[0])
        return None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Keep the graph where two losses of one round share it; else detach at the carry."""
        stack = _stack(incident, project)
        view = round_of(stack, project)
        if incident is not None and incident.raised is not None:
            yield from _shared(stack, site, project)
        for source, found in _found(stack, incident, project):
            for shapes in _choices(source, found):
                yield from _detach(source, view, found, shapes, site)
        if view is not None:
            yield from _rebuild(view, site)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """Names the carry and where to cut it."""
        stack = _stack(incident, project)
        where = f"the backward on line {stack[0].span.line}" if stack else "the next backward"
        return (
            f"line {site.span.line} keeps `{site.target}` together with its graph, and {where} runs into it again "
            "after the weights have been stepped or the graph freed. Detach what is carried to the next round "
            "(h = h.detach()) where gradients need not flow through earlier rounds, or add the losses up and run one "
            "backward and one step; retain_graph=True only turns one error into the other."
        )


def _stack(incident: Incident | None, project: Project) -> tuple[Place, ...]:
    if incident is None:
        return ()
    if incident.raised is not None:
        return incident.raised.stack if incident.raised.category == "second-backward" else ()
    conflict = incident.conflict
    if conflict is None or (conflict.write.optimizer is None and not _by_hand(conflict.write, project)):
        return ()
    return conflict.backward or conflict.write.stack  # without a run, no backward is known: the loop is the same


def _by_hand(write: Event, project: Project) -> bool:
    """True for a write under no_grad that updates parameters."""
    for source, place in names.frames(write.stack[:1], project):
        statement = names.statement_at(source, place.span)
        target = names.written(statement) if statement is not None else None
        if statement is None or target is None or not names.grad_off(source, statement):
            return False
        scope, text = source.scope(statement), ast.unparse(names.root(target))
        return intent.updates_by_gradient(statement, scope) or intent.over_parameters(source, statement, text)
    return False


def _actions(source: Source, loop: ast.For | ast.While) -> list[Action]:
    return [a for s in loop.body for a in of_statement(source, s, source.scope(loop))]


def _found(
    stack: tuple[Place, ...], incident: Incident | None, project: Project
) -> Iterator[tuple[Source, list[Carry]]]:
    """The carries that explain an incident: in the loop around the backward, else an attribute of a module."""
    view = round_of(stack, project)
    if view is not None and (found := carries(view)):
        yield view.source, found
        return
    files = [incident.conflict.save.stack] if incident and incident.conflict else []
    paths = [p.path for s in files for p in s] + [p.path for p in stack] + sorted(project.sources)
    for path in dict.fromkeys(paths):
        source = project.sources.get(path)
        if source is not None and (attributes := attribute_carries(source)):
            yield source, attributes
            return


def _choices(source: Source, found: list[Carry]) -> list[list[Shape]]:
    each = [shape_of(source, c) for c in found]
    first = [s[0] for s in each]
    other = [s[-1] for s in each]
    return [first] if first == other else [first, other]


def _detach(
    source: Source, view: Round | None, found: list[Carry], shapes: list[Shape], site: Site
) -> Iterator[Rewrite]:
    edits: list[Edit] = []
    touched: list[str] = []
    for carry, shape in zip(found, shapes, strict=True):
        edit = _cut_at(source, view, carry, shape)
        if edit is None:
            return
        edits.append(edit)
        touched.append(source.qualname(carry.binds))
    hushed = _hushed(view) if view is not None else []
    together = (*_joined(edits), *hushed)
    title = "detach " + ", ".join(f"`{c.name}`" for c in found) + " where it is carried to the next round"
    yield _rewrite(site, source, title, together, touched)


def _joined(edits: list[Edit]) -> list[Edit]:
    """Insertions at one place as one edit."""
    found: dict[tuple[int, int], Edit] = {}
    for edit in edits:
        key = edit.start, edit.end
        text = found[key].new + edit.new if key in found else edit.new
        found[key] = Edit(edit.path, edit.start, edit.end, text)
    return list(found.values())


def _cut_at(source: Source, view: Round | None, carry: Carry, shape: Shape) -> Edit | None:
    """Where a carry is cut: at an assignment that follows the step, behind the step, or in front of a `+=`."""
    if carry.loop is None or view is None:
        return _cut_attribute(source, carry, shape)
    if isinstance(carry.binds, ast.AugAssign):
        return lines.insert_before(source, carry.binds, [cut(carry.name, shape)])
    end = _end_of_use(view)
    if carry.binds.lineno > (end.end_lineno or end.lineno):
        value = part(carry)
        if shape == "tensor" and value is not None:
            start, stop = source.bounds(value)
            text = source.text[start:stop]
            atom = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            return Edit(source.path, start, stop, f"{text}.detach()" if atom else f"({text}).detach()")
        return lines.insert_after(source, carry.binds, [cut(carry.name, shape)])
    return lines.insert_after(source, end, [cut(carry.name, shape)])


def _end_of_use(view: Round) -> ast.stmt:
    """The statement behind which no gradient flows any more in this round: the last step, else the last backward."""
    steps = [a.top for a in view.actions if a.kind == "step" and a.top.lineno >= view.backward.lineno]
    return steps[-1] if steps else view.backward


def _cut_attribute(source: Source, carry: Carry, shape: Shape) -> Edit | None:
    """Behind the assignment where the method does not read the attribute again, else in front of its first use."""
    end = carry.binds.end_lineno or carry.binds.lineno
    later = any(
        isinstance(n, ast.Attribute) and n.lineno > end and ast.unparse(n) == carry.name for n in ast.walk(carry.scope)
    )
    shared = part(carry)
    if later or isinstance(shared, ast.Name):
        text = cut(carry.name, shape)
        body = getattr(carry.scope, "body", [])
        first = next((s for s in body if names.mentions(s, carry.name)), carry.binds)
        if shared is not None and not later and shape == "tensor":
            start, stop = source.bounds(shared)
            return Edit(source.path, start, stop, f"{source.text[start:stop]}.detach()")
        return lines.insert_before(source, first, [f"if {carry.name} is not None:", f"    {text}"])
    return lines.insert_after(source, carry.binds, [cut(carry.name, shape)])


def _keeps(action: Action) -> bool:
    return any(
        k.arg == "retain_graph" and isinstance(k.value, ast.Constant) and k.value.value is True
        for k in action.call.keywords
    )


def _hushed(view: Round) -> list[Edit]:
    """`retain_graph=True` taken off the only backward of a round, where it served nothing but to hush the error."""
    passes = [a for a in view.actions if a.kind == "backward"]
    if len(passes) != 1 or not _keeps(passes[0]):
        return []
    edit = lines.remove_keyword(view.source, passes[0].call, "retain_graph")
    return [edit] if edit is not None else []


def _shared(stack: tuple[Place, ...], site: Site, project: Project) -> Iterator[Rewrite]:
    """Two backward passes of one round through one graph: the first has to keep it."""
    for source, place in names.frames(stack, project):
        statement = names.statement_at(source, place.span)
        if statement is None:
            continue
        known = actions(source, source.scope(statement))
        at = next((i for i, a in enumerate(known) if a.kind == "backward" and a.top is statement), None)
        earlier = [a for a in known[:at] if a.kind == "backward"] if at is not None else []
        if earlier and not any(k.arg in ("retain_graph", "create_graph") for k in earlier[-1].call.keywords):
            edit = lines.add_keyword(source, earlier[-1].call, "retain_graph=True")
            title = f"keep the graph on line {earlier[-1].call.lineno} for the backward of line {statement.lineno}"
            yield _rewrite(site, source, title, (edit,), [source.qualname(earlier[-1].call)], "safe", "")
        return


def _rebuild(view: Round, site: Site) -> Iterator[Rewrite]:
    """A graph that was built once in front of the loop: compute it in every round, or cut it off."""
    before = built_before(view)
    if len(before) != 1 or carries(view):
        return
    source, statement = view.source, before[0]
    text, gone = lines.code_lines(source, statement), lines.delete(source, statement)
    put = lines.insert_before(source, view.loop.body[0], text) if text else None
    loads_later = source.text[source.bounds(statement)[1] : source.bounds(view.loop)[0]]
    targets = [ast.unparse(t) for target in statement.targets for t in names.flat(target)]
    touched = [source.qualname(statement)]
    if gone is not None and put is not None and not any(t in loads_later for t in targets):
        note = f"line {statement.lineno} is computed anew in every round, with the weights of that round"
        yield _rewrite(
            site, source, f"compute line {statement.lineno} inside the loop", (gone, put), touched, "unsafe", note
        )
    if len(targets) == 1:
        after = lines.insert_after(source, statement, [cut(targets[0], "tensor")])
        if after is not None:
            note = "what computed it gets no gradient from this loop"
            yield _rewrite(
                site, source, f"detach `{targets[0]}` in front of the loop", (after,), touched, "unsafe", note
            )


def _cut_in(loop: ast.AST, name: str) -> bool:
    text = ast.unparse(loop)
    return f"{name}.detach" in text or f"detach({name}" in text or f"repackage_hidden({name}" in text


def _innermost(loop: ast.For | ast.While, action: Action) -> bool:
    inner = (n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.For | ast.While))
    return not any(action.call in ast.walk(n) for n in inner)


def _site(source: Source, statement: ast.stmt, name: str) -> Site:
    return Site(
        "DIP202",
        source.path,
        span_of(statement),
        span_of(statement),
        name,
        source.qualname(statement),
        "carry",
        Evidence(kind="tensor", why="kept with its graph over an optimizer step"),
    )


def _rewrite(
    site: Site,
    source: Source,
    title: str,
    edits: Iterable[Edit],
    touched: list[str],
    how: Applicability = "unsafe",
    note: str = _NOTE,
) -> Rewrite:
    places = tuple((source.path, t) for t in dict.fromkeys(touched))
    return Rewrite("DIP202", title, tuple(edits), how, site.span.line, site.path, places, note)
