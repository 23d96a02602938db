"""Expressions in a quick look."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from deinplace.analysis.scout import attributes, calls, effects, walk
from deinplace.analysis.scout.members import (
    FRACTION,
    MULTI,
    NOTHING,
    Box,
    Code,
    Layer,
    Member,
    Thing,
    Value,
    contents,
)
from deinplace.analysis.scout.state import EVERY, GiveUpError, Scout
from deinplace.analysis.values import Cls, Const, Ref

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
}  # fmt: skip


MANY = 8
"""A value of more possibilities costs a step for each."""


def evaluate(s: Scout, node: ast.expr) -> Value:
    """What an expression may be."""
    s.steps -= 1
    if s.steps < 0:
        raise GiveUpError
    handler = _EXPRESSIONS.get(type(node))
    if handler is None:
        return NOTHING
    found = handler(s, node)
    if len(found) > MANY:
        s.steps -= len(found)
    return found


def _constant(s: Scout, node: ast.Constant) -> Value:
    value = node.value
    if value is None or value is True or value is False or (isinstance(value, str) and len(value) < 40):
        return frozenset({Const(value)})
    return frozenset({FRACTION}) if isinstance(value, float) else NOTHING


def _name(s: Scout, node: ast.Name) -> Value:
    name = node.id
    found = s.scope.names.get(name)
    if found is not None:
        return found
    for outer in s.scope.outer:
        if name in outer:
            return outer[name]
    return s.resolve(s.scope.path, name)


def _attribute(s: Scout, node: ast.Attribute) -> Value:
    return attributes.attribute(s, evaluate(s, node.value), node.attr)


def _call(s: Scout, node: ast.Call) -> Value:
    return calls.call_node(s, node)


def _sequence(s: Scout, node: ast.Tuple | ast.List | ast.Set) -> Value:
    box = Box()
    for part in node.elts:
        if isinstance(part, ast.Starred):
            box.items += items(s, evaluate(s, part.value), 0)
        else:
            box.items.append(evaluate(s, part))
    return frozenset({box})


def _dict(s: Scout, node: ast.Dict) -> Value:
    box = Box()
    for key, value in zip(node.keys, node.values, strict=True):
        found = evaluate(s, value)
        if key is None:
            merge(box, found)
        elif isinstance(key, ast.Constant):
            box.named[key.value] = found
        else:
            box.rest |= found
    return frozenset({box})


def merge(box: Box, value: Value) -> None:
    """Take in what another dict holds."""
    for member in value:
        if isinstance(member, Box):
            box.rest = box.rest.union(member.rest, *member.items)
            box.named.update(member.named)
        else:
            box.rest |= {member}


def contents_of(value: Value) -> Value:
    """What the containers in a value hold, and the rest of it."""
    out: set[Member] = set()
    for member in value:
        if isinstance(member, Box):
            out |= contents(member)
        elif isinstance(member, Layer) and member.children is not None:
            out |= contents(member.children)
        else:
            out.add(member)
    return frozenset(out)


def items(s: Scout, value: Value, count: int) -> list[Value]:
    """What a loop or an assignment to several targets takes out of a value."""
    boxes = [m for m in value if isinstance(m, Box)]
    exact = [b for b in boxes if not b.rest and not b.named and (not count or len(b.items) == count)]
    if boxes and len(boxes) == len(value) == len(exact) and len({len(b.items) for b in exact}) == 1:
        return [frozenset().union(*column) for column in zip(*(b.items for b in exact), strict=True)]
    out = set(contents_of(value))
    if any(isinstance(m, int) and m in s.likely for m in value):
        out.add(MULTI)
    for member in value:
        if isinstance(member, Thing):  # a container of modules, as a rule
            s.read.add(EVERY)
            out.discard(member)
            out = out.union(*(v for k, v in member.fields.items() if k != "training"))
    out -= {m for m in out if isinstance(m, Const)}
    return [frozenset(out)] * max(count, 1)


def _binary(s: Scout, node: ast.BinOp) -> Value:
    left, right = evaluate(s, node.left), evaluate(s, node.right)
    return binary(s, OPERATORS[type(node.op)], left, right)


def binary(s: Scout, op: str, left: Value, right: Value) -> Value:
    """`left op right`."""
    boxes = [m for v in (left, right) for m in v if isinstance(m, Box)]
    out: set[Member] = set()
    if boxes:
        if op == "add" and len(boxes) == 2 and len(left) == len(right) == 1:
            return frozenset({Box(boxes[0].items + boxes[1].items, boxes[0].rest | boxes[1].rest)})
        out.add(Box([], frozenset().union(*map(contents, boxes))))
    if any(isinstance(m, int) for v in (left, right) for m in v):
        out |= effects.operate(s, op, None, [("self", left), ("other", right)], {})
    elif FRACTION in left or FRACTION in right or op == "div":
        out.add(FRACTION)
    return frozenset(out)


def _unary(s: Scout, node: ast.UnaryOp) -> Value:
    value = evaluate(s, node.operand)
    if isinstance(node.op, ast.Not):
        known = truth(value)
        return NOTHING if known is None else frozenset({Const(not known)})
    if int in map(type, value):
        return effects.operate(
            s, "neg" if isinstance(node.op, ast.USub) else "bitwise_not", None, [("self", value)], {}
        )
    return value


def _boolean(s: Scout, node: ast.BoolOp) -> Value:
    wanted = isinstance(node.op, ast.Or)
    out: Value = NOTHING
    for part in node.values:
        last = evaluate(s, part)
        known = truth(last)
        if known is wanted:
            return out | last
        if known is None:
            out |= last
    return out | last


def _compare(s: Scout, node: ast.Compare) -> Value:
    values = [evaluate(s, part) for part in (node.left, *node.comparators)]
    op = node.ops[0]
    if len(values) == 2 and isinstance(op, (ast.Is, ast.IsNot)):
        known = _same(values[0], values[1])
        return NOTHING if known is None else frozenset({Const(known if isinstance(op, ast.Is) else not known)})
    if len(values) == 2 and isinstance(op, (ast.Eq, ast.NotEq)):
        left, right = (next(iter(v)) if len(v) == 1 else None for v in values)
        if isinstance(left, Const) and isinstance(right, Const):
            return frozenset({Const((left == right) is isinstance(op, ast.Eq))})
    if isinstance(op, (ast.In, ast.NotIn)) or not any(isinstance(m, int) for v in values for m in v):
        return NOTHING
    made = s.cell()
    s.constant.add(made)
    s.likely.add(made)
    return frozenset({made})


def _same(left: Value, right: Value) -> bool | None:
    """`left is None`, where that is known."""
    none = {Const(None)}
    if right != none or not left:
        return None
    if left == none:
        return True
    sure = Const(None) not in left and not any(isinstance(m, (int, str)) for m in left)
    return False if sure else None


def _conditional(s: Scout, node: ast.IfExp) -> Value:
    known = truth(evaluate(s, node.test))
    if known is not None:
        return evaluate(s, node.body if known else node.orelse)
    return evaluate(s, node.body) | evaluate(s, node.orelse)


def truth(value: Value) -> bool | None:
    """Whether a value counts as true, where that is known."""
    found = {_true(member) for member in value}
    return found.pop() if len(found) == 1 else None


def _true(member: Member) -> bool | None:
    if isinstance(member, Const):
        return bool(member.value)
    if isinstance(member, Ref):
        return True if member.name.startswith("torch.") else None
    return True if isinstance(member, (Cls, Code, Thing, Layer)) else None


def _subscript(s: Scout, node: ast.Subscript) -> Value:
    base = evaluate(s, node.value)
    index = evaluate(s, node.slice)
    out: set[Member] = set()
    number = node.slice.value if isinstance(node.slice, ast.Constant) else None
    for member in base:
        if isinstance(member, Box) and member.named:
            exact = isinstance(node.slice, ast.Constant) and number in member.named
            out |= member.named[number] if exact else named_by(member, index)
        elif isinstance(member, Box):
            exact = type(number) is int and -len(member.items) <= number < len(member.items)
            found = member.items[number] if exact and not member.rest else contents(member)  # type: ignore[index]
            out |= found
            if isinstance(node.slice, ast.Slice):
                out.add(member)
        elif isinstance(member, int):
            out.add(s.derived(member, number) if isinstance(number, str) else member)
        elif isinstance(member, Thing):
            out |= calls.call_method(s, member, "__getitem__", [index], {})
        elif isinstance(member, Layer) and member.children is not None:
            out |= contents(member.children)
            out.add(member)
        elif not isinstance(member, str) or not isinstance(number, str):
            out.add(member)
    return frozenset(out)


def named_by(box: Box, index: Value) -> Value:
    """What a dict holds under a key that is a name, where that is known."""
    names = [m.value for m in index if isinstance(m, Const)]
    if len(names) == len(index) and names and all(n in box.named for n in names):
        return frozenset().union(*(box.named[n] for n in names))
    return contents(box)


def _slice(s: Scout, node: ast.Slice) -> Value:
    for part in (node.lower, node.upper, node.step):
        if part is not None:
            evaluate(s, part)
    return NOTHING


def _joined(s: Scout, node: ast.JoinedStr) -> Value:
    return NOTHING


def _lambda(s: Scout, node: ast.Lambda) -> Value:
    return frozenset({Code(node, s.scope.path, None, None, (s.scope.names, *s.scope.outer), s.scope.owner)})


def _named(s: Scout, node: ast.NamedExpr) -> Value:
    value = evaluate(s, node.value)
    s.scope.names[node.target.id] = value
    return value


def _inner(s: Scout, node: ast.Await | ast.Starred) -> Value:
    return evaluate(s, node.value)


def _yield(s: Scout, node: ast.Yield | ast.YieldFrom) -> Value:
    if node.value is not None:
        value = evaluate(s, node.value)
        s.scope.yields.append(value if isinstance(node, ast.Yield) else contents_of(value))
    return NOTHING


def _comprehension(s: Scout, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    kept = dict(s.scope.names)
    box = Box()
    for generator in node.generators:
        over = items(s, evaluate(s, generator.iter), 0)
        walk.assign(s, generator.target, frozenset().union(*over))
        for test in generator.ifs:
            evaluate(s, test)
    for _ in range(2):
        made = evaluate(s, node.value if isinstance(node, ast.DictComp) else node.elt)
        box.items.append(made)
    box.rest = box.rest.union(*box.items)
    s.scope.names = kept
    return frozenset({box})


_EXPRESSIONS: dict[type[ast.expr], Callable[[Scout, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Lambda: _lambda,
    ast.JoinedStr: _joined,
    ast.NamedExpr: _named,
    ast.Await: _inner,
    ast.Starred: _inner,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
}
