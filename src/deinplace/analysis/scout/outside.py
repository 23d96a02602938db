"""Calls that leave the project in a quick look: methods of tensors and containers, torch, Python, the unknown."""

from __future__ import annotations

import re

from deinplace.analysis import facts
from deinplace.analysis.modules import CONTAINERS
from deinplace.analysis.scout import attributes, calls, effects, expressions
from deinplace.analysis.scout.members import (
    MULTI,
    NOTHING,
    OPAQUE,
    WHOLE,
    Box,
    Layer,
    Member,
    Partial,
    Thing,
    Value,
    cells_of,
    contents,
)
from deinplace.analysis.scout.state import Scout
from deinplace.analysis.tensors import PYTHON_METHODS
from deinplace.analysis.values import Const, Ref
from deinplace.catalog import FunctionInfo

_PLAIN = ("item", "tolist", "size", "numel", "dim", "stride")
_NOTHING = frozenset(
    {"len", "int", "float", "bool", "str", "repr", "isinstance", "hasattr", "ord", "hash", "id", "format", "print",
     "range", "callable", "issubclass", "type", "round", "any", "all", "divmod", "chr", "open", "input", "vars"}
)  # fmt: skip
_SEQUENCES = frozenset(
    {"list", "tuple", "sorted", "reversed", "iter", "zip", "enumerate", "set", "frozenset", "dict", "filter",
     "collections.OrderedDict", "collections.deque", "collections.defaultdict", "itertools.chain",
     "collections.Counter"}
)  # fmt: skip
_SAME = frozenset({"torch.compile", "torch.jit.script", "torch.nn.DataParallel", "copy.copy"})
_NUMBERS = ("math.", "numpy.", "np.", "os.", "time.", "random.", "re.", "json.", "sys.", "pandas.", "operator.",
            "argparse.", "pathlib.")  # fmt: skip
_WHOLE = re.compile(r"torch\.(?:u?int\d*|long|short|bool)$")
Keywords = dict[str, Value]


def unknown(s: Scout, given: list[Value]) -> Value:
    """A call that leads out of what is known: the machine sees no save and no write there."""
    made = s.cell()
    if any(cells_of(v, 0) & s.likely for v in given):
        s.likely.add(made)
    return frozenset({made})


def tensor_method(s: Scout, base: Value, name: str, args: list[Value], keywords: Keywords) -> Value:
    """A method of what may be a tensor."""
    entry = facts.method(name)
    cells = cells_of(base, 0)
    if entry is None or (name in PYTHON_METHODS and not cells & s.likely):
        held = base if name in PYTHON_METHODS else NOTHING
        return unknown(s, [base, *args, *keywords.values()]) | held
    s.likely |= cells
    if entry.in_place:
        return _in_place(s, base, entry, name, args, keywords)
    if entry.returns == "other" or name in _PLAIN or name == "backward":
        return NOTHING
    named = _named(entry, [base, *args])
    out = effects.operate(s, name, entry, named, keywords)
    if name in ("to", "type", "type_as") and not any(_whole(v) for v in (*args, *keywords.values())):
        out -= {WHOLE}
    return out


def _whole(value: Value) -> bool:
    """True for a dtype of whole numbers, or what may be one."""
    return any(
        isinstance(m, int) or m is OPAQUE or (isinstance(m, Ref) and _WHOLE.match(m.name) is not None) for m in value
    )


def _in_place(s: Scout, base: Value, entry: FunctionInfo, name: str, args: list[Value], keywords: Keywords) -> Value:
    if entry.effect == "autograd":
        if name == "requires_grad_" and not (args and args[0] == {Const(False)}):
            s.leaves |= cells_of(base, 0)
            s.constant -= cells_of(base, 0)
        return base
    if entry.effect == "metadata":
        return base
    op = "copy" if name == "copy_" else "zero" if name == "zero_" else facts.functional(name)
    named = _named(entry, [base, *args])[1:]
    return effects.in_place(s, op, base, [*named, *keywords.items()], entry)


def _named(entry: FunctionInfo, args: list[Value]) -> list[tuple[str, Value]]:
    count = len(entry.parameters)
    last = entry.parameters[-1] if entry.parameters else "more"
    return [(entry.parameters[n] if n < count else f"{last}#{n}", v) for n, v in enumerate(args)]


def container(s: Scout, box: Box, attr: str, args: list[Value], keywords: Keywords) -> Value:
    """A method of a list, tuple, dict or set."""
    if attr == "append" and args:
        box.items.append(args[0])
    elif attr in ("add", "insert", "setdefault", "appendleft", "add_module", "register_module") and args:
        if attr == "insert":
            box.items.insert(0, args[-1])
        else:
            box.rest |= args[-1]
    elif attr == "extend" and args:
        box.items += expressions.items(s, args[0], 0)
    elif attr == "update":
        box.named.update(keywords)
        for value in args:
            expressions.merge(box, value)
    elif attr in ("get", "pop") and args and box.named:
        return expressions.named_by(box, args[0]).union(*args[1:])
    if attr in ("append", "extend", "insert", "keys", "clear", "sort", "remove"):
        return NOTHING
    held = contents(box)
    if attr in ("items",):
        return frozenset({Box([], frozenset({Box([NOTHING, held])}))})
    if attr in ("values", "copy"):
        return frozenset({Box(list(box.items), box.rest, dict(box.named))})
    return held.union(*args[1:]) if attr in ("get", "pop", "popitem", "setdefault", "popleft") else held


def module_method(s: Scout, me: Value, fields: dict[str, Value], attr: str, args: list[Value]) -> Value:
    """A method that every module has."""
    if attr in ("parameters", "named_parameters", "buffers", "named_buffers", "state_dict"):
        leaf = s.derived(next(iter(me)), "parameters")
        s.likely.add(leaf)
        if "parameters" in attr:
            s.leaves.add(leaf)
        held: Value = frozenset({leaf, *(c for v in fields.values() for c in cells_of(v, 0))})
        pair: Value = frozenset({Box([NOTHING, held])}) if attr.startswith("named") else held
        return frozenset({Box([], pair)})
    if attr in ("modules", "named_modules", "children", "named_children"):
        found: dict[Member, None] = {}
        for member in me:
            _below(member, found)
        below = frozenset(found)
        pair = frozenset({Box([NOTHING, below])}) if attr.startswith("named") else below
        return frozenset({Box([], pair)})
    if attr in ("register_buffer", "register_parameter", "add_module", "register_module") and len(args) > 1:
        (named,) = args[0] if len(args[0]) == 1 else (None,)
        if isinstance(named, Const) and isinstance(named.value, str):
            fields[named.value] = fields.get(named.value, NOTHING) | args[1]
        return NOTHING
    if attr == "apply":
        grad, s.grad = s.grad, False
        calls.call(s, args[0] if args else NOTHING, [me], {})
        s.grad = grad
    return me


def _below(member: Member, found: dict[Member, None]) -> None:
    """A module and the modules in it."""
    if not isinstance(member, (Thing, Layer)) or member in found or len(found) > 400:
        return
    found[member] = None
    held = (
        member.fields.values() if isinstance(member, Thing) else [contents(member.children)] if member.children else ()
    )
    for value in held:
        for inner in expressions.contents_of(value) | value:
            _below(inner, found)


def reference(s: Scout, name: str, args: list[Value], keywords: Keywords) -> Value:
    """A call of something outside the project, by its dotted name."""
    given = [*args, *keywords.values()]
    if name in _NOTHING:
        return NOTHING
    if name in _SEQUENCES:
        return _sequence(s, name, args, keywords)
    if name in ("functools.partial", "partial") and args:
        return frozenset({Partial(args[0], tuple(args[1:]), tuple(keywords.items()))})
    if name in ("max", "min", "next", "abs"):
        held = expressions.contents_of(frozenset().union(*args))
        if name == "abs" and int in map(type, held):
            return effects.operate(s, "abs", None, [("self", held)], {})
        return held
    if name == "sum":
        held = expressions.contents_of(frozenset().union(*args))
        cells = int in map(type, held)
        return effects.operate(s, "add", None, [("self", held), ("other", held)], {}) if cells else NOTHING
    if name == "map" and len(args) > 1:
        return frozenset({Box([], calls.call(s, args[0], expressions.items(s, args[1], 0)[:1], {}))})
    if name in ("getattr", "setattr"):
        return _by_name(s, name, args)
    if name in _SAME:
        return args[0] if args else NOTHING
    if name == "copy.deepcopy" and args:
        fresh = frozenset({s.cell()}) if cells_of(args[0]) else NOTHING
        return frozenset(m for m in args[0] if not isinstance(m, int)) | fresh
    if name.startswith("torch."):
        return torch(s, name, args, keywords)
    if name.startswith(_NUMBERS):
        return NOTHING
    return unknown(s, given)


def _sequence(s: Scout, name: str, args: list[Value], keywords: Keywords) -> Value:
    if name in ("list", "tuple", "iter", "collections.deque") and len(args) == 1 and len(args[0]) == 1:
        (only,) = args[0]
        if isinstance(only, Box):
            return frozenset({Box(list(only.items), only.rest)})
    if name in ("dict", "collections.OrderedDict"):
        made = Box([], NOTHING, {str(k): v for k, v in keywords.items()})
        for value in args:
            expressions.merge(made, value)
        return frozenset({made})
    rows = [frozenset().union(*expressions.items(s, a, 0)) for a in args] if args else []
    if name == "zip":
        return frozenset({Box([], frozenset({Box(list(rows))}))})
    if name == "enumerate":
        return frozenset({Box([], frozenset({Box([NOTHING, rows[0] if rows else NOTHING])}))})
    return frozenset({Box([], frozenset().union(*rows, *keywords.values()))})


def _by_name(s: Scout, name: str, args: list[Value]) -> Value:
    names = [m.value for m in args[1] if isinstance(m, Const)] if len(args) > 1 else []
    if name == "setattr":
        for named in names:
            if len(args) > 2:
                attributes.set_attribute(s, args[0], str(named), args[2])
        return NOTHING
    if names:
        return frozenset().union(*(attributes.attribute(s, args[0], str(n)) for n in names), *args[2:])
    return frozenset({s.cell()})


def torch(s: Scout, name: str, args: list[Value], keywords: Keywords) -> Value:
    """A call of something in torch."""
    last = name.rpartition(".")[2]
    modular = name.startswith("torch.nn.") and last[:1].isupper()
    if last in ("Parameter", "Buffer"):
        made = s.cell()
        s.likely.add(made)
        if last == "Parameter":
            s.leaves.add(made)
        return frozenset({made})
    if facts.module(name) is not None or name in CONTAINERS or modular:
        return frozenset({construct(s, name, args, keywords)})
    if name.startswith("torch.optim."):
        return NOTHING
    if name.startswith("torch.nn.init."):
        return args[0] if args else NOTHING
    if last in ("grad",) and name.startswith("torch.autograd."):
        return frozenset({Box([], frozenset({s.cell()}))})
    entry = facts.function(name)
    if entry is None and name.startswith("torch.Tensor.") and args:
        return tensor_method(s, args[0], last, args[1:], keywords)
    if entry is None:
        return unknown(s, [*args, *keywords.values()])
    return _function(s, last, entry, args, keywords)


def _function(s: Scout, last: str, entry: FunctionInfo, args: list[Value], keywords: Keywords) -> Value:
    if not entry.factory:
        for value in args:
            s.likely |= cells_of(value, 0)
    named = _named(entry, args)
    out = keywords.pop("out", None)
    flag = keywords.pop("inplace", None)
    where = entry.inplace
    if flag is None and where is not None and where.position < len(args):
        flag = args[where.position]
    if entry.in_place and args:
        op = facts.functional(last) if facts.method(last) else last.rstrip("_")
        return effects.in_place(s, op, args[0], [*named[1:], *keywords.items()], entry)
    result: Value = NOTHING
    first = args[0] if args else keywords.get(entry.parameters[0] if entry.parameters else "input", NOTHING)
    if where is not None and flag is not None and flag - {Const(False), Const(None)}:
        inplace = FunctionInfo(entry.name, saves=entry.saves_inplace, saves_alone=entry.saves_inplace)
        result |= effects.in_place(s, last, first, named[1:], inplace)
    result |= effects.operate(s, last, entry, named, keywords)
    if out is not None:
        effects.write(s, out, last, [result])
        return out
    return result


def construct(s: Scout, name: str, args: list[Value], keywords: Keywords) -> Member:
    """`nn.X(...)`."""
    if name in CONTAINERS:
        if name != "torch.nn.Sequential" or (len(args) == 1 and any(isinstance(m, Box) for m in args[0])):
            first = args[0] if args else NOTHING
            box = Box()
            for member in first:
                if isinstance(member, Box):
                    box.items += [_last(v) for v in (*member.items, *member.named.values())]
                    box.rest |= _last(member.rest)
            return Layer(name, NOTHING, box)
        return Layer(name, NOTHING, Box([*args, *keywords.values()]))
    entry = facts.module(name)
    flag: Value = frozenset({Const(False)})
    if entry is not None and entry.inplace is not None:
        where = entry.inplace
        flag = keywords.get(
            where.name, args[where.position] if where.position < len(args) else frozenset({Const(where.default)})
        )
        flag = flag or frozenset({Const(False)})
    return Layer(name, flag)


def _last(value: Value) -> Value:
    """The modules of `(name, module)` pairs; what is no pair is left."""
    out: set[Member] = set()
    for member in value:
        out |= member.items[-1] if isinstance(member, Box) and member.items else frozenset({member})
    return frozenset(out)


__all__ = ["MULTI", "construct", "container", "module_method", "reference", "tensor_method", "torch", "unknown"]
