"""The quick look itself: statements."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from deinplace.analysis.index import FunctionInfo
from deinplace.analysis.scout import alone, attributes, calls, effects, expressions
from deinplace.analysis.scout.members import (
    FRACTION,
    NOTHING,
    OPAQUE,
    Box,
    Code,
    Scope,
    Thing,
    Value,
    cells_of,
)
from deinplace.analysis.scout.state import DEPTH, GiveUpError, Scout
from deinplace.analysis.values import Cls, Const


class Looker(Scout):
    """A scout that can evaluate."""

    def bound_at_top(self, path: str, node: ast.stmt, name: str) -> Value:
        """What a statement at the top level of a file binds a name to."""
        value = getattr(node, "value", None)
        if value is None:
            return NOTHING
        kept, self.scope = self.scope, Scope(path, {})
        grad, self.grad, hot = self.grad, True, set(self.hot)
        shallow, self.shallow = self.shallow, False
        self.depth += 1
        found = expressions.evaluate(self, value) if self.depth < DEPTH else frozenset({OPAQUE})
        self.depth -= 1
        self.scope, self.grad, self.hot, self.shallow = kept, grad, hot, shallow
        plain = isinstance(node, ast.AnnAssign) or all(isinstance(t, ast.Name) for t in getattr(node, "targets", ()))
        return found if plain else frozenset(m for v in expressions.items(self, found, 0) for m in v) | found


def suspicious(scout: Looker, info: FunctionInfo) -> set[ast.AST] | None:
    """Functions in whose code a function's own run may show a fault: the machine has to look. None: it may be anywhere.

    Once the function itself is among them, no others are looked for.
    """
    for shallow in (False, True) if scout.index.large else (False,):
        scout.shallow, scout.inference = shallow, False
        scout.steps, scout.hot, scout.grad, scout.depth = scout.most, set(), True, 0
        scout.saved, scout.written, scout.running, scout.read = set(), set(), [], set()
        try:
            alone.alone(scout, info)
        except (GiveUpError, RecursionError):
            continue
        return scout.hot
    return None


def execute(s: Scout, body: list[ast.stmt]) -> bool:
    """Look at statements; true where no path gets past them."""
    for node in body:
        s.steps -= 1
        if s.steps < 0:
            raise GiveUpError
        handler = _STATEMENTS.get(type(node))
        if handler is not None and handler(s, node):
            return True
        if not s.depth and s.here in s.hot:
            return True
    return False


def assign(s: Scout, target: ast.expr, value: Value) -> None:
    """Bind a target."""
    if isinstance(target, ast.Name):
        s.scope.names[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        star = any(isinstance(t, ast.Starred) for t in target.elts)
        found = expressions.items(s, value, len(target.elts) if not star else 0)
        whole = frozenset().union(*found)
        for n, part in enumerate(target.elts):
            inner = part.value if isinstance(part, ast.Starred) else part
            assign(s, inner, whole if star or n >= len(found) else found[n])
    elif isinstance(target, ast.Attribute):
        attributes.set_attribute(s, expressions.evaluate(s, target.value), target.attr, value)
    elif isinstance(target, ast.Subscript):
        _set_item(s, target, value)


def _set_item(s: Scout, target: ast.Subscript, value: Value) -> None:
    base = expressions.evaluate(s, target.value)
    index = expressions.evaluate(s, target.slice)
    named = isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
    for member in base:
        if isinstance(member, Box):
            if isinstance(target.slice, ast.Constant):
                member.named[target.slice.value] = value | member.named.get(target.slice.value, NOTHING)
            else:
                member.rest |= value
        elif isinstance(member, Thing):
            calls.call_method(s, member, "__setitem__", [index, value], {})
    if int in map(type, base) and not named:
        effects.write(s, base, "copy", [value])


def _assign(s: Scout, node: ast.Assign) -> bool:
    value = expressions.evaluate(s, node.value)
    for target in node.targets:
        assign(s, target, value)
    return False


def _annotated(s: Scout, node: ast.AnnAssign) -> bool:
    if node.value is not None:
        value = expressions.evaluate(s, node.value)
        s.likely |= cells_of(value, 0)
        assign(s, node.target, value)
    return False


def _augmented(s: Scout, node: ast.AugAssign) -> bool:
    target = node.target
    old = expressions.evaluate(s, target)
    right = expressions.evaluate(s, node.value)
    op = expressions.OPERATORS[type(node.op)]
    if isinstance(node.op, ast.MatMult):
        assign(s, target, expressions.binary(s, op, old, right))
        return False
    for member in old:
        if isinstance(member, Box):
            member.rest |= expressions.contents_of(right)
        elif isinstance(member, Thing):
            calls.call_method(s, member, f"__i{type(node.op).__name__.lower()[:3]}__", [right], {})
    if int in map(type, old):
        effects.in_place(s, op, old, [("other", right)], None, partial=isinstance(target, ast.Subscript))
    elif int in map(type, right):
        assign(s, target, expressions.binary(s, op, old, right) | old)
    elif FRACTION in right and isinstance(target, ast.Name):
        assign(s, target, old | {FRACTION})
    return False


def _expression(s: Scout, node: ast.Expr) -> bool:
    s.discarded = node.value
    expressions.evaluate(s, node.value)
    return False


def _return(s: Scout, node: ast.Return) -> bool:
    s.scope.results.append(expressions.evaluate(s, node.value) if node.value is not None else frozenset({Const(None)}))
    return True


def _stop(s: Scout, node: ast.stmt) -> bool:
    return isinstance(node, ast.Raise)


def _if(s: Scout, node: ast.If) -> bool:
    test = expressions.evaluate(s, node.test)
    known = expressions.truth(test)
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
    over = expressions.items(s, expressions.evaluate(s, node.iter), 0)
    _twice(s, node, frozenset().union(*over))
    execute(s, node.orelse)
    return False


def _while(s: Scout, node: ast.While) -> bool:
    expressions.evaluate(s, node.test)
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
    before = s.grad, s.inference
    for item in node.items:
        value = expressions.evaluate(s, item.context_expr)
        effects.switch(s, item.context_expr)
        entered = value
        for member in value:
            if isinstance(member, Thing):
                entered |= calls.call_method(s, member, "__enter__", [], {})
        if item.optional_vars is not None:
            assign(s, item.optional_vars, expressions.contents_of(entered))
    ended = execute(s, node.body)
    s.grad, s.inference = before
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
        expressions.evaluate(s, default)
    s.scope.names[node.name] = frozenset(
        {Code(node, s.scope.path, info, None, (s.scope.names, *s.scope.outer), s.scope.owner)}
    )
    return False


def _class(s: Scout, node: ast.ClassDef) -> bool:
    info = s.index.modules[s.scope.path].classes.get(node)
    s.scope.names[node.name] = frozenset({Cls(info)}) if info is not None else frozenset({OPAQUE})
    return False


def _import(s: Scout, node: ast.Import | ast.ImportFrom) -> bool:
    from deinplace.analysis.imports import bindings

    for name, dotted in bindings(node, s.index.modules[s.scope.path].package):
        s.scope.names[name] = s.dotted(dotted, s.scope.path)
    return False


def _match(s: Scout, node: ast.Match) -> bool:
    raise GiveUpError


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
