"""Operators and comparisons of values, and what is true."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from deinplace.analysis import ops
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    NUMBER,
    STRING,
    Cls,
    Const,
    Fields,
    Fn,
    Items,
    Lam,
    Obj,
    Other,
    Ref,
    Ten,
    Union,
    Value,
)

OPERATORS: dict[type[ast.operator], tuple[str, Callable[[object, object], object]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("remainder", operator.mod),
    ast.Pow: ("pow", operator.pow),
    ast.MatMult: ("matmul", operator.matmul),
    ast.BitAnd: ("bitwise_and", operator.and_),
    ast.BitOr: ("bitwise_or", operator.or_),
    ast.BitXor: ("bitwise_xor", operator.xor),
    ast.LShift: ("bitwise_left_shift", operator.lshift),
    ast.RShift: ("bitwise_right_shift", operator.rshift),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[..., object]]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
}
_SMALL = 1 << 62


def binary(
    m: Machine, op: ast.operator, left: Value, right: Value, node: ast.AST, parts: tuple[ast.expr, ast.expr]
) -> Value:
    """`left op right`."""
    name, compute = OPERATORS[type(op)]
    _kept_by_operand(m, left, right)
    if isinstance(left, Ten) or isinstance(right, Ten):
        if isinstance(left, Const) and isinstance(left.value, str):
            return STRING
        return ops.operate(m, name, {"self": left, "other": right}, node, {"self": parts[0], "other": parts[1]})
    if isinstance(left, Const) and isinstance(right, Const):
        return _fold(m, name, compute, left.value, right.value)
    if isinstance(left, Obj) and left.what in ("list", "tuple"):
        return _sequence(m, name, left, right)
    if isinstance(left, Const) and isinstance(left.value, str):
        return STRING
    if isinstance(left, Obj) and isinstance(right, Obj) and left.what == right.what == "dict":
        one, two = m.fields_of(left), m.fields_of(right)
        return m.record({**one.fields, **two.fields}, "dict", one.open or two.open)
    if isinstance(left, Union) or isinstance(right, Union):
        options = [o for side in (left, right) if isinstance(side, Union) for o in side.options]
        if any(isinstance(o, Ten) for o in options):
            tensor = next(o for o in options if isinstance(o, Ten))
            return ops.operate(m, name, {"self": tensor, "other": right}, node, {})
    what = left.what if isinstance(left, Other) else right.what if isinstance(right, Other) else "number"
    return Other(what, m.terms.make(name, m.term_of(left), m.term_of(right)))


def _kept_by_operand(m: Machine, left: Value, right: Value) -> None:
    """An operator of one of the project's classes may keep the other operand."""
    if not isinstance(left, (Obj, Union)) and not isinstance(right, (Obj, Union)):
        return  # nearly always, and often
    for one, other in ((left, right), (right, left)):
        if any(m.class_of(o) is not None for o in (one.options if isinstance(one, Union) else (one,))):
            m.escape(other, "is an operand of an object's own operator")


def _fold(m: Machine, name: str, compute: Callable[[object, object], object], a: object, b: object) -> Value:
    numbers = isinstance(a, (int, float, bool)) and isinstance(b, (int, float, bool))
    if numbers and name not in ("pow", "bitwise_left_shift", "matmul"):
        try:
            value = compute(a, b)
        except (ArithmeticError, TypeError, ValueError):
            return NUMBER
        return Const(value) if not isinstance(value, int) or abs(value) < _SMALL else NUMBER
    if isinstance(a, str) and isinstance(b, str) and name == "add" and len(a) + len(b) < 1000:
        return Const(a + b)
    if isinstance(a, (str, bytes)):
        return STRING
    return Other("number", m.terms.make(name, m.term_of(Const(a)), m.term_of(Const(b))))


def _sequence(m: Machine, name: str, left: Obj, right: Value) -> Value:
    items = m.items_of(left)
    if name == "add" and isinstance(right, Obj) and right.what in ("list", "tuple"):
        more = m.items_of(right)
        return m.sequence(items.items + more.items, left.what, items.open or more.open)
    if name == "mul":
        count = right.value if isinstance(right, Const) and isinstance(right.value, int) else 2
        known = isinstance(right, Const)
        return m.sequence(items.items * max(0, min(count, 4)), left.what, items.open or not known or count > 4)
    return m.sequence(items.items, left.what, True)


def compare(
    m: Machine, op: ast.cmpop, left: Value, right: Value, node: ast.AST, parts: tuple[ast.expr, ast.expr]
) -> Value:
    """One comparison of a chain."""
    if isinstance(op, (ast.Is, ast.IsNot)):
        known = same(m, left, right)
        if isinstance(left, Ten) and isinstance(right, Ten):
            m.observe("is", left == right)
            for value in (left, right):
                m.escape(value, "is told from others by identity")
        if known is None:
            return Other("number", m.terms.make("is", m.term_of(left), m.term_of(right)))
        return Const(known if isinstance(op, ast.Is) else not known)
    _kept_by_operand(m, left, right)
    if isinstance(op, (ast.In, ast.NotIn)):
        known = _contains(m, right, left)
        return NUMBER if known is None else Const(known if isinstance(op, ast.In) else not known)
    name, compute = _COMPARE[type(op)]
    if isinstance(left, Ten) or isinstance(right, Ten):
        return ops.operate(m, name, {"self": left, "other": right}, node, {"self": parts[0], "other": parts[1]})
    if isinstance(left, Const) and isinstance(right, Const):
        try:
            return Const(bool(compute(left.value, right.value)))
        except TypeError:
            return NUMBER
    return Other("number", m.terms.make(name, m.term_of(left), m.term_of(right)))


def same(m: Machine, left: Value, right: Value) -> bool | None:
    """`left is right`, where it is known."""
    if isinstance(left, Const) and isinstance(right, Const):
        return left == right if left.value is None or right.value is None else None
    for a, b in ((left, right), (right, left)):
        if isinstance(b, Const) and b.value is None:
            if isinstance(a, Ten):
                return False if m.kind(a) == "tensor" else None
            if isinstance(a, Union):
                known = {same(m, o, b) for o in a.options}
                return known.pop() if len(known) == 1 else None
            return None if isinstance(a, Other) and a.what == "unknown" else False
    if isinstance(left, Ten) and isinstance(right, Ten) and left.choice is None and right.choice is None:
        return left == right if left.exact and right.exact else None
    if isinstance(left, Obj) and isinstance(right, Obj):
        return left.oid == right.oid
    return None


def _contains(m: Machine, container: Value, item: Value) -> bool | None:
    if not isinstance(item, Const) or not isinstance(container, Obj):
        return None
    content = m.m.peek(container.oid)
    if isinstance(content, Fields) and container.what == "dict":
        return True if item.value in content.fields else None if content.open else False
    if isinstance(content, Items) and all(isinstance(v, Const) for v in content.items):
        found = any(v == item for v in content.items)
        return True if found else None if content.open else False
    return None


def truth(m: Machine, value: Value) -> bool | None:
    """Whether a value counts as true, where it is known."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Obj):
        content = m.m.peek(value.oid)
        if isinstance(content, Items):
            return True if content.items else None if content.open else False
        if isinstance(content, Fields) and value.what == "dict":
            return True if content.fields else None if content.open else False
        return True
    if isinstance(value, (Fn, Cls, Lam, Ref)):
        return True if not isinstance(value, Ref) or value.name.startswith("torch.") else None
    if isinstance(value, Union):
        known = {truth(m, o) for o in value.options}
        return known.pop() if len(known) == 1 else None
    return None
