"""The quick look itself: statements and expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from deinplace.analysis.context import OFF, ON
from deinplace.analysis.index import FunctionInfo
from deinplace.analysis.scout import calls, effects
from deinplace.analysis.scout.state import (
    FRACTION,
    MULTI,
    NOTHING,
    OPAQUE,
    STEPS,
    Box,
    Class,
    Code,
    GiveUpError,
    Known,
    Layer,
    Member,
    Name,
    Scope,
    Scout,
    Thing,
    Value,
    cells_of,
    contents,
)

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
}  # fmt: skip


class Looker(Scout):
    """A scout that can evaluate."""

    def bound_at_top(self, path: str, node: ast.stmt, name: str) -> Value:
        """What a statement at the top level of a file binds a name to."""
        value = getattr(node, "value", None)
        if value is None:
            return NOTHING
        kept, self.scope = self.scope, Scope(path, {})
        grad, self.grad, hot = self.grad, True, self.hot
        self.depth += 1
        found = evaluate(self, value) if self.depth < calls.DEPTH else frozenset({OPAQUE})
        self.depth -= 1
        self.scope, self.grad, self.hot = kept, grad, hot
        plain = isinstance(node, ast.AnnAssign) or all(isinstance(t, ast.Name) for t in getattr(node, "targets", ()))
        return found if plain else frozenset(m for v in items(self, found, 0) for m in v) | found


def suspicious(scout: Looker, info: FunctionInfo) -> bool:
    """True where a function's own run may show a fault: the machine has to look."""
    scout.steps, scout.hot, scout.grad, scout.depth = STEPS, False, True, 0
    scout.saved, scout.written, scout.running = set(), set(), []
    try:
        calls.alone(scout, info)
    except (GiveUpError, RecursionError):
        return True
    return scout.hot


# expressions


def evaluate(s: Scout, node: ast.expr) -> Value:
    """What an expression may be."""
    s.steps -= 1
    if s.steps < 0:
        raise GiveUpError
    handler = _EXPRESSIONS.get(type(node))
    return handler(s, node) if handler is not None else NOTHING


def _constant(s: Scout, node: ast.Constant) -> Value:
    value = node.value
    if value is None or value is True or value is False or (isinstance(value, str) and len(value) < 40):
        return frozenset({Known(value)})
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
    return calls.attribute(s, evaluate(s, node.value), node.attr)


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
            out.discard(member)
            out = out.union(*(v for k, v in member.fields.items() if k != "training"))
    out -= {m for m in out if isinstance(m, Known)}
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
        return NOTHING if known is None else frozenset({Known(not known)})
    if any(isinstance(m, int) for m in value):
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
    if len(values) == 2 and isinstance(op, ast.Is | ast.IsNot):
        known = _same(values[0], values[1])
        return NOTHING if known is None else frozenset({Known(known if isinstance(op, ast.Is) else not known)})
    if len(values) == 2 and isinstance(op, ast.Eq | ast.NotEq):
        left, right = (next(iter(v)) if len(v) == 1 else None for v in values)
        if isinstance(left, Known) and isinstance(right, Known):
            return frozenset({Known((left == right) is isinstance(op, ast.Eq))})
    if isinstance(op, ast.In | ast.NotIn) or not any(isinstance(m, int) for v in values for m in v):
        return NOTHING
    made = s.cell()
    s.constant.add(made)
    s.likely.add(made)
    return frozenset({made})


def _same(left: Value, right: Value) -> bool | None:
    """`left is None`, where that is known."""
    none = {Known(None)}
    if right != none or not left:
        return None
    if left == none:
        return True
    sure = Known(None) not in left and not any(isinstance(m, int | str) for m in left)
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
    if isinstance(member, Known):
        return bool(member.value)
    if isinstance(member, Name):
        return True if member.dotted.startswith("torch.") else None
    return True if isinstance(member, Class | Code | Thing | Layer) else None


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
    names = [m.value for m in index if isinstance(m, Known)]
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
        assign(s, generator.target, frozenset().union(*over))
        for test in generator.ifs:
            evaluate(s, test)
    for _ in range(2):
        made = evaluate(s, node.value if isinstance(node, ast.DictComp) else node.elt)
        box.items.append(made)
    box.rest = box.rest.union(*box.items)
    s.scope.names = kept
    return frozenset({box})


# statements


def execute(s: Scout, body: list[ast.stmt]) -> bool:
    """Look at statements; true where no path gets past them."""
    for node in body:
        s.steps -= 1
        if s.steps < 0:
            raise GiveUpError
        handler = _STATEMENTS.get(type(node))
        if handler is not None and handler(s, node):
            return True
        if s.hot and not s.depth:
            return True
    return False


def assign(s: Scout, target: ast.expr, value: Value) -> None:
    """Bind a target."""
    if isinstance(target, ast.Name):
        s.scope.names[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        star = any(isinstance(t, ast.Starred) for t in target.elts)
        found = items(s, value, len(target.elts) if not star else 0)
        whole = frozenset().union(*found)
        for n, part in enumerate(target.elts):
            inner = part.value if isinstance(part, ast.Starred) else part
            assign(s, inner, whole if star or n >= len(found) else found[n])
    elif isinstance(target, ast.Attribute):
        calls.set_attribute(s, evaluate(s, target.value), target.attr, value)
    elif isinstance(target, ast.Subscript):
        _set_item(s, target, value)


def _set_item(s: Scout, target: ast.Subscript, value: Value) -> None:
    base = evaluate(s, target.value)
    index = evaluate(s, target.slice)
    named = isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
    for member in base:
        if isinstance(member, Box):
            if isinstance(target.slice, ast.Constant):
                member.named[target.slice.value] = value | member.named.get(target.slice.value, NOTHING)
            else:
                member.rest |= value
        elif isinstance(member, Thing):
            calls.call_method(s, member, "__setitem__", [index, value], {})
    if any(isinstance(m, int) for m in base) and not named:
        effects.write(s, base, "copy", [value])


def _assign(s: Scout, node: ast.Assign) -> bool:
    value = evaluate(s, node.value)
    for target in node.targets:
        assign(s, target, value)
    return False


def _annotated(s: Scout, node: ast.AnnAssign) -> bool:
    if node.value is not None:
        value = evaluate(s, node.value)
        s.likely |= cells_of(value, 0)
        assign(s, node.target, value)
    return False


def _augmented(s: Scout, node: ast.AugAssign) -> bool:
    target = node.target
    old = evaluate(s, target)
    right = evaluate(s, node.value)
    op = OPERATORS[type(node.op)]
    if isinstance(node.op, ast.MatMult):
        assign(s, target, binary(s, op, old, right))
        return False
    for member in old:
        if isinstance(member, Box):
            member.rest |= contents_of(right)
        elif isinstance(member, Thing):
            calls.call_method(s, member, f"__i{type(node.op).__name__.lower()[:3]}__", [right], {})
    if any(isinstance(m, int) for m in old):
        effects.in_place(s, op, old, [("other", right)], None, partial=isinstance(target, ast.Subscript))
    elif any(isinstance(m, int) for m in right):
        assign(s, target, binary(s, op, old, right) | old)
    elif FRACTION in right and isinstance(target, ast.Name):
        assign(s, target, old | {FRACTION})
    return False


def _expression(s: Scout, node: ast.Expr) -> bool:
    evaluate(s, node.value)
    return False


def _return(s: Scout, node: ast.Return) -> bool:
    s.scope.results.append(evaluate(s, node.value) if node.value is not None else frozenset({Known(None)}))
    return True


def _stop(s: Scout, node: ast.stmt) -> bool:
    return isinstance(node, ast.Raise)


def _if(s: Scout, node: ast.If) -> bool:
    test = evaluate(s, node.test)
    known = truth(test)
    if known is not None:
        return execute(s, node.body if known else node.orelse)
    names, saved = dict(s.scope.names), set(s.saved)
    ended = execute(s, node.body)
    first, s.scope.names = s.scope.names, names
    saved_first, s.saved = s.saved, saved
    if execute(s, node.orelse):
        if ended:
            return True
        s.scope.names, s.saved = first, saved_first | s.saved
        return False
    if not ended:
        join(s.scope.names, first)
    s.saved |= saved_first
    return False


def join(names: dict[str, Value], others: dict[str, Value]) -> None:
    """Two paths meet."""
    for name, value in others.items():
        known = names.get(name)
        if known is not value:
            names[name] = value if known is None else known | value


def _for(s: Scout, node: ast.For | ast.AsyncFor) -> bool:
    over = items(s, evaluate(s, node.iter), 0)
    _twice(s, node, frozenset().union(*over))
    execute(s, node.orelse)
    return False


def _while(s: Scout, node: ast.While) -> bool:
    evaluate(s, node.test)
    _twice(s, node, None)
    return False


def _twice(s: Scout, node: ast.For | ast.AsyncFor | ast.While, over: Value | None) -> None:
    for _ in range(2):
        before = dict(s.scope.names)
        if over is not None and not isinstance(node, ast.While):
            assign(s, node.target, over)
        execute(s, node.body)
        join(s.scope.names, before)


def _with(s: Scout, node: ast.With | ast.AsyncWith) -> bool:
    before = s.grad
    for item in node.items:
        value = evaluate(s, item.context_expr)
        mode = effects.mode(s, item.context_expr)
        if mode is not None:
            s.grad = mode
        entered = value
        for member in value:
            if isinstance(member, Thing):
                entered |= calls.call_method(s, member, "__enter__", [], {})
        if item.optional_vars is not None:
            assign(s, item.optional_vars, contents_of(entered))
    ended = execute(s, node.body)
    s.grad = before
    return ended


def _try(s: Scout, node: ast.Try | ast.TryStar) -> bool:
    before = dict(s.scope.names)
    ended = execute(s, node.body) or execute(s, node.orelse)
    for handler in node.handlers:
        join(s.scope.names, before)
        ended = execute(s, handler.body) and ended
    return execute(s, node.finalbody) or ended


def _function(s: Scout, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    info = s.index.modules[s.scope.path].functions.get(node)
    for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
        evaluate(s, default)
    s.scope.names[node.name] = frozenset(
        {Code(node, s.scope.path, info, None, (s.scope.names, *s.scope.outer), s.scope.owner)}
    )
    return False


def _class(s: Scout, node: ast.ClassDef) -> bool:
    info = s.index.modules[s.scope.path].classes.get(node)
    s.scope.names[node.name] = frozenset({Class(info)}) if info is not None else frozenset({OPAQUE})
    return False


def _import(s: Scout, node: ast.Import | ast.ImportFrom) -> bool:
    from deinplace.analysis.imports import bindings

    for name, dotted in bindings(node, s.index.modules[s.scope.path].package):
        s.scope.names[name] = s.dotted(dotted, s.scope.path)
    return False


def _match(s: Scout, node: ast.Match) -> bool:
    raise GiveUpError


_EXPRESSIONS: dict[type[ast.expr], Callable[[Scout, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: calls.call_node,
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
_STATEMENTS: dict[type[ast.stmt], Callable[[Scout, Any], bool]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.Return: _return,
    ast.Raise: _stop,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Match: _match,
}
__all__ = ["OFF", "ON", "Looker", "evaluate", "execute", "suspicious"]
