"""What an expression evaluates to, in an abstract run."""

from __future__ import annotations

import ast
from collections.abc import Callable

from deinplace.analysis import attributes, calls, elements, ops
from deinplace.analysis.iteration import iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.names import lookup
from deinplace.analysis.operators import binary, compare, truth
from deinplace.analysis.records import ExhaustedError
from deinplace.analysis.source import names_in
from deinplace.analysis.values import (
    NONE,
    NUMBER,
    STRING,
    Const,
    Fields,
    Lam,
    Obj,
    Other,
    Ten,
    Value,
    union,
)


def evaluate(m: Machine, node: ast.expr) -> Value:
    """The value of an expression; its effects are on `m`."""
    m.steps -= 1  # as `m.step()` does; nothing is called more often
    if m.steps < 0:
        raise ExhaustedError
    handler = _HANDLERS.get(type(node))
    return handler(m, node) if handler is not None else Other("unknown")


def _constant(m: Machine, node: ast.Constant) -> Value:
    return Const(node.value)


def _name(m: Machine, node: ast.Name) -> Value:
    return lookup(m, node.id)


def _attribute(m: Machine, node: ast.Attribute) -> Value:
    return attributes.get(m, evaluate(m, node.value), node.attr, node)


def _call(m: Machine, node: ast.Call) -> Value:
    return calls.call_node(m, node)


def _tuple(m: Machine, node: ast.Tuple | ast.List) -> Value:
    items: list[Value] = []
    opened = False
    for element in node.elts:
        if isinstance(element, ast.Starred):
            more, more_open = iterate(m, evaluate(m, element.value), element)
            items += more
            opened |= more_open
        else:
            items.append(evaluate(m, element))
    return m.sequence(items, "tuple" if isinstance(node, ast.Tuple) else "list", opened)


def _set(m: Machine, node: ast.Set) -> Value:
    for element in node.elts:
        m.escape(evaluate(m, element), "is an element of a set")
    return Other("set")


def _dict(m: Machine, node: ast.Dict) -> Value:
    fields: dict[object, Value] = {}
    opened = False
    for key, item in zip(node.keys, node.values, strict=True):
        value = evaluate(m, item)
        if key is None:
            if isinstance(value, Obj) and value.what == "dict":
                inner = m.fields_of(value)
                fields.update(inner.fields)
                opened |= inner.open
            else:
                opened = True
            continue
        name = evaluate(m, key)
        if isinstance(name, Const):
            fields[name.value] = value
        else:
            m.escape(name, "is a key")
            fields[("key", m.term_of(name))] = value
    return m.record(fields, "dict", opened)


def _binary(m: Machine, node: ast.BinOp) -> Value:
    left = evaluate(m, node.left)
    right = evaluate(m, node.right)
    return binary(m, node.op, left, right, node, (node.left, node.right))


def _unary(m: Machine, node: ast.UnaryOp) -> Value:
    value = evaluate(m, node.operand)
    if isinstance(node.op, ast.Not):
        known = truth(m, value)
        return Const(not known) if known is not None else Other("number", m.terms.make("not", m.term_of(value)))
    if isinstance(value, Ten):
        name = {ast.USub: "neg", ast.Invert: "bitwise_not"}.get(type(node.op))
        return value if name is None else ops.operate(m, name, {"self": value}, node, {"self": node.operand})
    if isinstance(value, Const) and isinstance(value.value, (int, float)) and isinstance(node.op, ast.USub):
        return Const(-value.value)
    if isinstance(value, Const):
        return value if isinstance(node.op, ast.UAdd) else NUMBER
    return Other("number", m.terms.make(type(node.op).__name__, m.term_of(value)))


def _boolean(m: Machine, node: ast.BoolOp) -> Value:
    found: list[Value] = []
    wanted = isinstance(node.op, ast.Or)
    for part in node.values:
        value = evaluate(m, part)
        known = truth(m, value)
        if known is wanted:
            return union((*found, value))
        if known is None:
            found.append(value)
        last = value
    return union((*found, last))


def _compare(m: Machine, node: ast.Compare) -> Value:
    left = evaluate(m, node.left)
    result: Value = NUMBER
    before = node.left
    for op, item in zip(node.ops, node.comparators, strict=True):
        right = evaluate(m, item)
        result = compare(m, op, left, right, node, (before, item))
        left, before = right, item
    return result if len(node.ops) == 1 else NUMBER


def _conditional(m: Machine, node: ast.IfExp) -> Value:
    known = truth(m, evaluate(m, node.test))
    if known is not None:
        return evaluate(m, node.body if known else node.orelse)
    start = m.m.fork()
    yes = evaluate(m, node.body)
    after_yes, m.mem = m.mem, start
    no = evaluate(m, node.orelse)
    condition = m.terms.make("condition", m.serial())
    m.mem = m.merge_at(after_yes, m.mem, condition)
    return union((yes, no), condition)


def _subscript(m: Machine, node: ast.Subscript) -> Value:
    base = evaluate(m, node.value)
    index = evaluate(m, node.slice)
    return elements.item(m, base, index, node)


def _slice(m: Machine, node: ast.Slice) -> Value:
    parts = [
        m.term_of(evaluate(m, p)) if p is not None else m.term_of(NONE) for p in (node.lower, node.upper, node.step)
    ]
    return Other("slice", m.terms.make("slice", *parts))


def _lambda(m: Machine, node: ast.Lambda) -> Value:
    for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
        m.escape(evaluate(m, default), "is a lambda's default")
    return Lam(node, m.frame.module.path, (m.frame.fid, *m.frame.closure))


def _joined(m: Machine, node: ast.JoinedStr) -> Value:
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            value = evaluate(m, part.value)
            if isinstance(value, Ten):
                m.observe("format", m.term_of(value), m.graph_of(value))
    return STRING


def _named(m: Machine, node: ast.NamedExpr) -> Value:
    value = evaluate(m, node.value)
    m.m.put(m.frame.fid, node.target.id, value)
    return value


def _await(m: Machine, node: ast.Await) -> Value:
    value = evaluate(m, node.value)
    m.observe("await")
    m.notes.add("await")
    return value


def _yield(m: Machine, node: ast.Yield) -> Value:
    if node.value is not None:
        value = evaluate(m, node.value)
        m.frame.yields.append(value)
        m.observe("yield", m.term_of(value), m.graphs_of(value))
        m.escape(value, "was yielded")
    return Other("unknown")


def _yield_from(m: Machine, node: ast.YieldFrom) -> Value:
    m.frame.yields += iterate(m, evaluate(m, node.value), node)[0]
    return Other("unknown")


def _comprehension(m: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    from deinplace.analysis.binding import assign
    from deinplace.analysis.builtin import kept_for_later
    from deinplace.analysis.flow import taken_along

    if isinstance(node, ast.GeneratorExp) and kept_for_later(m, node):
        taken_along(m, names_in([node]), "is read by a generator later")
    out: list[tuple[Value, Value]] = []
    opened = False
    saved = dict(m.m.fields(m.frame.fid).fields)

    def run(depth: int) -> None:
        nonlocal opened
        if depth == len(node.generators):
            if isinstance(node, ast.DictComp):
                out.append((evaluate(m, node.key), evaluate(m, node.value)))
            else:
                out.append((NONE, evaluate(m, node.elt)))
            return
        generator = node.generators[depth]
        values, more = iterate(m, evaluate(m, generator.iter), generator.iter)
        opened |= more
        for value in values:
            assign(m, generator.target, value)
            known = [truth(m, evaluate(m, test)) for test in generator.ifs]
            if False in known:
                continue
            opened |= None in known
            run(depth + 1)

    run(0)
    if m.mem is not None:
        frame = m.m.fields(m.frame.fid)
        bound = names_in(g.target for g in node.generators)
        kept = {k: v for k, v in frame.fields.items() if k not in bound}
        kept.update({str(k): v for k, v in saved.items() if k in bound})
        m.m.cells[m.frame.fid] = Fields(kept, frame.open, frame.tag)
    if isinstance(node, ast.DictComp):
        return m.record({k.value if isinstance(k, Const) else ("key", m.term_of(k)): v for k, v in out}, "dict", opened)
    if isinstance(node, ast.SetComp):
        for _, value in out:
            m.escape(value, "is an element of a set")
        return Other("set")
    return m.sequence([v for _, v in out], "list", opened)


def _starred(m: Machine, node: ast.Starred) -> Value:
    return evaluate(m, node.value)


_HANDLERS: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Set: _set,
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
    ast.Await: _await,
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.Starred: _starred,
}
