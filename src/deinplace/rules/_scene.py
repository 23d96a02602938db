"""The training step around a conflict: where a parameter was written, where backward ran, what stands between."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from deinplace.analysis.source import Function, Source
from deinplace.model import Conflict, Place
from deinplace.rules import _bindings as names
from deinplace.rules import _lines as lines
from deinplace.rules._actions import Action, actions, helper_of
from deinplace.rules._optimizers import Held, held, related
from deinplace.rules.base import Project

Answer = Literal["no", "yes", "unknown"]


@dataclass(frozen=True)
class Scene:
    """One function (or module) in which a step comes before a backward, with both ends lifted to one block."""

    source: Source
    scope: ast.AST
    step: Action
    backward: Action
    block: list[ast.stmt]
    first: int
    """Index in `block` of the statement that reaches the step."""
    last: int
    """Index in `block` of the statement that reaches the backward."""
    saved: ast.stmt | None
    """The statement of the same function that reaches the save, if it stands in it."""
    actions: list[Action]

    @property
    def optimizer(self) -> str:
        """The optimizer that stepped, as the function spells it."""
        return self.step.subject

    @property
    def held(self) -> Held | None:
        """What that optimizer holds."""
        return held(self.source, self.optimizer)

    def index(self, action: Action) -> int:
        """Place of an action in the order of the training step."""
        return next(i for i, a in enumerate(self.actions) if a is action)

    def after_step(self) -> list[Action]:
        """Actions between the step and the backward."""
        return self.actions[self.index(self.step) + 1 : self.index(self.backward)]


def scene(conflict: Conflict, project: Project) -> Scene | None:
    """The scene of a conflict whose step precedes its backward in one function of an editable file."""
    pair = parting(conflict.write.stack, conflict.backward)
    if pair is None or not project.editable(pair[0].path):
        return None
    source = project.get(pair[0].path)
    step_at, back_at = conflict.write.stack[0], conflict.backward[0]
    if source is None or {step_at.path, back_at.path} != {source.path}:
        return None
    step_top, back_top = (names.statement_at(source, p.span) for p in pair)
    step_call, back_call = (source.innermost(p.span, ast.Call) for p in (step_at, back_at))
    if step_top is None or back_top is None:
        return None
    scope = source.scope(step_top)
    known = actions(source, scope)
    step = next((a for a in known if a.kind == "step" and a.call is step_call and a.top is step_top), None)
    back = next((a for a in known if a.kind == "backward" and a.call is back_call and a.top is back_top), None)
    lifted = lift(source, step_top, back_top)
    if step is None or back is None or lifted is None or lifted[1] >= lifted[2]:
        return None
    saved = _save_statement(source, conflict, pair[0], scope)
    if saved is not None and step_top.lineno < saved.lineno < back_top.lineno:
        return None
    return Scene(source, scope, step, back, *lifted, saved, known)


def parting(first: tuple[Place, ...], second: tuple[Place, ...]) -> tuple[Place, Place] | None:
    """The outermost frame of one function in which two stacks stand on different spans."""
    for one, other in zip(reversed(first), reversed(second), strict=False):
        if (one.path, one.function) != (other.path, other.function):
            return None
        if one.span != other.span:
            return one, other
    return None


def lift(source: Source, first: ast.stmt, second: ast.stmt) -> tuple[list[ast.stmt], int, int] | None:
    """The innermost block that reaches two statements, and the indexes through which it does."""
    chain = [first, *(n for n in source.ancestors(first) if isinstance(n, ast.stmt))]
    other = {id(n) for n in (second, *source.ancestors(second))}
    for statement in chain:
        found = lines.block_of(source, statement)
        if found is None:
            continue
        block, index = found
        at = next((i for i, s in enumerate(block) if id(s) in other), None)
        if at is not None:
            return block, index, at
    return None


def _save_statement(source: Source, conflict: Conflict, frame: Place, scope: ast.AST) -> ast.stmt | None:
    for place in reversed(conflict.save.stack):
        if (place.path, place.function) == (frame.path, frame.function):
            statement = names.statement_at(source, place.span)
            if statement is not None and source.scope(statement) is scope:
                return statement
    return None


def inner_chain(source: Source, statement: ast.stmt, block: list[ast.stmt]) -> list[ast.stmt]:
    """The compound statements between a block and a statement inside it, outermost first."""
    chain: list[ast.stmt] = []
    for parent in (statement, *source.ancestors(statement)):
        if isinstance(parent, ast.stmt):
            chain.append(parent)
            if any(parent is s for s in block):
                break
    return list(reversed(chain[1:]))


def between(view: Scene) -> list[ast.stmt]:
    """Statements that run after the step and before the backward, in order."""
    found: list[ast.stmt] = []
    source = view.source
    for node in (view.step.top, *reversed(inner_chain(source, view.step.top, view.block))):
        held_in = lines.block_of(source, node)
        if held_in is not None and held_in[0] is not view.block:
            found += held_in[0][held_in[1] + 1 :]
    found += view.block[view.first + 1 : view.last]
    for node in (*inner_chain(source, view.backward.top, view.block)[1:], view.backward.top):
        held_in = lines.block_of(source, node)
        if held_in is not None and held_in[0] is not view.block:
            found += held_in[0][: held_in[1]]
    return found


def reads(source: Source, node: ast.AST, roots: frozenset[str], optimizer: str, depth: int = 0) -> Answer:
    """Whether a statement can see the parameters that an optimizer holds; methods of the file are followed."""
    unknown = False
    for text, expression in names.chains(node):
        if related(text, optimizer) and (text != "self" or _passed_on(source, expression)):
            return "yes"
        if any(_touches(source, text, r, expression) for r in roots):
            return "yes"
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        helper = helper_of(source, call)
        if helper is not None and depth < 3:
            inner = [reads(source, s, roots, optimizer, depth + 1) for s in helper.body]
            if "yes" in inner:
                return "yes"
            unknown = unknown or "unknown" in inner
        elif not roots and not _neutral(call):
            unknown = True
    return "unknown" if unknown else "no"


def _touches(source: Source, text: str, root: str, expression: ast.expr) -> bool:
    if text == "self" or text.startswith("self.") != root.startswith("self."):
        return text == "self" and root.startswith("self.") and _passed_on(source, expression)
    call = source.parents.get(expression)
    if isinstance(call, ast.Call) and call.func is expression and helper_of(source, call) is not None:
        return False
    return related(text, root)


def _passed_on(source: Source, expression: ast.expr) -> bool:
    """A bare `self` that is called, or handed to another function."""
    parent = source.parents.get(expression)
    return isinstance(parent, ast.Call | ast.keyword)


def _neutral(call: ast.Call) -> bool:
    """A call that cannot run a module that the caller did not name."""
    text = ast.unparse(call.func)
    tail = text.rsplit(".", 1)[-1]
    if tail in (
        "zero_grad",
        "backward",
        "item",
        "append",
        "print",
        "detach",
        "format",
        "mean",
        "sum",
        "step",
        "cat",
        "float",
    ):
        return True
    return text.startswith(("torch.", "F.", "nn.functional.", "np.", "math.", "logging.", "logger."))


def function_name(scope: ast.AST) -> str:
    """A function's name, or `<module>`."""
    return scope.name if isinstance(scope, Function) else "<module>"
