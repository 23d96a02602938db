"""Methods of Python's lists, dictionaries and sets."""

from __future__ import annotations

import ast

from deinplace.analysis import elements
from deinplace.analysis.iteration import every
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    NONE,
    NUMBER,
    Const,
    Fields,
    Items,
    Obj,
    Other,
    Ten,
    Value,
    union,
)


def container(m: Machine, base: Obj, attr: str, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """A method of a list, tuple or dict."""
    content = m.m.peek(base.oid)
    if isinstance(content, Items):
        return _list_method(m, base, content, attr, args, node)
    assert isinstance(content, Fields)
    fields = content.fields
    pairs = [(Const(k) if not isinstance(k, tuple) else Other("unknown"), v) for k, v in fields.items()]
    if attr == "items":
        return m.sequence([m.sequence([k, v], "tuple") for k, v in pairs], "list", content.open)
    if attr == "values":
        return m.sequence([v for _, v in pairs], "list", content.open)
    if attr == "keys":
        return m.sequence([k for k, _ in pairs], "list", content.open)
    if attr in ("get", "pop", "setdefault") and args:
        default = args[1] if len(args) > 1 else NONE
        key = args[0].value if isinstance(args[0], Const) else ("key", m.term_of(args[0]))
        found = fields.get(key)
        if found is not None:
            if attr == "pop":
                m.m.drop(base.oid, key)
            return found
        if attr == "setdefault":
            m.m.put(base.oid, key, default)
        if not content.open and isinstance(args[0], Const):
            return default
        return union((*fields.values(), default)) if fields else default
    if attr == "update":
        for value in args:
            if isinstance(value, Obj) and value.what == "dict":
                for key, item in m.fields_of(value).fields.items():
                    m.m.put(base.oid, key, item)
            else:
                m.escape(value, "was put into a dict")
        for key, item in keywords.items():
            m.m.put(base.oid, key, item)
        return NONE
    if attr == "copy":
        return m.record(dict(fields), "dict", content.open)
    if attr == "clear":
        m.m.cells[base.oid] = Fields({})
        return NONE
    if attr not in _ASKS:
        for value in (base, *args):
            m.escape(value, f"has .{attr}() called")
    return Other("unknown")


_ASKS = frozenset({"index", "count", "__len__", "__contains__"})
"""Methods of lists that change nothing."""
_METHODS = {"list": frozenset(dir(list)), "tuple": frozenset(dir(tuple))}


def _list_method(m: Machine, base: Obj, content: Items, attr: str, args: list[Value], node: ast.AST) -> Value:
    if attr == "append" and args:
        elements.extend(m, base, [args[0]], False)
        return NONE
    if attr == "extend" and args:
        elements.extend(m, base, *every(m, args[0], node))
        return NONE
    if attr == "insert" and len(args) > 1:
        items = list(content.items)
        at = args[0].value if isinstance(args[0], Const) and isinstance(args[0].value, int) else len(items)
        items.insert(at, args[1])
        m.m.cells[base.oid] = Items(tuple(items), content.open)
        return NONE
    if attr == "pop":
        if not content.items:
            return Other("unknown")
        if content.open or (args and not isinstance(args[0], Const)):
            any_one = union(content.items)
            m.m.cells[base.oid] = Items((any_one,) * len(content.items), True)
            return any_one
        at = args[0].value if args and isinstance(args[0], Const) and isinstance(args[0].value, int) else -1
        at = at if -len(content.items) <= at < len(content.items) else -1
        items = list(content.items)
        value = items.pop(at)
        m.m.cells[base.oid] = Items(tuple(items), content.open)
        return value
    if attr == "copy":
        return m.sequence(content.items, base.what, content.open)
    if attr == "clear":
        m.m.cells[base.oid] = Items(())
        return NONE
    if attr == "reverse" and not content.open:
        m.m.cells[base.oid] = Items(content.items[::-1], content.open)
    elif attr not in _ASKS:  # `sort`, `remove`, `rotate`, `appendleft`: what lies where is not known any more
        for value in args:
            m.escape(value, "was put into a list")
        any_one = union(content.items) if content.items else Other("unknown")
        m.m.cells[base.oid] = Items((any_one,) * len(content.items), True)
        if attr.startswith("pop"):
            return any_one
    if base.what in ("list", "tuple") and attr not in _METHODS[base.what]:
        m.observe("raises", m.terms.make("no attribute", attr))
    return NUMBER


def copy(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`copy.copy(x)`: another container of the same items; what else has a copy of its own is not known."""
    value = args[0] if args else NONE
    if isinstance(value, Obj):
        made = m.new_id()
        content = m.m.peek(value.oid)
        if content is not None:
            m.m.make(made, content)
        return Obj(made, value.what)
    return value


def deepcopy(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`copy.deepcopy(x)`."""
    return deep(m, args[0] if args else NONE, {})


def deep(m: Machine, value: Value, done: dict[int, int]) -> Value:
    """A copy that shares nothing."""
    if isinstance(value, Ten):
        made = m.new_id() if value.sids[0] not in done else done[value.sids[0]]
        done[value.sids[0]] = made
        m.m.cells[made] = m.storage(value.sids[0])
        return Ten((made,), True, value.view, value.cut, value.path)
    if isinstance(value, Obj):
        if value.oid in done:
            return Obj(done[value.oid], value.what)
        made = done[value.oid] = m.new_id()
        content = m.m.peek(value.oid)
        if isinstance(content, Items):
            m.m.cells[made] = Items(tuple(deep(m, v, done) for v in content.items), content.open)
        elif isinstance(content, Fields):
            m.m.cells[made] = content
            m.m.cells[made] = Fields(
                {k: deep(m, v, done) for k, v in content.fields.items()}, content.open, content.tag
            )
        return Obj(made, value.what)
    return value
