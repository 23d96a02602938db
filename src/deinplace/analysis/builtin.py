"""Python's own functions and containers."""

from __future__ import annotations

import ast
from collections.abc import Callable

from deinplace.analysis import attributes, context, modules
from deinplace.analysis.iteration import LIMIT, every, iterate
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import (
    NONE,
    NUMBER,
    STRING,
    Cls,
    Const,
    Fields,
    Fn,
    Items,
    Lam,
    Mod,
    Obj,
    Other,
    Ref,
    Ten,
    Union,
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
    handler = _FUNCTIONS.get(name)
    if handler is not None:
        return handler(m, args, keywords, node)
    if name in ("isinstance",) and len(args) == 2:
        return _isinstance(m, args[0], args[1])
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


def _getattr(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    for default in args[2:]:
        m.escape(default, "is a default of getattr()")
    if len(args) > 1 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        return attributes.get(m, args[0], args[1].value, node)
    for value in args[:1]:
        m.escape(value, "is seen through getattr")
    if isinstance(args[0] if args else None, Ref):
        return Other("unknown")
    return m.outside(("getattr", m.serial()), "attribute", "an attribute chosen at run time")


def _setattr(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(args) == 3 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        target = ast.Attribute(ast.Name("_", ast.Load()), args[1].value, ast.Store())
        attributes.store(m, args[0], ast.copy_location(target, node), args[2])
    elif len(args) == 3:
        if isinstance(args[0], Obj) and args[0].what in ("instance", "module"):
            m.m.put(args[0].oid, ("attribute", m.term_of(args[1])), args[2])
        else:
            m.escape(args[2], "was stored elsewhere")
    return NONE


def _isinstance(m: Machine, value: Value, about: Value) -> Value:
    options = [about]
    if isinstance(about, Obj):
        options = list(iterate(m, about, ast.Pass())[0])
    answers = [_is_one(m, value, option) for option in options]
    if True in answers:
        return Const(True)
    return NUMBER if None in answers else Const(False)


def _is_one(m: Machine, value: Value, about: Value) -> bool | None:
    if isinstance(value, Union):
        found = {_is_one(m, o, about) for o in value.options}
        return found.pop() if len(found) == 1 else None
    if isinstance(about, Cls):
        owner = m.class_of(value)
        if owner is not None:
            return about.info in m.bases(owner)
        return False if m.torch_tag(value) is not None or isinstance(value, Const) else None
    if not isinstance(about, Ref):
        return None
    tag = m.torch_tag(value)
    if tag is not None:
        base = about.name in ("torch.nn.Module", "object") or (about.name.endswith("Container"))
        return base or tag.name == about.name or (None if "_" in about.name.rpartition(".")[2] else False)
    owner = m.class_of(value)
    if owner is not None:
        names = [b for b in m.bases(owner) if isinstance(b, str)]
        return about.name in names or (about.name == "torch.nn.Module" and m.is_module(owner))
    if isinstance(value, Ten):
        if about.name.endswith("Tensor") and about.name.startswith("torch"):
            return True if m.kind(value) == "tensor" else None
        return False if m.kind(value) == "tensor" else None
    if isinstance(value, Const):
        known = {"int": int, "float": float, "str": str, "bool": bool}.get(about.name)
        return isinstance(value.value, known) if known is not None else False
    if isinstance(value, Obj):
        return value.what == about.name if about.name in ("list", "tuple", "dict") else False
    return None


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
        attributes.extend(m, base, [args[0]], False)
        return NONE
    if attr == "extend" and args:
        attributes.extend(m, base, *every(m, args[0], node))
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


def _copy(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    value = args[0] if args else NONE
    if isinstance(value, Obj):
        made = m.new_id()
        content = m.m.peek(value.oid)
        if content is not None:
            m.m.make(made, content)
        return Obj(made, value.what)
    return value


def _deepcopy(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
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


def _globals(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`globals()`: whoever has it sees what this module's names hold."""
    fid = m.globals.get(m.frame.module.path)
    return _seen(m, set() if fid is None else {fid}, args)


def _locals(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`locals()`, and `vars()` of nothing: what this function's names hold; `vars(x)`: what x holds."""
    if not args:
        return _seen(m, {m.frame.fid, *m.frame.closure}, args)
    if isinstance(args[0], Mod):
        return _seen(m, {m.globals[args[0].path]} if args[0].path in m.globals else set(), args)
    return _seen(m, set(), args) if isinstance(args[0], Obj) else _anything(m, args, keywords, node)


def _anything(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`exec()` and `eval()` reach every name that there is."""
    return _seen(m, {m.frame.fid, *m.frame.closure, *m.globals.values()}, args)


def _seen(m: Machine, frames: set[int], args: list[Value]) -> Value:
    for fid in frames:
        fields = m.m.peek(fid)
        if not isinstance(fields, Fields) or (m.settling and m.exposed.get(fid) is fields):
            continue  # packages that load lazily ask once each: what they all saw before is not looked through again
        if m.settling:
            m.exposed[fid] = fields
        for value in list(fields.fields.values()):
            m.escape(value, "is seen by its name", 1)
    for value in args:
        m.escape(value, "is seen by its name")
    return Other("unknown")


def _identity(m: Machine, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    return args[0] if args else NONE


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
    "getattr": _getattr,
    "setattr": _setattr,
    "set": lambda m, a, k, n: _unordered(m, a, "set"),
    "frozenset": lambda m, a, k, n: _unordered(m, a, "set"),
    "collections.Counter": lambda m, a, k, n: _unordered(m, a, "counter"),
    "collections.deque": _list,
    "globals": _globals,
    "locals": _locals,
    "vars": _locals,
    "exec": _anything,
    "eval": _anything,
    "copy.copy": _copy,
    "copy.deepcopy": _deepcopy,
    "torch.compile": _identity,
    "torch.jit.script": _identity,
    "torch.nn.DataParallel": _identity,
    "map": lambda m, a, k, n: (
        m.sequence([m.call(a[0], [v], {}, n) for v in iterate(m, a[1], n)[0]], "list", True)
        if len(a) == 2
        else Other("unknown")
    ),
}
__all__ = ["STRING", "Cls", "container", "context", "function", "modules"]
