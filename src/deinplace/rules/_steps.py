"""What a step and the statements around it concern."""

from __future__ import annotations

import ast

from deinplace.analysis.source import Source
from deinplace.rewrite.block import indent_unit
from deinplace.rules import _bindings as names
from deinplace.rules._actions import helper_of, of_statement
from deinplace.rules._intent import argument_for
from deinplace.rules._scene import Scene, between


def inside(source: Source, statement: ast.stmt, holder: ast.stmt | None) -> bool:
    return holder is not None and (statement is holder or any(n is holder for n in source.ancestors(statement)))


def guarded(source: Source, guards: list[ast.stmt], text: list[str]) -> list[str]:
    code: list[str] = []
    unit = indent_unit(source, guards[0].body[0]) if guards and isinstance(guards[0], ast.If | ast.With) else ""
    for depth, guard in enumerate(guards):
        head = guard.test if isinstance(guard, ast.If) else None
        if head is not None:
            code.append(unit * depth + f"if {ast.unparse(head)}:")
        elif isinstance(guard, ast.With):
            code.append(unit * depth + "with " + ", ".join(ast.unparse(i) for i in guard.items) + ":")
    return code + [unit * len(guards) + line if line else line for line in text]


def stable(view: Scene, guard: ast.stmt) -> bool:
    """A condition that says the same again behind the backward, or a context in which a step may be repeated."""
    if isinstance(guard, ast.With):
        return all("autocast" in ast.unparse(i.context_expr) and i.optional_vars is None for i in guard.items)
    if not isinstance(guard, ast.If) or not any(inside(view.source, view.step.top, s) for s in guard.body):
        return False
    if any(isinstance(n, ast.Call | ast.NamedExpr | ast.Await) for n in ast.walk(guard.test)):
        return False
    read = {text for n in ast.walk(guard.test) if isinstance(n, ast.Name | ast.Attribute) for text in [ast.unparse(n)]}
    for statement in between(view):
        for node in ast.walk(statement):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AugAssign)
                else []
            )
            if any(ast.unparse(t) in read for target in targets for t in names.flat(target)):
                return False
    return True


def only_concerns(view: Scene, statement: ast.stmt) -> bool:
    """A compound statement whose body does nothing but step this optimizer and reset its gradients."""
    if not isinstance(statement, ast.If) or statement.orelse or not stable(view, statement):
        return False
    return all(s is view.step.top or is_own(view, s) for s in statement.body)


def is_own(view: Scene, statement: ast.stmt) -> bool:
    """A statement that belongs to the step: it resets its gradients, its schedule, or clamps what it wrote."""
    source, known = view.source, view.held
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        found = of_statement(source, statement, view.scope)
        if not found:
            return _clamps(view, statement)
        if len(found) != 1 or found[0].call is not statement.value:
            return False
        action = found[0]
        if action.kind == "zero":
            return action.subject == view.optimizer or (known is not None and known.roots == {action.subject})
        if action.kind == "schedule":
            values = (
                ast.unparse(a.value) for a in names.assignments(source.tree, action.subject) if a.value is not None
            )
            return any(f"({view.optimizer}" in v for v in values)
        return False
    return _clamps(view, statement)


def _clamps(view: Scene, statement: ast.stmt) -> bool:
    """`for p in net.parameters(): p.data.clamp_(...)` over the parameters of this optimizer alone, or a call of it."""
    known = view.held
    body, passed = _helper_body(view.source, statement)
    while isinstance(body, ast.With) and len(body.body) == 1 and "no_grad" in ast.unparse(body.items[0]):
        body = body.body[0]
    if known is None or not isinstance(body, ast.For) or not isinstance(body.target, ast.Name):
        return False
    over = body.iter
    if not (isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "parameters"):
        return False
    if passed.get(ast.unparse(over.func.value), ast.unparse(over.func.value)) not in known.roots:
        return False
    written = [names.written(s) for s in body.body]
    return all(w is not None and ast.unparse(names.root(w)) == body.target.id for w in written)


def _helper_body(source: Source, statement: ast.stmt) -> tuple[ast.stmt, dict[str, str]]:
    """The one statement of the helper that a statement calls, and what is passed to it; or the statement itself."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    helper = helper_of(source, call) if isinstance(call, ast.Call) else None
    if helper is None or not isinstance(call, ast.Call) or helper.decorator_list:
        return statement, {}
    inner = [s for s in helper.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(inner) != 1:
        return statement, {}
    taken = {p: argument_for(call, helper, p) for p in names.parameters(helper) if p != "self"}
    return inner[0], {p: "" if a is None else ast.unparse(a) for p, a in taken.items()}


def hands_back(statement: ast.stmt) -> bool:
    """A `return` that runs no module."""
    calls = (n for n in ast.walk(statement) if isinstance(n, ast.Call))
    return isinstance(statement, ast.Return) and all(ast.unparse(c.func).endswith((".item", ".detach")) for c in calls)
