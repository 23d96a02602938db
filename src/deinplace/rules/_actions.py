"""What a training step does, in order: backward passes, optimizer steps, gradients set to zero, through helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from deinplace.analysis.source import Function, Source
from deinplace.rules import _bindings as names
from deinplace.rules._intent import argument_for

Kind = Literal["backward", "step", "zero", "schedule", "scaler", "clip"]
_BACKWARDS = ("backward", "manual_backward")
_DEPTH = 3


@dataclass(frozen=True)
class Action:
    """One call of a training step."""

    kind: Kind
    subject: str
    """The optimizer, module or loss it acts on, as the outermost function spells it; empty where that is unknown."""
    local: str
    """The same, as the function that holds the call spells it."""
    call: ast.Call
    top: ast.stmt
    """The statement of the outermost function through which the call is reached."""
    owner: ast.AST
    """The function (or module) whose code holds the call."""


def actions(source: Source, scope: ast.AST) -> list[Action]:
    """All actions of a function or module in the order of its text, helpers of the same file followed."""
    return [a for statement in getattr(scope, "body", []) for a in of_statement(source, statement, scope)]


def of_statement(source: Source, statement: ast.stmt, owner: ast.AST) -> list[Action]:
    """The actions of one statement; `top` is the simple statement that holds each."""
    return list(_walk(source, statement, owner, None, {}, 0))


def _walk(
    source: Source, node: ast.AST, owner: ast.AST, top: ast.stmt | None, known: dict[str, str], depth: int
) -> Iterator[Action]:
    if isinstance(node, Function | ast.ClassDef | ast.Lambda | ast.expr_context):
        return
    if isinstance(node, ast.stmt) and depth == 0:
        top = node
    for child in ast.iter_child_nodes(node):
        yield from _walk(source, child, owner, top, known, depth)
    if not isinstance(node, ast.Call) or top is None:
        return
    found = classify(source, node)
    if found is not None:
        kind, local = found
        yield Action(kind, _outer(local, known, depth), local, node, top, owner)
    helper = helper_of(source, node) if depth < _DEPTH else None
    if helper is not None and (found is None or kind == "backward") and helper is not owner:
        passed = {p: argument_for(node, helper, p) for p in names.parameters(helper)}
        inner = {p: _outer(ast.unparse(a), known, depth) for p, a in passed.items() if a is not None}
        for statement in helper.body:
            yield from _walk(source, statement, helper, top, {**inner, "self": "self"}, depth + 1)


def _outer(local: str, known: dict[str, str], depth: int) -> str:
    """`local` with a parameter of the helper replaced by what the caller passed."""
    if depth == 0:
        return local
    head, dot, rest = local.partition(".")
    return known[head] + dot + rest if head in known else local


def classify(source: Source, call: ast.Call) -> tuple[Kind, str] | None:
    """What a call does, and to what."""
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    first = call.args[0] if call.args else None
    if name.startswith("clip_grad_") and first is not None:
        return "clip", ast.unparse(first)
    if receiver is None:
        return None
    text = ast.unparse(receiver)
    if name in _BACKWARDS:
        return "backward", ast.unparse(first if first is not None else receiver)
    if name == "zero_grad":
        return "zero", text
    if name == "update" and "scaler" in text.lower():
        return "scaler", text
    if name == "optimizer_step" and first is not None:
        return "step", ast.unparse(first)
    if name == "step" and first is None:
        return ("schedule" if _is_scheduler(source, text) else "step"), text
    if name == "step" and "scaler" in text.lower() and first is not None:
        return "step", ast.unparse(first)
    if name == "step" and _is_scheduler(source, text):
        return "schedule", text
    return None


def _is_scheduler(source: Source, text: str) -> bool:
    if "sched" in text.lower():
        return True
    values = (ast.unparse(a.value) for a in names.assignments(source.tree, text) if a.value is not None)
    return any("lr_scheduler" in v.lower() or "LR(" in v or "Scheduler(" in v for v in values)


def helper_of(source: Source, call: ast.Call) -> Function | None:
    """The function of the same file that a call runs: `self.name(...)` in its class, or `name(...)`."""
    if isinstance(call.func, ast.Name):
        return _defined(source.tree, call.func.id)
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        holder = class_of(source, call) if call.func.value.id in ("self", "cls") else None
        return _defined(holder, call.func.attr) if holder is not None else None
    return None


def class_of(source: Source, node: ast.AST) -> ast.ClassDef | None:
    """The class around a node."""
    return next((n for n in source.ancestors(node) if isinstance(n, ast.ClassDef)), None)


def _defined(holder: ast.AST | None, name: str) -> Function | None:
    body = getattr(holder, "body", [])
    return next((n for n in body if isinstance(n, Function) and n.name == name), None)
