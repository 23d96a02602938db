"""What calls do in a quick look: those into the project by summaries, those into the unknown nothing."""

from __future__ import annotations

import ast

from deinplace.analysis.index import ClassInfo
from deinplace.analysis.modules import CONTAINERS, MODULE_METHODS
from deinplace.analysis.scout import attributes, effects, expressions, outside, summaries
from deinplace.analysis.scout.members import (
    NOTHING,
    OPAQUE,
    Box,
    Code,
    Layer,
    Member,
    Parent,
    Partial,
    Thing,
    Value,
    cells_of,
)
from deinplace.analysis.scout.state import GiveUpError, Scout
from deinplace.analysis.values import Cls, Const, Ref

Keywords = dict[str, Value]


def call_node(s: Scout, node: ast.Call) -> Value:
    """A call expression."""
    args: list[Value] = []
    func = node.func
    base: Value | None = None
    if isinstance(func, ast.Attribute):
        base = expressions.evaluate(s, func.value)
    elif isinstance(func, ast.Name) and func.id == "super" and s.scope.owner is not None:
        return frozenset({Parent(s.scope.owner, s.scope.me)})
    called = expressions.evaluate(s, func) if base is None else NOTHING
    for arg in node.args:
        value = expressions.evaluate(s, arg)
        if isinstance(arg, ast.Starred):
            args += expressions.items(s, value, 0)
        else:
            args.append(value)
    keywords: Keywords = {}
    for keyword in node.keywords:
        value = expressions.evaluate(s, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        for member in value if keyword.arg is None else ():
            if isinstance(member, Box):
                keywords.update({str(k): v for k, v in member.named.items()})
    s.calling = node
    if base is not None and isinstance(func, ast.Attribute):
        return of_attribute(s, base, func.attr, args, keywords)
    return call(s, called, args, keywords)


def of_attribute(s: Scout, base: Value, attr: str, args: list[Value], keywords: Keywords) -> Value:
    """`base.attr(...)`: each of the things that the base may be stands for a path of its own."""
    plain = frozenset(m for m in base if isinstance(m, (int, str)))
    before, after = s.saved, set(s.saved)
    out: Value = NOTHING
    if int in map(type, plain):
        s.saved = set(before)
        out |= outside.tensor_method(s, plain, attr, args, keywords)
        after |= s.saved
    for member in base:
        if isinstance(member, (int, str, Const)) and member is not OPAQUE:
            continue
        s.saved = set(before)
        out |= _of_member(s, member, attr, args, keywords)
        after |= s.saved
    s.saved = after
    return out


def _of_member(s: Scout, member: Member, attr: str, args: list[Value], keywords: Keywords) -> Value:
    if member is OPAQUE:
        return anything(s, args, keywords)
    if isinstance(member, Box):
        return outside.container(s, member, attr, args, keywords)
    if isinstance(member, Thing):
        return _of_thing(s, member, attr, args, keywords)
    if isinstance(member, Layer):
        return _of_layer(s, member, attr, args, keywords)
    if isinstance(member, Cls) and attr == "apply" and s.find_method(member.info, "forward") is not None:
        return _custom(s, member, args, keywords)
    return call(s, attributes.attribute(s, frozenset({member}), attr), args, keywords)


def _custom(s: Scout, member: Cls, args: list[Value], keywords: Keywords) -> Value:
    """`Function.apply`: its forward runs without gradients, its results require them."""
    forward = s.find_method(member.info, "forward")
    assert forward is not None
    grad, s.grad = s.grad, False
    out = summaries.call_code(s, Code(forward.node, forward.path, forward, NOTHING), args, keywords)
    s.grad = grad
    s.constant -= cells_of(out)
    return out


def _of_thing(s: Scout, thing: Thing, attr: str, args: list[Value], keywords: Keywords) -> Value:
    s.read.add(attr)
    method = s.find_method(thing.info, attr)
    if method is None and attr not in thing.fields and attr in MODULE_METHODS and s.is_module(thing.info):
        return outside.module_method(s, frozenset({thing}), thing.fields, attr, args)
    return call(s, attributes.attribute(s, frozenset({thing}), attr), args, keywords)


def _of_layer(s: Scout, layer: Layer, attr: str, args: list[Value], keywords: Keywords) -> Value:
    if attr in ("forward", "__call__"):
        return call(s, frozenset({layer}), args, keywords)
    if layer.children is not None and attr in ("append", "extend", "insert", "values", "items", "keys", "add_module"):
        return outside.container(s, layer.children, attr, args, keywords) | frozenset({layer})
    return outside.module_method(s, frozenset({layer}), {}, attr, args)


def call(s: Scout, func: Value, args: list[Value], keywords: Keywords) -> Value:
    """Call any value; each of the things that it may be stands for a path of its own."""
    s.step()
    if len(func) == 1:
        (only,) = func
        return _call_one(s, only, args, keywords)
    before, after = s.saved, set(s.saved)
    out: Value = NOTHING if func else outside.unknown(s, [*args, *keywords.values()])
    unknown = False
    for member in func:
        if isinstance(member, int):
            unknown = True
        elif member is OPAQUE or not isinstance(member, (str, Const, Box)):
            s.saved = set(before)
            out |= _call_one(s, member, args, keywords)
            after |= s.saved
    s.saved = after
    return out | outside.unknown(s, [*args, *keywords.values()]) if unknown else out


def _call_one(s: Scout, member: Member, args: list[Value], keywords: Keywords) -> Value:
    if isinstance(member, Code):
        return summaries.call_code(s, member, args, keywords)
    if isinstance(member, Ref):
        return outside.reference(s, member.name, args, keywords)
    if isinstance(member, Layer):
        return call_layer(s, member, args, keywords)
    if isinstance(member, Cls):
        return frozenset({thing(s, member.info, args, keywords)})
    if isinstance(member, Thing):
        for value in args:
            s.likely |= cells_of(value, 0)
        name = next((n for n in ("forward", "__call__") if s.find_method(member.info, n) is not None), "")
        if name:
            return call_method(s, member, name, args, keywords)
    if isinstance(member, Partial):
        return call(s, member.func, [*member.args, *args], {**dict(member.keywords), **keywords})
    if member is OPAQUE:
        return anything(s, args, keywords)
    return outside.unknown(s, [*args, *keywords.values()])


def anything(s: Scout, args: list[Value], keywords: Keywords) -> Value:
    """A call of something that was not followed, though the machine may: it may save and write all that it is given."""
    cells = set().union(*(cells_of(v) for v in (*args, *keywords.values())))
    if not cells.isdisjoint(s.saved):
        s.blame()
    s.saved |= cells
    s.written |= cells
    s.likely |= cells
    made = s.cell()
    s.saved.add(made)
    s.likely.add(made)
    return frozenset({made, OPAQUE, *cells})


def call_layer(s: Scout, member: Layer, args: list[Value], keywords: Keywords) -> Value:
    """Call a module of torch's own."""
    if member.name != "torch.nn.Sequential" or member.children is None:
        return effects.layer(s, member, args, keywords)
    value = args[0] if args else NOTHING
    for child in member.children.items[:40]:
        value = call(s, child, [value], {})
    if member.children.rest:
        for _ in range(2):
            value |= call(s, member.children.rest, [value], {})
    return value


def call_method(s: Scout, member: Thing, name: str, args: list[Value], keywords: Keywords) -> Value:
    """Call a method of an instance, where it has it."""
    method = s.find_method(member.info, name)
    if method is None:
        return outside.unknown(s, args) if args else NOTHING
    return summaries.call_code(s, Code(method.node, method.path, method, frozenset({member})), args, keywords)


def thing(s: Scout, info: ClassInfo, args: list[Value], keywords: Keywords) -> Member:
    """Construct one of the project's classes; the same arguments give the same instance."""
    bases = [b for b in s.bases(info) if isinstance(b, str)]
    container = next((b for b in bases if b in CONTAINERS), None)
    init = s.find_method(info, "__init__")
    if init is None and container is not None:
        return outside.construct(s, container, args, keywords)
    named = tuple((k, summaries.kind(s, v)) for k, v in sorted(keywords.items()))
    key = (info, tuple(summaries.kind(s, v) for v in args), named)
    found = s.things.get(key)
    if found is not None:
        return found
    made = s.things[key] = Thing(info)
    if init is not None:
        try:
            call_method(s, made, "__init__", args, keywords)
        except (GiveUpError, RecursionError):
            del s.things[key]
            raise
    else:
        names = [n.target.id for n in info.node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        made.fields.update({**dict(zip(names, args, strict=False)), **keywords})
    return made
