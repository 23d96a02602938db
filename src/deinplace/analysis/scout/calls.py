"""What calls do in a quick look: those into the project by summaries, those into the unknown nothing."""

from __future__ import annotations

import ast
import re

from deinplace.analysis import facts
from deinplace.analysis.context import special
from deinplace.analysis.index import ClassInfo, FunctionInfo
from deinplace.analysis.modules import CONTAINERS, MODULE_METHODS
from deinplace.analysis.scout import effects, outside, walk
from deinplace.analysis.scout.state import (
    CUT,
    EXPANDED,
    FRACTION,
    MULTI,
    NOTHING,
    OPAQUE,
    WHOLE,
    Box,
    Class,
    Code,
    File,
    GiveUpError,
    Known,
    Layer,
    Member,
    Name,
    Parent,
    Partial,
    Scope,
    Scout,
    Summary,
    Thing,
    Value,
    cells_of,
    contents,
)

DEPTH = 14
_HOLDS = re.compile(
    r"(?:\w+\.)?(?:Optional\[)?(?:\w+\.)?(?:List|list|Sequence|Iterable|Tuple|tuple|Dict|dict|Mapping)\["
)
"""Annotations of containers."""
_MARKS = (MULTI, EXPANDED, WHOLE, FRACTION, CUT)
_NUMBERS = ("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "is_cuda", "itemsize", "names")
Keywords = dict[str, Value]


def call_node(s: Scout, node: ast.Call) -> Value:
    """A call expression."""
    args: list[Value] = []
    func = node.func
    base: Value | None = None
    if isinstance(func, ast.Attribute):
        base = walk.evaluate(s, func.value)
    elif isinstance(func, ast.Name) and func.id == "super" and s.scope.owner is not None:
        return frozenset({Parent(s.scope.owner, s.scope.me)})
    called = walk.evaluate(s, func) if base is None else NOTHING
    for arg in node.args:
        value = walk.evaluate(s, arg)
        if isinstance(arg, ast.Starred):
            args += walk.items(s, value, 0)
        else:
            args.append(value)
    keywords: Keywords = {}
    for keyword in node.keywords:
        value = walk.evaluate(s, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        for member in value if keyword.arg is None else ():
            if isinstance(member, Box):
                keywords.update({str(k): v for k, v in member.named.items()})
    if base is not None and isinstance(func, ast.Attribute):
        return of_attribute(s, base, func.attr, args, keywords)
    return call(s, called, args, keywords)


def of_attribute(s: Scout, base: Value, attr: str, args: list[Value], keywords: Keywords) -> Value:
    """`base.attr(...)`: each of the things that the base may be stands for a path of its own."""
    plain = frozenset(m for m in base if isinstance(m, int | str))
    before, after = s.saved, set(s.saved)
    out: Value = NOTHING
    if any(isinstance(m, int) for m in plain):
        s.saved = set(before)
        out |= outside.tensor_method(s, plain, attr, args, keywords)
        after |= s.saved
    for member in base:
        if isinstance(member, int | str | Known) and member is not OPAQUE:
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
    if isinstance(member, Class) and attr == "apply" and s.method(member.info, "forward") is not None:
        return _custom(s, member, args, keywords)
    return call(s, attribute(s, frozenset({member}), attr), args, keywords)


def _custom(s: Scout, member: Class, args: list[Value], keywords: Keywords) -> Value:
    """`Function.apply`: its forward runs without gradients, its results require them."""
    forward = s.method(member.info, "forward")
    assert forward is not None
    grad, s.grad = s.grad, False
    out = call_code(s, Code(forward.node, forward.path, forward, NOTHING), args, keywords)
    s.grad = grad
    s.constant -= cells_of(out)
    return out


def _of_thing(s: Scout, thing: Thing, attr: str, args: list[Value], keywords: Keywords) -> Value:
    method = s.method(thing.info, attr)
    if method is None and attr not in thing.fields and attr in MODULE_METHODS and s.is_module(thing.info):
        return outside.module_method(s, frozenset({thing}), thing.fields, attr, args)
    return call(s, attribute(s, frozenset({thing}), attr), args, keywords)


def _of_layer(s: Scout, layer: Layer, attr: str, args: list[Value], keywords: Keywords) -> Value:
    if attr in ("forward", "__call__"):
        return call(s, frozenset({layer}), args, keywords)
    if layer.children is not None and attr in ("append", "extend", "insert", "values", "items", "keys", "add_module"):
        return outside.container(s, layer.children, attr, args, keywords) | frozenset({layer})
    return outside.module_method(s, frozenset({layer}), {}, attr, args)


def attribute(s: Scout, base: Value, attr: str) -> Value:
    """`base.attr`."""
    out: set[Member] = set()
    for member in base:
        if isinstance(member, int):
            out |= _of_cell(s, member, base, attr)
        elif isinstance(member, Name):
            out.add(Name(f"{member.dotted}.{attr}"))
        elif isinstance(member, File):
            out |= s.of_file(member.path, attr)
        elif isinstance(member, Thing):
            out |= of_thing(s, member, attr)
        elif isinstance(member, Class):
            out |= _of_class(s, member, attr)
        elif isinstance(member, Parent):
            out |= _of_parent(s, member, attr)
        elif isinstance(member, Layer):
            if attr in ("weight", "bias") and facts.has_parameters(member.name):
                leaf = s.derived(member, attr)
                s.leaves.add(leaf)
                s.likely.add(leaf)
                out.add(leaf)
            elif member.children is not None:
                out |= contents(member.children)
        elif member is OPAQUE:
            out.add(OPAQUE)
    return frozenset(out)


def _of_cell(s: Scout, cell: int, base: Value, attr: str) -> Value:
    if attr in _NUMBERS:
        if attr == "shape":
            s.likely.add(cell)
        return NOTHING
    entry = facts.method(attr)
    if entry is not None and getattr(entry, "attribute", False) and attr != "grad":
        marks = {m for m in base if m in _MARKS}
        return frozenset({cell, *marks, CUT} if attr == "data" else {cell, *marks})
    return frozenset({s.derived(cell, attr)})


def of_thing(s: Scout, thing: Thing, attr: str) -> Value:
    """An attribute of an instance."""
    held = thing.fields.get(attr)
    if held is not None:
        return held
    method = s.method(thing.info, attr)
    if method is not None:
        static = special(method.node)
        bound = frozenset(
            {Code(method.node, method.path, method, None if static == "staticmethod" else frozenset({thing}))}
        )
        return call(s, bound, [], {}) if static == "property" else bound
    found = _class_field(s, thing.info, attr)
    return found if found else frozenset({s.derived(thing, attr)})


def _class_field(s: Scout, info: ClassInfo, attr: str) -> Value:
    for base in s.bases(info):
        if not isinstance(base, ClassInfo):
            continue
        for stmt in base.node.body:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
            value = getattr(stmt, "value", None)
            if value is not None and any(isinstance(t, ast.Name) and t.id == attr for t in targets):
                return s.bound_at_top(base.path, stmt, attr)
    return NOTHING


def _of_class(s: Scout, cls: Class, attr: str) -> Value:
    method = s.method(cls.info, attr)
    if method is not None:
        me = frozenset({cls}) if special(method.node) == "classmethod" else None
        return frozenset({Code(method.node, method.path, method, me)})
    return _class_field(s, cls.info, attr)


def _of_parent(s: Scout, parent: Parent, attr: str) -> Value:
    out: set[Member] = set()
    for member in parent.me:
        info = member.info if isinstance(member, Thing | Class) else None
        if info is None:
            continue
        method = s.method(info, attr, parent.after)
        if method is not None:
            out.add(Code(method.node, method.path, method, frozenset({member})))
        elif attr in MODULE_METHODS and isinstance(member, Thing):
            return NOTHING
    return frozenset(out)


def set_attribute(s: Scout, base: Value, attr: str, value: Value) -> None:
    """`base.attr = value`."""
    for member in base:
        if isinstance(member, Thing):
            known = member.fields.get(attr)
            member.fields[attr] = value if known is None else known | value
        elif isinstance(member, int) and attr in ("data", "real", "imag"):
            kept, s.grad = s.grad, s.grad and attr != "data"
            effects.write(s, frozenset({member}), "copy", [value])
            s.grad = kept


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
        elif member is OPAQUE or not isinstance(member, str | Known | Box):
            s.saved = set(before)
            out |= _call_one(s, member, args, keywords)
            after |= s.saved
    s.saved = after
    return out | outside.unknown(s, [*args, *keywords.values()]) if unknown else out


def _call_one(s: Scout, member: Member, args: list[Value], keywords: Keywords) -> Value:
    if isinstance(member, Code):
        return call_code(s, member, args, keywords)
    if isinstance(member, Name):
        return outside.reference(s, member.dotted, args, keywords)
    if isinstance(member, Layer):
        return call_layer(s, member, args, keywords)
    if isinstance(member, Class):
        return frozenset({thing(s, member.info, args, keywords)})
    if isinstance(member, Thing):
        for value in args:
            s.likely |= cells_of(value, 0)
        name = next((n for n in ("forward", "__call__") if s.method(member.info, n) is not None), "")
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
        s.hot = True
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
    method = s.method(member.info, name)
    if method is None:
        return outside.unknown(s, args) if args else NOTHING
    return call_code(s, Code(method.node, method.path, method, frozenset({member})), args, keywords)


def thing(s: Scout, info: ClassInfo, args: list[Value], keywords: Keywords) -> Member:
    """Construct one of the project's classes; the same arguments give the same instance."""
    bases = [b for b in s.bases(info) if isinstance(b, str)]
    container = next((b for b in bases if b in CONTAINERS), None)
    init = s.method(info, "__init__")
    if init is None and container is not None:
        return outside.construct(s, container, args, keywords)
    key = (info, tuple(_kind(s, v) for v in args), tuple((k, _kind(s, v)) for k, v in sorted(keywords.items())))
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


def _kind(s: Scout, value: Value) -> object:
    """What a summary depends on: all but the very cells."""
    held = set(value)
    for member in value:
        if isinstance(member, Box):
            held.discard(member)
            held |= {m for m in _inside(member) if not isinstance(m, Box)}
            held.add("box")
    cells = {m for m in held if isinstance(m, int)}
    rest = frozenset(held - cells)
    return rest, bool(cells), bool(cells & s.likely), cells <= s.constant, not cells.isdisjoint(s.leaves)


def _inside(box: Box, depth: int = 3) -> Value:
    held = contents(box)
    return held.union(*(_inside(m, depth - 1) for m in held if isinstance(m, Box))) if depth else held


def call_code(s: Scout, code: Code, args: list[Value], keywords: Keywords) -> Value:
    """Call a function of the project: by its summary."""
    if code.me is not None:
        args = [code.me, *args]
    if s.running.count(code.node) >= 2:  # as far as the machine follows
        return outside.unknown(s, [*args, *keywords.values()])
    if code.scopes or code.info is None:
        return _inline(s, code, args, keywords) if s.depth < DEPTH else anything(s, args, keywords)
    names = tuple(sorted(keywords))
    given = [*args, *(keywords[n] for n in names)]
    key = (code.info, s.grad, names, tuple(_kind(s, v) for v in given))
    if key not in s.summaries:
        if s.depth >= DEPTH:
            return anything(s, args, keywords)
        s.summaries[key] = None
        try:
            s.summaries[key] = _summary(s, code, given, names)
        except (GiveUpError, RecursionError):
            del s.summaries[key]
            raise
    found = s.summaries[key]
    if found is None:  # it calls itself
        return outside.unknown(s, given)
    return _applied(s, found, given)


def _summary(s: Scout, code: Code, given: list[Value], names: tuple[str, ...]) -> Summary:
    saved, written, hot = s.saved, s.written, s.hot
    s.saved, s.written, s.hot = set(), set(), False
    cells: list[int] = []
    values: list[Value] = []
    boxes: list[Box | None] = []
    for value in given:
        mine = cells_of(value)
        cell = 0
        if mine:
            cell = s.cell()
            for group in (s.likely, s.leaves):
                if mine & group:
                    group.add(cell)
            if mine <= s.constant:
                s.constant.add(cell)
        cells.append(cell)
        plain, box = _abstract(value, cell)
        values.append(plain)
        boxes.append(box)
    count = len(given) - len(names)
    result = _inline(s, code, values[:count], dict(zip(names, values[count:], strict=True)))
    made = Summary(tuple(cells), frozenset(s.saved), frozenset(s.written), result, s.hot, tuple(boxes))
    s.saved, s.written, s.hot = saved, written, hot
    return made


def _abstract(value: Value, cell: int) -> tuple[Value, Box | None]:
    """An argument with one cell in the place of all of its own, and its container."""
    held = [m for m in value if isinstance(m, Box)]
    out: set[Member] = {m for m in value if not isinstance(m, int | Box)}
    if len(out) + len(held) < len(value):
        out.add(cell)
    if not held:
        return frozenset(out), None
    box = Box()
    for member in held:
        inside: set[Member] = {m for m in _inside(member) if not isinstance(m, int | Box)}
        if cells_of({member}):
            inside.add(cell)
        exact = not member.rest and not member.named and len(held) == 1
        box.items = [frozenset(inside)] * len(member.items) if exact else []
        box.rest |= frozenset() if exact else frozenset(inside)
        if member.named and len(held) == 1:
            box.named = {k: _abstract(v, cell)[0] for k, v in member.named.items()}
    return frozenset({*out, box}), box


def _applied(s: Scout, made: Summary, given: list[Value]) -> Value:
    places = {cell: cells_of(v) for cell, v in zip(made.cells, given, strict=True) if cell}
    s.hot = s.hot or made.hot
    written: set[int] = set()
    for cell in made.written:
        written |= places.get(cell, {cell})
    kept: set[int] = set()
    for cell in made.saved:
        kept |= places.get(cell, {cell})
    if not written.isdisjoint(s.saved):
        s.hot = True
    if len(places) > 1 and any(
        a != b and not places[a].isdisjoint(places[b])
        for a in made.written & places.keys()
        for b in made.saved & places.keys()
    ):
        s.hot = True
    s.saved |= kept
    s.written |= written
    for cell, mine in places.items():
        if cell in s.likely:
            s.likely |= mine
    for box, value in zip(made.boxes, given, strict=True):
        if box is not None:
            more = _moved(contents(box), places, 2)
            for member in value:
                if isinstance(member, Box) and not more <= contents(member):
                    member.rest |= more
    return _moved(made.result, places, 2)


def _moved(value: Value, places: dict[int, set[int]], depth: int) -> Value:
    """A result with the cells of the arguments in place of those of the parameters."""
    out: set[Member] = set()
    for member in value:
        if isinstance(member, int) and member in places:
            out |= places[member]
        elif isinstance(member, Box) and depth:
            inner = [_moved(v, places, depth - 1) for v in member.items]
            named = {k: _moved(v, places, depth - 1) for k, v in member.named.items()}
            out.add(Box(inner, _moved(member.rest, places, depth - 1), named))
        else:
            out.add(member)
    return frozenset(out)


def _inline(s: Scout, code: Code, args: list[Value], keywords: Keywords) -> Value:
    """Look at a function's body with these arguments."""
    owner = code.info.owner if code.info is not None else code.owner
    me = args[0] if args and code.me is not None else NOTHING
    names = _bound(s, code, args, keywords)
    kept, grad = s.scope, s.grad
    if isinstance(code.node, ast.Lambda):
        me = me or kept.me
    elif code.scopes and owner is not None and code.info is not None and code.info.owner is None:
        me = kept.me
    scope = s.scope = Scope(code.path, names, code.scopes, owner or code.owner, me)
    s.depth += 1
    s.running.append(code.node)
    node = code.node
    if isinstance(node, ast.Lambda):
        result = walk.evaluate(s, node.body)
    else:
        for decorator in node.decorator_list:
            mode = effects.mode(s, decorator)
            if mode is not None:
                s.grad = mode
        walk.execute(s, node.body)
        result = _result(scope)
    s.depth -= 1
    s.running.pop()
    s.scope, s.grad = kept, grad
    return result


def _result(scope: Scope) -> Value:
    if scope.yields:
        return frozenset({Box([], frozenset().union(*scope.yields))}).union(*scope.results)
    return frozenset().union(*scope.results)


def _bound(s: Scout, code: Code, args: list[Value], keywords: Keywords) -> dict[str, Value]:
    spec = code.node.args
    plain = [*spec.posonlyargs, *spec.args]
    names: dict[str, Value] = {a.arg: v for a, v in zip(plain, args, strict=False)}
    rest = dict(keywords)
    for arg in (*plain, *spec.kwonlyargs):
        if arg.arg in rest and arg.arg not in names:
            names[arg.arg] = rest.pop(arg.arg)
    for arg, default in defaults_of(spec):
        if arg.arg not in names:
            names[arg.arg] = default_value(s, code, default)
    for arg in (*plain, *spec.kwonlyargs):
        names.setdefault(arg.arg, NOTHING)
    if spec.vararg is not None:
        names[spec.vararg.arg] = frozenset({Box(args[len(plain) :])})
    if spec.kwarg is not None:
        names[spec.kwarg.arg] = frozenset({Box([], frozenset().union(*rest.values()))})
    return names


def defaults_of(spec: ast.arguments) -> list[tuple[ast.arg, ast.expr]]:
    """Parameters and their defaults."""
    plain = [*spec.posonlyargs, *spec.args]
    pairs = list(zip(plain[::-1], spec.defaults[::-1], strict=False))
    return pairs + [(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None]


def default_value(s: Scout, code: Code, default: ast.expr) -> Value:
    """A default, evaluated where the function stands."""
    if isinstance(default, ast.Constant):
        return walk.evaluate(s, default)
    kept, s.scope = s.scope, Scope(code.path, {}, code.scopes)
    found = walk.evaluate(s, default)
    s.scope = kept
    return found


def alone(s: Scout, info: FunctionInfo) -> None:
    """A function on arguments of which only annotations and defaults are known."""
    code = Code(info.node, info.path, info)
    spec = info.node.args
    args = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    values: dict[str, Value] = {}
    special_kind = special(info.node)
    if info.owner is not None and special_kind != "staticmethod" and args:
        values[args[0].arg] = frozenset({Class(info.owner)}) if special_kind == "classmethod" else _receiver(s, info)
    values.update((a.arg, argument(s, code, info, a)) for a in args if a.arg not in values)
    me = values.get(args[0].arg, NOTHING) if args and info.owner is not None else NOTHING
    for extra in (spec.vararg, spec.kwarg):
        if extra is not None:
            values[extra.arg] = frozenset({Box([], frozenset({s.cell()}))})
    s.saved, s.written, s.hot = set(s.saved), set(), False
    s.scope = Scope(info.path, values, (), info.owner, me)
    for decorator in info.node.decorator_list:
        mode = effects.mode(s, decorator)
        if mode is not None:
            s.grad = mode
    walk.execute(s, info.node.body)


def _receiver(s: Scout, info: FunctionInfo) -> Value:
    assert info.owner is not None
    init = s.method(info.owner, "__init__")
    if init is None or info.name == "__init__":
        return frozenset({Thing(info.owner)})
    key: tuple[object, ...] = (info.owner, "alone")
    known = s.things.get(key)
    if known is None:
        known = s.things[key] = Thing(info.owner)
        code = Code(init.node, init.path, init, frozenset({known}))
        spec = init.node.args
        plain = [*spec.posonlyargs, *spec.args][1:]
        args = [argument(s, code, init, a) for a in plain]
        keywords = {a.arg: argument(s, code, init, a) for a in spec.kwonlyargs}
        try:
            _inline(s, code, [frozenset({known}), *args], keywords)
        except (GiveUpError, RecursionError):
            del s.things[key]
            raise
    return frozenset({known})


def _element(s: Scout, tensor: bool) -> int:
    made = s.cell()
    if tensor:
        s.likely.add(made)
    return made


def argument(s: Scout, code: Code, info: FunctionInfo, arg: ast.arg) -> Value:
    """An argument that nobody gave: its default where that is more than a number, else anything of its annotation."""
    default = next((d for a, d in defaults_of(info.node.args) if a is arg), None)
    text = ast.unparse(arg.annotation) if arg.annotation is not None else ""
    if text in ("int", "float", "bool", "str"):
        if isinstance(default, ast.Constant) and (text == "str" or "inplace" in arg.arg):
            return walk.evaluate(s, default)
        return NOTHING
    plain = isinstance(default, ast.Constant) and not isinstance(default.value, str)
    if default is not None and (not plain or ("inplace" in arg.arg and default.value is not None)):  # type: ignore[attr-defined]
        held = default_value(s, code, default)
        if "Tensor" not in text:
            return held
    elif plain and default.value is not None:  # type: ignore[union-attr]
        return NOTHING
    if _HOLDS.match(text):
        return frozenset({Box([], frozenset({_element(s, "Tensor" in text)}))})
    made = s.cell()
    forward = info.name in ("forward", "__call__") and info.owner is not None and s.is_module(info.owner)
    if "Tensor" in text or (forward and default is None):
        s.likely.add(made)
    return frozenset({made})
