"""Python's own functions and containers."""

from __future__ import annotations

import ast
from collections.abc import Callable

from deinplace.analysis import reflection
from deinplace.analysis.containers import copy, deepcopy
from deinplace.analysis.iteration import LIMIT, every, iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    NONE,
    STRING,
    Const,
    Fields,
    Fn,
    Items,
    Lam,
    Obj,
    Other,
    Ten,
    Value,
    union,
)

_NUMBERS = ("len", "abs", "round", "min", "max", "hash", "id", "ord", "divmod", "float", "int", "bool", "complex",
            "pow", "any", "all", "callable", "hasattr", "issubclass")  # fmt: skip


def function(m: Machine, name: str, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value | None:
    """A builtin function; None where `name` is none that is understood."""
    if name in ("map", "filter") and kept_for_later(m, node):
        for value in args:
            m.escape(value, f"is read by {name}() later")
    for value in keywords.values():
        if isinstance(value, (Fn, Lam)):
            m.escape(value, f"is called by {name}()")
    handler = _FUNCTIONS.get(name) or reflection.FUNCTIONS.get(name)
    if handler is not None:
        return handler(m, args, keywords, node)
    if name == "isinstance" and len(args) == 2:
        return reflection.is_instance(m, args[0], args[1])
    if name in ("len", "float", "int", "bool", "round", "abs", "id", "ord", "hash"):
        return _number(m, name, args)
    if name in _NUMBERS:
        return Other("number", m.terms.make(name, *(m.term_of(a) for a in args)))
    if name == "type" and len(args) > 1:
        for value in args:
            m.escape(value, "is held by a class")
        return Other("unknown")
    if name in ("str", "repr", "format", "chr", "type"):
        for value in args:
            m.observe(name, m.term_of(value))
        return STRING
    if name.startswith(
        ("math.", "operator.", "os.", "time.", "sys.", "re.", "json.", "random.", "argparse.", "pathlib.")
    ):
        for value in args:
            m.escape(value, f"was given to {name}")
        if name.startswith("operator."):  # of which some write
            m.observe("call", name, *(m.term_of(a) for a in args))
        return Other(
            "number" if name.startswith(("math.", "random.", "time.")) else "unknown",
            m.terms.make(name, *(m.term_of(a) for a in args)),
        )
    if name.startswith(("numpy.", "np.", "pandas.")):
        for value in args:
            m.escape(value, f"was given to {name}")
            m.observe("call", name, m.term_of(value))
        return Other("ndarray" if name.startswith(("numpy", "np")) else "frame")
    return None


def kept_for_later(m: Machine, node: ast.AST) -> bool:
    """True for what yields its items when asked for them, where nobody asks at once."""
    if m.hasty:
        return False
    parent = m.frame.module.source.parents.get(node)
    return not isinstance(parent, (ast.Call, ast.Starred, ast.For, ast.comprehension, ast.keyword))


def _number(m: Machine, name: str, args: list[Value]) -> Value:
    first = args[0] if args else Const(0)
    if name == "len" and isinstance(first, Obj):
        content = m.m.peek(first.oid)
        if isinstance(content, Items) and not content.open:
            return Const(len(content.items))
        if isinstance(content, Fields) and first.what == "dict" and not content.open:
            return Const(len(content.fields))
    if isinstance(first, Const) and name in ("int", "float", "bool", "abs") and isinstance(first.value, (int, float)):
        return Const({"int": int, "float": float, "bool": bool, "abs": abs}[name](first.value))  # type: ignore[operator]
    if name in ("abs", "round") and isinstance(first, Ten):
        from deinplace.analysis import ops

        result = ops.operate(m, name, {"self": first}, m.frame.node or ast.Pass(), {})
        if isinstance(result, Ten) and m.kind(first) != "tensor":  # these take numbers, too
            for sid in result.sids:
                m.update(sid, kind=m.kind(first))
        return result
    if name == "id":
        m.escape(first, "has its id() taken")
    return Other("number", m.terms.make(name, *(m.term_of(a) for a in args)))


def _range(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    known = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, int)]
    if len(known) == len(args) and known:
        try:
            values = range(*known)
        except (ValueError, TypeError):
            return m.sequence([], "list", True)
        return m.sequence([Const(v) for v in values[:LIMIT]], "list", len(values) > LIMIT)
    start = args[0].value if len(args) > 1 and isinstance(args[0], Const) else 0 if len(args) == 1 else None
    if isinstance(start, int):
        return m.sequence([Const(start), Const(start + 1)], "list", True)
    terms = [m.terms.make("range", n, *(m.term_of(a) for a in args)) for n in range(2)]
    return m.sequence([Other("number", t) for t in terms], "list", True)


def _enumerate(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    values, opened = iterate(m, args[0], node) if args else ([], True)
    start = args[1] if len(args) > 1 else keywords.get("start", Const(0))
    first = start.value if isinstance(start, Const) and isinstance(start.value, int) else 0
    return m.sequence([m.sequence([Const(first + n), v], "tuple") for n, v in enumerate(values)], "list", opened)


def _zip(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    columns = [iterate(m, a, node) for a in args]
    closed = [len(c) for c, opened in columns if not opened]
    length = min(closed) if closed else max((len(c) for c, _ in columns), default=0)
    rows: list[Value] = []
    for n in range(length):
        row = [c[min(n, len(c) - 1)] if c else Other("unknown") for c, _ in columns]
        rows.append(m.sequence(row, "tuple"))
    return m.sequence(rows, "list", any(opened for _, opened in columns))


def _list(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if not args:
        return m.sequence([], "list")
    values, opened = every(m, args[0], node)
    return m.sequence(values, "list", opened)


def _next(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    values = iterate(m, args[0], node)[0] if args else []
    return union((*values[:1], *args[1:])) if values or args[1:] else Other("unknown")


def _unordered(m: Machine, args: list[Value], what: str) -> Value:
    for value in args:
        m.escape(value, "is an element of a set")
    return Other(what)


def _sorted(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """Nobody knows in which order: each item may be any of them."""
    made = _list(m, args, keywords, node)
    content = m.items_of(made) if isinstance(made, Obj) else None
    if content is None or len(content.items) < 2 or not any(isinstance(v, (Ten, Obj)) for v in content.items):
        return made
    return m.sequence([union(content.items)] * len(content.items), "list", content.open)


def _reversed(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    made = _list(m, args, keywords, node)
    content = m.items_of(made) if isinstance(made, Obj) else None
    if content is None or (content.open and content.items):
        return _sorted(m, args, keywords, node)
    return m.sequence(content.items[::-1], "list", content.open)


def _dict(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    fields: dict[object, Value] = {}
    opened = False
    if args and isinstance(args[0], Obj):
        content = m.m.peek(args[0].oid)
        if isinstance(content, Fields) and args[0].what == "dict":
            fields, opened = dict(content.fields), content.open
        else:
            for pair in iterate(m, args[0], node)[0]:
                if isinstance(pair, Obj) and pair.what == "tuple" and len(m.items_of(pair).items) == 2:
                    key, value = m.items_of(pair).items
                    fields[key.value if isinstance(key, Const) else ("key", m.term_of(key))] = value
    elif args:
        m.escape(args[0], "was given to dict()")
        opened = True
    fields.update(keywords)
    return m.record(fields, "dict", opened)


def _sum(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    from deinplace.analysis import ops

    values, _ = iterate(m, args[0], node) if args else ([], True)
    if any(isinstance(v, (Obj, Ten)) for v in args[1:]) or any(isinstance(v, Obj) for v in values) or keywords:
        for value in (*args, *keywords.values()):
            m.escape(value, "is joined by sum()")
        return Other("unknown")
    tensors = [v for v in values if isinstance(v, Ten)]
    if not tensors:
        return Other("number", m.terms.make("sum", *(m.term_of(a) for a in args)))
    out: Value = tensors[0]
    for value in tensors[1:]:
        out = ops.operate(m, "add", {"self": out, "other": value}, node, {})
    return ops.operate(m, "add", {"self": out, "other": Const(0)}, node, {}) if len(tensors) == 1 else out


def _extreme(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    values = args if len(args) > 1 else iterate(m, args[0], node)[0] if args else []
    if any(isinstance(v, Ten) for v in values):
        return union(tuple(values))
    return Other("number", m.terms.make("extreme", *(m.term_of(a) for a in args)))


def _print(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    m.observe("print", *(m.term_of(a) for a in args), *(m.graphs_of(a) for a in args))
    return NONE


_FUNCTIONS: dict[str, Callable[[Machine, list[Value], dict[str, Value], ast.AST], Value]] = {
    "range": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "list": _list,
    "tuple": lambda m, a, k, n: Obj(_list(m, a, k, n).oid, "tuple"),  # type: ignore[union-attr]
    "sorted": _sorted,
    "reversed": _reversed,
    "iter": _list,
    "next": _next,
    "dict": _dict,
    "collections.OrderedDict": _dict,
    "sum": _sum,
    "max": _extreme,
    "min": _extreme,
    "print": _print,
    "set": lambda m, a, k, n: _unordered(m, a, "set"),
    "frozenset": lambda m, a, k, n: _unordered(m, a, "set"),
    "collections.Counter": lambda m, a, k, n: _unordered(m, a, "counter"),
    "collections.deque": _list,
    "copy.copy": copy,
    "copy.deepcopy": deepcopy,
    "map": lambda m, a, k, n: (
        m.sequence([m.call(a[0], [v], {}, n) for v in iterate(m, a[1], n)[0]], "list", True)
        if len(a) == 2
        else Other("unknown")
    ),
}
