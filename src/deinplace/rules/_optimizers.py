"""Which parameters an optimizer holds, and how to name them in a call to `backward`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from deinplace.analysis.source import Function, Source
from deinplace.rules import _bindings as names
from deinplace.rules._actions import class_of

_OPTIMIZER = re.compile(
    r"(optim\w*\.)|(^|\.)(SGD|A?SGD|\w*Adam\w*|RMSprop|Adagrad|Adadelta|Rprop|LBFGS|Lion|LARS|LAMB|\w*Optimizer)$"
)


@dataclass(frozen=True)
class Held:
    """What an optimizer was built from: the expression, and the modules or tensors that it names."""

    expression: ast.expr
    built: ast.stmt
    roots: frozenset[str]


def held(source: Source, optimizer: str) -> Held | None:
    """What the optimizer of this name was built from, if the file shows it in one place."""
    found: list[Held] = []
    for statement in names.assignments(source.tree, optimizer):
        value = names.value_for(statement, optimizer)
        if not isinstance(value, ast.Call):
            continue
        expression = value.args[0] if value.args else next((k.value for k in value.keywords if k.arg == "params"), None)
        if expression is None or not (
            _OPTIMIZER.search(ast.unparse(value.func)) or "parameters()" in ast.unparse(expression)
        ):
            continue
        found.append(Held(expression, statement, frozenset(roots(source, expression, statement))))
    return found[0] if len(found) == 1 else None


def roots(source: Source, expression: ast.expr, statement: ast.stmt, depth: int = 0) -> set[str]:
    """Modules whose parameters an expression lists, or the tensors that it names; names are followed to their value."""
    found: set[str] = set()
    for node in ast.walk(expression):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.endswith("parameters")
        ):
            found.add(ast.unparse(node.func.value))
    bound = {
        t.id
        for n in ast.walk(expression)
        if isinstance(n, ast.comprehension)
        for t in names.flat(n.target)
        if isinstance(t, ast.Name)
    }
    spread = {ast.unparse(n.value) for n in ast.walk(expression) if isinstance(n, ast.Starred)}
    for name in sorted({text for text, _ in names.chains(expression) if text.split(".")[0] not in bound}):
        if any(name == r.split(".")[0] or name.startswith(r + ".") for r in found):
            continue
        if name.split(".")[0] in ("list", "itertools", "chain", "filter", "tuple"):
            continue
        values = [
            a for a in names.assignments(source.scope(statement), name) if a.value is not None and a is not statement
        ]
        values = values or [
            a for a in names.assignments(source.tree, name) if a.value is not None and a is not statement
        ]
        deeper: set[str] = set()
        if depth < 3 and values and values[-1].value is not None:
            deeper = (
                roots(source, values[-1].value, values[-1], depth + 1)
                if "parameters(" in ast.unparse(values[-1])
                else set()
            )
        found |= deeper or (
            {name.split(".")[0] if name in spread else name}
            if isinstance(expression, ast.Name | ast.List | ast.Tuple)
            else set()
        )
    return found


def related(first: str, second: str) -> bool:
    """True where one dotted name is the other or holds it."""
    return first == second or first.startswith(second + ".") or second.startswith(first + ".")


def holds(source: Source, module: str, root: str) -> bool:
    """True where a module is, or was built from, the module or tensor `root`."""
    if root == module or root.startswith(module + "."):
        return True
    built = (a.value for a in names.assignments(source.tree, module) if isinstance(a.value, ast.Call))
    return any(names.mentions(value, root) for value in built)


def inputs(source: Source, optimizers: list[str], call: ast.Call) -> str | None:
    """An expression for the parameters of these optimizers that holds where `call` stands, or None."""
    if not optimizers or not all(_visible(source, o, call) for o in optimizers):
        return None
    frozen = re.search(r"requires_grad_\(|\.requires_grad\s*=", source.text) is not None
    modules = [_module(source, o, call) for o in optimizers]
    plain = [m for m in modules if m is not None]
    if len(plain) == len(modules):
        if frozen:
            over = (
                plain[0] + ".parameters()"
                if len(plain) == 1
                else "[" + ", ".join(f"*{m}.parameters()" for m in plain) + "]"
            )
            return f"[p for p in {over} if p.requires_grad]"
        if len(plain) == 1:
            return f"list({plain[0]}.parameters())"
        return "[" + ", ".join(f"*{m}.parameters()" for m in plain) + "]"
    test = " if p.requires_grad" if frozen else ""
    if len(optimizers) == 1:
        return f'[p for group in {optimizers[0]}.param_groups for p in group["params"]{test}]'
    group = ", ".join(optimizers)
    return f'[p for optimizer in ({group}) for group in optimizer.param_groups for p in group["params"]{test}]'


def _module(source: Source, optimizer: str, call: ast.Call) -> str | None:
    """The module whose `parameters()` the optimizer was built from, where the call can name it too."""
    known = held(source, optimizer)
    if (
        known is None
        or not isinstance(known.expression, ast.Call)
        or known.expression.args
        or known.expression.keywords
    ):
        return None
    function = known.expression.func
    if not isinstance(function, ast.Attribute) or function.attr != "parameters":
        return None
    text = ast.unparse(function.value)
    if not re.fullmatch(r"[\w.]+", text):
        return None
    here, there = source.scope(call), source.scope(known.built)
    if here is there and len(names.assignments(here, text)) <= 1:
        return text
    if text.startswith("self.") and class_of(source, call) is class_of(source, known.built):
        return text
    return text if there is source.tree and _is_global(source, text.split(".")[0], here) else None


def _is_global(source: Source, name: str, scope: ast.AST) -> bool:
    """True where `name` means the module's variable inside `scope`."""
    if scope is source.tree:
        return True
    return name not in names.parameters(scope) and not names.assignments(scope, name) and _bound_at_top(source, name)


def _bound_at_top(source: Source, name: str) -> bool:
    return any(source.scope(a) is source.tree for a in names.assignments(source.tree, name))


def _visible(source: Source, text: str, node: ast.AST) -> bool:
    """True where an optimizer's text, as the training step spells it, names the same object at `node`."""
    head = re.split(r"[.\[]", text)[0]
    scope = source.scope(node)
    if not re.fullmatch(r"[\w.\[\]'\"]+", text):
        return False
    if head == "self":
        return isinstance(scope, Function) and names.parameters(scope)[:1] == ["self"]
    return head in names.parameters(scope) or bool(names.assignments(scope, head)) or _is_global(source, head, scope)
