"""Whether a write to a leaf is an update or an initialisation of it, or a step of a computation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from deinplace.analysis.source import Function, Scope, Source
from deinplace.model import Place
from deinplace.rules import _bindings as names
from deinplace.rules.base import Project

_RATES = re.compile(
    r"^(\w*_)?(lr|learning_rate|step_size|eta|inner_lr|momentum|velocity)$|^(lr|learning_rate)_\w+$", re.I
)
_SETTERS = re.compile(
    r"(^|_)(init|initiali[sz]e|reset|fill|load|copy|sync|update|ema|prune|clip|clamp|project|renorm|descend|sgd|step|"
    r"edit|set|zero|tie|transplant|inject|mask_weights?|post_init|constrain)\w*$|^__init__$|^__post_init__$"
)
_COMPUTES = ("forward", "__call__", "loss", "compute_loss", "training_step")
_PARAMETER = re.compile(r"\.(weight|bias|weight_\w+|bias_\w+|in_proj_weight|data)$")
_OPTIMIZER = re.compile(r"(optim\w*\.|^)(SGD|Adam\w*|RMSprop|LBFGS|Adagrad)$")
_CONTAINERS = ("parameters", "named_parameters", "_parameters", "state_dict", "param_groups")


def updates(
    source: Source, statement: ast.stmt, callers: tuple[Place, ...] = (), project: Project | None = None
) -> bool:
    """True where `statement` means to change the leaf that it writes, for good.

    `callers` are the frames around it, innermost first: they tell what a function's parameter stands for.
    """
    target = names.written(statement)
    if target is None:
        return False
    base = names.root(target)
    text = ast.unparse(base)
    scope = source.scope(statement)
    if updates_by_gradient(statement, scope) or over_parameters(source, statement, text):
        return True
    alias = _alias(scope, statement, text)
    function = getattr(scope, "name", "")
    if function in _COMPUTES and isinstance(base, ast.Name) and _read_later(scope, statement, text):
        return False
    if is_parameter(source, alias) or _SETTERS.search(function):
        return True
    if text in names.parameters(scope) and project is not None:
        return _argument_is_parameter(text, scope, callers, project)
    return any(trained(around, text) for around in _scopes_of(source, scope, base))


def is_parameter(source: Source, node: ast.expr) -> bool:
    """True where an expression reads a module's parameter: by its name, or by how the file declares it."""
    text = ast.unparse(node)
    if _PARAMETER.search(text):
        return True
    declared = [a.value for a in names.assignments(source.tree, text) if a.value is not None]
    return any("Parameter(" in ast.unparse(v) for v in declared)


def updates_by_gradient(statement: ast.stmt, scope: ast.AST) -> bool:
    """The right side reads `.grad`, a learning rate, or a result of `torch.autograd.grad`."""
    target = names.written(statement)
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return True
        if isinstance(node, ast.Name | ast.Attribute) and node is not target:
            word = node.id if isinstance(node, ast.Name) else node.attr
            if _RATES.match(word):
                return True
    gradients = {
        ast.unparse(t)
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and "autograd.grad(" in ast.unparse(node.value)
        for target_ in node.targets
        for t in names.flat(target_)
    }
    feeds = {g for g in gradients if names.mentions(statement, g)}
    for node in ast.walk(scope):
        if isinstance(node, ast.For) and node.lineno <= statement.lineno <= (node.end_lineno or 0):
            feeds |= {g for g in gradients if names.mentions(node.iter, g)}
    return bool(feeds)


def over_parameters(source: Source, statement: ast.stmt, text: str) -> bool:
    """The name `text` is a loop variable that runs over a module's parameters."""
    loop = names.loop_over(source, statement, text)
    if loop is None:
        return False
    over = names.iterated(loop, text)
    if over is None:
        return False
    if isinstance(over, ast.Name):
        bound = names.assignments(source.scope(statement), over.id) or names.assignments(source.tree, over.id)
        over = next((a.value for a in reversed(bound) if a.value is not None), over)
    return any(isinstance(n, ast.Attribute) and n.attr in _CONTAINERS for n in ast.walk(over))


def _alias(scope: ast.AST, statement: ast.stmt, text: str) -> ast.expr:
    """What `text` was last bound to before the statement, if that is a plain attribute or element."""
    before = [a for a in names.assignments(scope, text) if a.lineno < statement.lineno and a.value is not None]
    value = before[-1].value if before else None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return names.root(value) if value is not None else ast.parse(text, mode="eval").body


def _read_later(scope: ast.AST, statement: ast.stmt, text: str) -> bool:
    end = statement.end_lineno or statement.lineno
    return any(
        isinstance(n, ast.Name) and n.id == text and n.lineno > end and isinstance(n.ctx, ast.Load)
        for n in ast.walk(scope)
    )


def _argument_is_parameter(text: str, scope: ast.AST, callers: tuple[Place, ...], project: Project) -> bool:
    """The caller passes a module's parameter for the parameter `text` of `scope`."""
    if not callers or not isinstance(scope, Function):
        return False
    source = project.get(callers[0].path)
    call = source.innermost(callers[0].span, ast.Call) if source else None
    if source is None or not isinstance(call, ast.Call):
        return False
    argument = argument_for(call, scope, text)
    return argument is not None and is_parameter(source, names.root(argument))


def argument_for(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """The argument that a call passes for a function's parameter `name`."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    order = names.parameters(function)
    at = order.index(name) if name in order else -1
    if order[:1] in (["self"], ["cls"]):
        at -= 1
    if at < 0 or at >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
        return None
    return call.args[at]


def _scopes_of(source: Source, scope: Scope, base: ast.expr) -> Iterator[Scope]:
    """The scopes in which an expression's first name means the same, innermost first: a closure writes its owner's."""
    while isinstance(base, ast.Attribute | ast.Subscript | ast.Call):
        base = base.func if isinstance(base, ast.Call) else base.value
    name = base.id if isinstance(base, ast.Name) else ""
    while True:
        yield scope
        if isinstance(scope, ast.Module) or name in names.parameters(scope) or names.assignments(scope, name):
            return
        scope = source.scope(scope)


def trained(scope: ast.AST, text: str) -> bool:
    """The leaf's gradient is read in this scope, or an optimizer holds it."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and ast.unparse(node.value) == text:
            return True
        if not isinstance(node, ast.Call) or not _OPTIMIZER.search(ast.unparse(node.func)):
            continue
        if any(names.mentions(a, text) for a in [*node.args, *(k.value for k in node.keywords)]):
            return True
    return False
