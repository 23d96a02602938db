"""Plans that keep a step from overwriting what a later backward needs, without changing what any step consumes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from deinplace.analysis.source import Function, Source
from deinplace.model import Edit
from deinplace.rules import _lines as lines
from deinplace.rules._actions import Action, of_statement
from deinplace.rules._freezes import only_freezes
from deinplace.rules._optimizers import held, holds, inputs, related
from deinplace.rules._scene import Scene, between, inner_chain, reads
from deinplace.rules._steps import guarded, hands_back, inside, is_own, only_concerns, stable
from deinplace.rules.base import Project


@dataclass
class Plan:
    """Edits that grow while a plan is made, and why it is more than a plain move."""

    edits: list[Edit] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def consumers(view: Scene, backward: Action) -> list[Action]:
    """The steps that consume the gradients of a backward: those that no `zero_grad` parts from it."""
    found: list[Action] = []
    cleared: list[str] = []
    for action in view.actions[view.index(backward) + 1 :]:
        if action.kind == "zero":
            cleared.append(action.subject)
        elif (
            action.kind == "step"
            and action.subject not in [a.subject for a in found]
            and not any(_clears(view.source, zero, action.subject) for zero in cleared)
        ):
            found.append(action)
    return found


def _clears(source: Source, zero: str, optimizer: str) -> bool:
    """`zero.zero_grad()` resets the gradients of all that the optimizer holds."""
    if zero == optimizer:
        return True
    known = held(source, optimizer)
    return known is not None and bool(known.roots) and all(holds(source, zero, r) for r in known.roots)


def same_parameters(source: Source, first: str, second: str) -> bool:
    """True where two optimizers may hold the same parameter."""
    if first == second:
        return True
    one, other = held(source, first), held(source, second)
    if one is None or other is None:
        return False
    return any(related(a, b) for a in one.roots for b in other.roots)


def restrict(view: Scene, backward: Action, project: Project, but: str = "") -> Edit | bool | None:
    """An edit that limits a backward to the parameters that its gradients are used for.

    Returns:
        The edit; True where the call is limited already; None where no expression for it holds there.
    """
    if any(k.arg == "inputs" for k in backward.call.keywords):
        return True
    steps = [s for s in consumers(view, backward) if s.subject != but]
    if not steps:
        return None
    in_helper = backward.owner is not view.scope
    local = in_helper and all(s.owner is backward.owner for s in steps)
    if in_helper and not local and call_sites(project, backward.owner) > 1:
        return None
    expression = inputs(view.source, [s.local if local else s.subject for s in steps], backward.call)
    return lines.add_keyword(view.source, backward.call, f"inputs={expression}") if expression else None


def call_sites(project: Project, function: ast.AST) -> int:
    """How many calls in the project name a function."""
    name = function.name if isinstance(function, Function) else ""
    return sum(
        1
        for source in (*project.sources.values(), *project.read_only.values())
        for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).rsplit(".", 1)[-1] == name
    )


def leftover(view: Scene) -> str:
    """A doubt where gradients that the limited backward no longer leaves behind could have been consumed later."""
    source, local = view.source, view.step.local
    known = view.held
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "zero_grad":
            text = ast.unparse(node.func.value)
            if text in (view.optimizer, local) or text == "self":
                return ""
            if known is not None and any(holds(source, text, r) for r in known.roots):
                return ""
    if view.scope is source.tree and not any(
        isinstance(n, ast.For | ast.While) for n in source.ancestors(view.step.top)
    ):
        return ""
    return (
        f"no `zero_grad` of `{view.optimizer}` was found: gradients that this backward left in its parameters are gone"
    )


def limit_only(view: Scene, project: Project) -> Plan | None:
    """`inputs=` on the backward, nothing else: enough where the overwritten weights lie upstream of what it trains."""
    edit = restrict(view, view.backward, project)
    if not isinstance(edit, Edit):
        return None
    doubt = leftover(view)
    return Plan([edit], [doubt] if doubt else [])


def delay(view: Scene, project: Project) -> Plan | None:
    """Move the step behind the backward, and limit each backward that it passes to what its gradients are used for."""
    optimizer = view.optimizer
    if any(same_parameters(view.source, optimizer, s.subject) for s in consumers(view, view.backward)):
        return None
    plan = Plan()
    carried = _take_out(view, project, plan)
    if carried is None or not _pass_by(view, project, plan):
        return None
    for action in (*view.after_step(), view.backward):
        if action.kind == "backward":
            edit = restrict(view, action, project, but=optimizer)
            if edit is None:
                return None
            if isinstance(edit, Edit):
                plan.edits.append(edit)
    if (put := lines.insert_after(view.source, view.block[view.last], carried)) is None:
        return None
    plan.edits.append(put)
    if doubt := leftover(view):
        plan.doubts.append(doubt)
    return plan


def _take_out(view: Scene, project: Project, plan: Plan) -> list[str] | None:
    """Delete the step, and what belongs to it, where it stands; the lines to put elsewhere."""
    source = view.source
    if view.step.owner is not view.scope:
        return _out_of_helper(view, project, plan)
    whole = view.block[view.first]
    moved = [whole] if whole is view.step.top or only_concerns(view, whole) else [view.step.top]
    code: list[str] = []
    if moved == [whole]:
        guards: list[ast.stmt] = []
    else:
        guards = inner_chain(source, view.step.top, view.block)
        if not all(stable(view, g) for g in guards):
            return None
    moved += [
        s for s in between(view) if not inside(source, s, whole if moved == [whole] else None) and is_own(view, s)
    ]
    for statement in moved:
        text, edit = lines.code_lines(source, statement), lines.delete(source, statement)
        if text is None or edit is None:
            return None
        plan.edits.append(edit)
        nested = guards if inside(source, statement, whole) and moved[0] is not whole else []
        code += guarded(source, nested, text)
    return code


def _pass_by(view: Scene, project: Project, plan: Plan) -> bool:
    """Check that nothing which the step now passes sees the weights that it writes."""
    known = view.held
    roots = known.roots if known is not None else frozenset()
    for statement in between(view):
        if is_own(view, statement) or only_freezes(view.source, project, statement):
            continue
        for action in of_statement(view.source, statement, view.scope):
            if action.kind == "scaler":
                plan.doubts.append("the loss scale is updated once where it was updated twice")
                gone = lines.delete(view.source, action.top) if _alone(action) else None
                if gone is None:
                    return False
                plan.edits.append(gone)
            if action.kind == "zero" and not _apart(view, action):
                return _drop_common_zero(view, project, plan, action)
        answer = reads(view.source, statement, roots, view.optimizer)
        if answer == "yes":
            return False
        if answer == "unknown" or not roots:
            doubt = f"that nothing between reads the new weights of `{view.optimizer}` could not be proven"
            plan.doubts.extend([doubt] if doubt not in plan.doubts else [])
    return True


def _alone(action: Action) -> bool:
    """The call is a statement of its own in the outermost function."""
    return isinstance(action.top, ast.Expr) and action.top.value is action.call


def _apart(view: Scene, zero: Action) -> bool:
    """A `zero_grad` that leaves the gradients of the delayed step alone."""
    source, known = view.source, view.held
    if known is None or not known.roots:
        return "opt" in zero.subject.split(".")[-1] and zero.subject != view.optimizer
    if held(source, zero.subject) is not None:
        return not same_parameters(source, zero.subject, view.optimizer)
    others = [held(source, a.subject) for a in view.actions if a.kind == "step" and a.subject != view.optimizer]
    reset = [
        r for o in others if o is not None for r in o.roots if zero.subject == r or zero.subject.startswith(r + ".")
    ]
    return bool(reset) and not any(related(zero.subject, r) or holds(source, zero.subject, r) for r in known.roots)


def _drop_common_zero(view: Scene, project: Project, plan: Plan, zero: Action) -> bool:
    """A reset of both networks between: needless once the earlier backward reaches the stepping optimizer alone."""
    earlier = view.actions[: view.index(view.step)]
    resets = [i for i, a in enumerate(earlier) if a.kind == "zero" and a.subject == zero.subject]
    passes = [i for i, a in enumerate(earlier) if a.kind == "backward"]
    if not resets or not passes or resets[-1] > passes[0] or any(a.kind == "step" for a in earlier[resets[-1] :]):
        return False
    gone = lines.delete(view.source, zero.top) if _alone(zero) else None
    expression = inputs(view.source, [view.step.local], view.step.call)
    if gone is None or expression is None:
        return False
    plan.edits.append(gone)
    for at in passes:
        if earlier[at].owner is not view.scope or any(k.arg == "inputs" for k in earlier[at].call.keywords):
            return False
        plan.edits.append(lines.add_keyword(view.source, earlier[at].call, f"inputs={expression}"))
    return True


def _out_of_helper(view: Scene, project: Project, plan: Plan) -> list[str] | None:
    """The step as the last statement of a helper that only this place calls: it moves to the caller."""
    source, owner = view.source, view.step.owner
    statement = source.statement(view.step.call)
    found = lines.block_of(source, statement)
    if found is None or not isinstance(owner, Function) or found[0] is not owner.body:
        return None
    if view.step.local != view.step.subject or call_sites(project, owner) != 1 or not isinstance(statement, ast.Expr):
        return None
    if inner_chain(source, view.step.top, view.block) and not all(
        stable(view, g) for g in inner_chain(source, view.step.top, view.block)
    ):
        return None
    rest = found[0][found[1] + 1 :]
    own = [s for s in rest if is_own(view, s)]
    if any(s not in own and not hands_back(s) for s in rest):
        return None
    code: list[str] = []
    for item in (statement, *own):
        text, edit = lines.code_lines(source, item), lines.delete(source, item)
        if text is None or edit is None:
            return None
        plan.edits.append(edit)
        code += text
    return guarded(source, inner_chain(source, view.step.top, view.block), code)


def keep_graph(view: Scene) -> Edit | None:
    """`retain_graph=True` on the last backward before the step, where it is missing."""
    earlier = [a for a in view.actions[: view.index(view.step)] if a.kind == "backward"]
    if not earlier or any(k.arg in ("retain_graph", "create_graph") for k in earlier[-1].call.keywords):
        return None
    if any(k.arg == "inputs" for k in earlier[-1].call.keywords) or earlier[-1].call is view.backward.call:
        return None
    return lines.add_keyword(view.source, earlier[-1].call, "retain_graph=True")
