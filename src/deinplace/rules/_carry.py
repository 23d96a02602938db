"""Values that a loop carries from one round to the next together with their graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from deinplace.analysis.source import Function, Source
from deinplace.model import Place
from deinplace.rules import _bindings as names
from deinplace.rules._actions import Action, of_statement
from deinplace.rules._flags import is_true
from deinplace.rules.base import Project

_CUTS = ("detach", "item", "tolist", "numpy", "argmax", "multinomial", "size", "detach_", "no_grad", "long", "int")
_BUILTINS = (
    "range",
    "len",
    "zip",
    "enumerate",
    "next",
    "iter",
    "int",
    "float",
    "str",
    "print",
    "min",
    "max",
    "sorted",
    "open",
)
_LEAVES = ("Parameter", "requires_grad_")
Shape = Literal["tensor", "tuple", "list", "dict"]


@dataclass(frozen=True)
class Carry:
    """One name (or attribute) that keeps its graph over rounds, and the statement that binds it."""

    name: str
    binds: ast.stmt
    scope: ast.AST
    loop: ast.For | ast.While | None
    """The loop that carries it; None for an attribute that a method carries from call to call."""


@dataclass(frozen=True)
class Round:
    """The loop whose rounds run the backward, and what one round does."""

    source: Source
    loop: ast.For | ast.While
    backward: ast.stmt
    """The statement of the loop's function that reaches the backward."""
    actions: list[Action]


def round_of(stack: tuple[Place, ...], project: Project) -> Round | None:
    """The innermost loop around a backward, looked for from its own frame outwards.

    Without a run the stack is that of a write by hand, whose own loop runs over parameters: one with a backward counts.
    """
    first: Round | None = None
    for source, place in names.frames(stack, project):
        statement = names.statement_at(source, place.span)
        if statement is None:
            continue
        for parent in source.ancestors(statement):
            if isinstance(parent, ast.For | ast.While):
                known = [a for s in parent.body for a in of_statement(source, s, source.scope(parent))]
                found = Round(source, parent, statement, known)
                if any(a.kind == "backward" for a in known):
                    return found
                first = first or found
            if isinstance(parent, Function | ast.Lambda):
                break
    return first


def carries(view: Round) -> list[Carry]:
    """Names that a round reads before it binds them, and binds to what a module computed."""
    order = list(simple(view.loop.body))
    tainted = _tainted(view.source, order)
    read_first: set[str] = set()
    bound: dict[str, ast.stmt] = {}
    for statement in order:
        read_first |= {n for n in loads(statement) if n not in bound}
        for name in stores(statement):
            bound[name] = statement
    scope = view.source.scope(view.loop)
    found = [n for n in bound if n in read_first and n in tainted and _keeps(n, bound[n], tainted)]
    return [Carry(n, bound[n], scope, view.loop) for n in found]


def _keeps(name: str, last: ast.stmt, tainted: set[str]) -> bool:
    """The last binding of a round leaves a graph in the name, rather than starting it afresh."""
    value = getattr(last, "value", None)
    if isinstance(last, ast.AugAssign) or not isinstance(value, ast.expr):
        return True
    parts = [part for n, part in _pairs(last, value) if n == name]
    return any(_alive(p) or not live_loads(p).isdisjoint(tainted) for p in parts)


def attribute_carries(source: Source) -> list[Carry]:
    """`self.h` that a method computes from `self.h`, and so carries from call to call."""
    found: list[Carry] = []
    for node in source.nodes:
        if (
            not isinstance(node, ast.Assign)
            or not isinstance(scope := source.scope(node), Function)
            or scope.name == "__init__"
        ):
            continue
        for name in stores(node):
            if name.startswith("self.") and _alive(node.value) and _from(scope, node, name):
                found.append(Carry(name, node, scope, None))
    return found


def _from(scope: ast.AST, statement: ast.Assign, name: str) -> bool:
    """The value of `statement` was computed from `name`, directly or through names bound in front of it."""
    seen = loads(statement)
    earlier = [n for n in ast.walk(scope) if isinstance(n, ast.Assign) and n.lineno < statement.lineno]
    for other in sorted(earlier, key=lambda n: n.lineno, reverse=True):
        if stores(other) & seen:
            seen |= loads(other)
    return name in seen


def simple(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The simple statements of a block in the order of its text."""
    for statement in block:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        inner = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
        if any(inner):
            for part in inner:
                yield from simple(part)
        else:
            yield statement


def loads(node: ast.AST) -> set[str]:
    found = {
        ast.unparse(n)
        for n in ast.walk(node)
        if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Load)
    }
    if isinstance(node, ast.AugAssign):
        found.add(ast.unparse(node.target))
    return found


def stores(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign):
        return {
            ast.unparse(t) for target in node.targets for t in names.flat(target) if not isinstance(t, ast.Subscript)
        }
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name | ast.Attribute):
        return {ast.unparse(node.target)}
    return set()


def _tainted(source: Source, order: list[ast.stmt]) -> set[str]:
    """Names that a module's result, or a leaf, flows into without being cut from its graph."""
    tainted: set[str] = set()
    leaves = leaves_of(source)
    for _ in range(2):
        for statement in order:
            value = getattr(statement, "value", None)
            if not isinstance(value, ast.expr) or names.grad_off(source, statement):
                continue
            for name, part in _pairs(statement, value):
                if _alive(part) or not live_loads(part).isdisjoint(tainted | leaves):
                    tainted.add(name)
    return tainted


def leaves_of(source: Source) -> set[str]:
    """Names and attributes that the file makes as leaves: parameters, and tensors told to require gradients."""
    found: set[str] = set()
    for node in source.of(ast.Assign):
        for name, part in _pairs(node, node.value):
            calls = [n for n in ast.walk(part) if isinstance(n, ast.Call)]
            told = any(k.arg == "requires_grad" and is_true(k.value) for call in calls for k in call.keywords)
            if told or any(ast.unparse(c.func).rsplit(".", 1)[-1] in _LEAVES for c in calls):
                found.add(name)
    return found


def _pairs(statement: ast.stmt, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Each bound name with the part of the value that it gets."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for item, part in zip(target.elts, value.elts, strict=True):
                yield from ((ast.unparse(t), part) for t in names.flat(item))
        else:
            yield from ((ast.unparse(t), value) for t in names.flat(target))
    if isinstance(statement, ast.AugAssign):
        yield ast.unparse(statement.target), value


def live(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of an expression that are not cut off by `detach()` and its like."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rsplit(".", 1)[-1] in _CUTS:
        return
    if isinstance(node, ast.Attribute) and node.attr in ("data", "shape"):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from live(child)


def live_loads(node: ast.AST) -> set[str]:
    return {ast.unparse(n) for n in live(node) if isinstance(n, ast.Name | ast.Attribute)}


def _alive(value: ast.expr) -> bool:
    """A value that holds a call of a module or of a function of the program's own."""
    for node in live(value):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            head, tail = text.split(".")[0], text.rsplit(".", 1)[-1]
            if head in ("torch", "F", "nn", "np", "math", "time", "random") or text in _BUILTINS or tail[:1].isupper():
                continue
            if (
                isinstance(node.func, ast.Attribute)
                and head != "self"
                and not isinstance(node.func.value, ast.Name | ast.Attribute)
            ):
                continue
            if isinstance(node.func, ast.Attribute) and head != "self" and _tensor_method(tail):
                continue
            return True
    return False


def _tensor_method(name: str) -> bool:
    """Method names that say nothing about a module: they stand on tensors and containers too."""
    return name in (
        "float",
        "abs",
        "mean",
        "sum",
        "view",
        "reshape",
        "to",
        "clone",
        "get",
        "pop",
        "items",
        "squeeze",
        "step",
        "sample",
    )


def shape_of(source: Source, carry: Carry) -> list[Shape]:
    """What a carried name may hold, the likeliest first."""
    bound = [*names.assignments(carry.scope, carry.name), *names.assignments(source.tree, carry.name)]
    values = [
        v for a in bound if a.value is not None for n, v in _pairs(a, a.value) if n == carry.name and v is not a.value
    ]
    values += [a.value for a in bound if a.value is not None and _alone(a)]
    for value in values:
        if isinstance(value, ast.Tuple):
            return ["tuple"]
        if isinstance(value, ast.List | ast.ListComp):
            return ["list"]
        if isinstance(value, ast.Dict | ast.DictComp):
            return ["dict"]
    unpacked = any(
        isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Tuple) and ast.unparse(n.value) == carry.name
        for n in ast.walk(carry.scope)
    )
    if unpacked or _from_lstm(source, carry):
        return ["tuple"]
    # `detach` on a tuple fails loudly; taking a tensor apart row by row might not: it comes second, and only on a hint.
    hint = "LSTM" in source.text and not isinstance(carry.binds, ast.AugAssign) and part(carry) is None
    return ["tensor", "tuple"] if hint else ["tensor"]


def _alone(statement: ast.Assign | ast.AnnAssign) -> bool:
    """The statement binds one name."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return not any(isinstance(t, ast.Tuple | ast.List) for t in targets)


def _from_lstm(source: Source, carry: Carry) -> bool:
    """The carried name is the state that an `nn.LSTM` of the file returned."""
    value = getattr(carry.binds, "value", None)
    if not isinstance(value, ast.Call):
        return False
    made = (a.value for a in names.assignments(source.tree, ast.unparse(value.func)) if a.value is not None)
    return any(isinstance(v, ast.Call) and ast.unparse(v.func).endswith("LSTM") for v in made)


def part(carry: Carry) -> ast.expr | None:
    """The expression that is bound to the carried name, where it stands alone."""
    if not isinstance(carry.binds, ast.Assign) or len(carry.binds.targets) != 1:
        return None
    target, value = carry.binds.targets[0], carry.binds.value
    if isinstance(target, ast.Name | ast.Attribute):
        return value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return next((v for t, v in zip(target.elts, value.elts, strict=True) if ast.unparse(t) == carry.name), None)
    return None


def cut(name: str, shape: Shape) -> str:
    """A statement that detaches what a name holds."""
    if shape == "tuple":
        return f"{name} = tuple(t.detach() for t in {name})"
    if shape == "list":
        return f"{name} = [t.detach() for t in {name}]"
    if shape == "dict":
        return f"{name} = {{k: t.detach() for k, t in {name}.items()}}"
    return f"{name} = {name}.detach()"
