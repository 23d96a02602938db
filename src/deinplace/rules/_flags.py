"""Where an `inplace` flag stands: at the call, in a default, a dict, an assignment; and results that were discarded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from deinplace.analysis.source import Function, Source
from deinplace.catalog import load
from deinplace.model import Edit
from deinplace.rewrite.expression import flat, path_of, replace, same
from deinplace.rules import _names

FLAG = "inplace"


@dataclass(frozen=True)
class Flag:
    """One place that says that an operation works in place, and how it would say that it does not."""

    node: ast.AST
    edit: Edit
    where: str


def is_true(node: ast.AST | None) -> bool:
    """True for the literal `True`."""
    return isinstance(node, ast.Constant) and node.value is True


def position(source: Source, call: ast.Call) -> int | None:
    """Where `inplace` stands among the positional arguments of a torch module or function; None for other callees."""
    name = _names.dotted(call.func, _names.imports(source)) or ""
    for entry in (load().module(name), load().function(name)):
        if entry is not None and entry.inplace is not None:
            found = entry.inplace.position
            return found if isinstance(found, int) else None
    return None


def argument(source: Source, call: ast.Call, lenient: bool = False) -> ast.expr | None:
    """The value of a call's `inplace` argument. `lenient` asks for no proof that the callee is torch's."""
    for keyword in call.keywords:
        if keyword.arg == FLAG and (lenient or position(source, call) is not None):
            return keyword.value
    at = position(source, call)
    if at is None or at >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
        return None
    return call.args[at]


def flags(source: Source, call: ast.Call) -> Iterator[Flag]:
    """Every place near a call that sets its `inplace` flag, the narrowest first where it costs the least."""
    value = argument(source, call, lenient=True)
    if is_true(value) and value is not None:
        yield Flag(value, replace(source, value, "False"), f"on line {value.lineno}")
    elif value is not None:
        yield from _from_variable(source, call, value)
        yield Flag(value, replace(source, value, "False"), f"on line {value.lineno}")
    else:
        for keyword in call.keywords:
            if keyword.arg is None:
                yield from _from_dict(source, keyword.value)
        if not call.args and not call.keywords:
            return
        yield from _positional_guess(source, call)


def _positional_guess(source: Source, call: ast.Call) -> Iterator[Flag]:
    """A run has shown that this call makes something in place, and just one of its arguments is a bare `True`."""
    found = [a for a in call.args if is_true(a)]
    if len(found) == 1 and position(source, call) is None and not any(k.arg == FLAG for k in call.keywords):
        yield Flag(found[0], replace(source, found[0], "False"), f"on line {found[0].lineno}")


def _from_variable(source: Source, call: ast.Call, value: ast.expr) -> Iterator[Flag]:
    """A name that holds the flag: a parameter's default, or an assignment in the function or the module."""
    if isinstance(value, ast.Attribute):
        for node in source.nodes:
            if isinstance(node, ast.Assign) and any(same(t, value) for t in node.targets):
                yield from _assigned(source, node.value, value)
        return
    if not isinstance(value, ast.Name):
        return
    function = _names.function_of(source, call)
    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        default = default_of(function, value.id)
        if default is not None:
            if is_true(default) and only_feeds_flags(source, function, value.id):
                yield Flag(default, replace(source, default, "False"), f"in the default of `{value.id}`")
            return
    for scope in (function, source.tree):
        for node in _names.own_nodes(scope):
            if isinstance(node, ast.Assign) and any(same(t, value) for t in node.targets) and is_true(node.value):
                yield Flag(node.value, replace(source, node.value, "False"), f"in `{value.id}`")
                return


def _assigned(source: Source, value: ast.expr, attribute: ast.Attribute) -> Iterator[Flag]:
    text = source.segment(attribute)
    if is_true(value):
        yield Flag(value, replace(source, value, "False"), f"in `{text}`")
    elif isinstance(value, ast.Name):
        function = _names.function_of(source, value)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            default = default_of(function, value.id)
            if is_true(default) and default is not None:
                yield Flag(default, replace(source, default, "False"), f"in the default of `{value.id}`")


def default_of(function: Function, name: str) -> ast.expr | None:
    """A parameter's default."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next((default for argument, default in pairs if argument.arg == name), None)


def only_feeds_flags(source: Source, function: Function, name: str) -> bool:
    """True where a parameter is read for nothing but `inplace` arguments."""
    reads = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
    for read in reads:
        parent = source.parents.get(read)
        keyword = isinstance(parent, ast.keyword) and parent.arg == FLAG
        positional = isinstance(parent, ast.Call) and argument(source, parent) is read
        if not keyword and not positional:
            return False
    return bool(reads)


def _from_dict(source: Source, value: ast.expr) -> Iterator[Flag]:
    """`**{"inplace": True}`, `**dict(inplace=True)`, or a name that is bound to one of these."""
    if isinstance(value, ast.Name | ast.Attribute):
        for node in source.nodes:
            if isinstance(node, ast.Assign) and any(same(t, value) for t in node.targets):
                yield from _from_dict(source, node.value)
        yield from _stored(source, value)
        return
    if isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == FLAG and is_true(item):
                yield Flag(item, replace(source, item, "False"), f"in the dict on line {item.lineno}")
            elif key is None:
                yield from _from_dict(source, item)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        for keyword in value.keywords:
            if keyword.arg == FLAG and is_true(keyword.value):
                yield Flag(keyword.value, replace(source, keyword.value, "False"), f"on line {keyword.value.lineno}")
    elif isinstance(value, ast.BoolOp | ast.IfExp):
        for child in ast.iter_child_nodes(value):
            if isinstance(child, ast.expr):
                yield from _from_dict(source, child)
    elif isinstance(value, ast.Subscript):
        yield from _from_dict(source, value.value)


def _stored(source: Source, owner: ast.expr) -> Iterator[Flag]:
    """`options["inplace"] = True`."""
    for node in source.nodes:
        if not (isinstance(node, ast.Assign) and is_true(node.value)):
            continue
        for target in node.targets:
            if not isinstance(target, ast.Subscript) or not same(target.value, owner):
                continue
            if isinstance(target.slice, ast.Constant) and target.slice.value == FLAG:
                yield Flag(node.value, replace(source, node.value, "False"), f"on line {node.lineno}")


def holder(source: Source, call: ast.Call) -> ast.expr | None:
    """The name or attribute that the module made by `call`, or a container around it, is bound to."""
    statement = source.statement(call)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target if path_of(target) else None
    return None


def discarded(source: Source, call: ast.Call) -> list[Edit]:
    """Edits that bind the results of bare calls of the module that `call` makes: they worked only in place."""
    owner = holder(source, call)
    if owner is None:
        return []
    scope = _scope_of(source, call, owner)
    return [e for n in ast.walk(scope) if isinstance(n, ast.Expr) for e in bind_result(source, n, owner)]


def _scope_of(source: Source, call: ast.Call, owner: ast.expr) -> ast.AST:
    if isinstance(owner, ast.Attribute):
        for parent in source.ancestors(call):
            if isinstance(parent, ast.ClassDef):
                return parent
    return _names.function_of(source, call)


def bind_result(source: Source, statement: ast.Expr, callee: ast.expr | None = None) -> list[Edit]:
    """`self.act(x)` as a statement becomes `x = self.act(x)`."""
    call = statement.value
    if not isinstance(call, ast.Call) or (callee is not None and not same(call.func, callee)):
        return []
    first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "input"), None)
    if isinstance(first, ast.Call) and path_of(first.func):
        inner = first.args[0] if first.args else None
        first = inner if inner is not None and callee is not None and same(first.func, callee) else first
    if first is None or not path_of(first):
        return []
    start = source.bounds(statement)[0]
    return [Edit(source.path, start, start, f"{flat(source, first)} = ")]
