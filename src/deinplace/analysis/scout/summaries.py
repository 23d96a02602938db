"""What a call of a function of the project does, summed up once for each kind of arguments."""

from __future__ import annotations

import ast

from deinplace.analysis.scout import calls, effects, expressions, outside, walk
from deinplace.analysis.scout.members import (
    NOTHING,
    Box,
    Code,
    Member,
    Scope,
    Summary,
    Value,
    cells_of,
    contents,
)
from deinplace.analysis.scout.state import DEPTH, GiveUpError, Scout

Keywords = dict[str, Value]


def kind(s: Scout, value: Value) -> object:
    """What a summary depends on: all but the very cells."""
    held: set[Member | str] = set(value)
    for member in value:
        if type(member) is Box:
            held.discard(member)
            held.update([m for m in _inside(member) if type(m) is not Box])
            held.add("box")
    cells = {m for m in held if type(m) is int}
    if not cells:
        return frozenset(held), False, False, True, False
    rest = frozenset(held - cells)
    return rest, True, bool(cells & s.likely), cells <= s.constant, not cells.isdisjoint(s.leaves)


def _inside(box: Box, depth: int = 3) -> Value:
    held = contents(box)
    boxes = [m for m in held if type(m) is Box] if depth else ()
    return held.union(*[_inside(m, depth - 1) for m in boxes]) if boxes else held


def call_code(s: Scout, code: Code, args: list[Value], keywords: Keywords) -> Value:
    """Call a function of the project: by its summary."""
    if s.shallow:
        return outside.unknown(s, [*args, *keywords.values()])
    if code.me is not None:
        args = [code.me, *args]
    passed = s.building and code.info is not None and not s.builders.matters(code.info, s.calling is s.discarded)
    if passed or s.running.count(code.node) >= 2:  # as far as the machine follows
        return outside.unknown(s, [*args, *keywords.values()])
    if code.scopes or code.info is None:
        return inline(s, code, args, keywords) if s.depth < DEPTH else calls.anything(s, args, keywords)
    names = tuple(sorted(keywords))
    given = [*args, *(keywords[n] for n in names)]
    key = (code.info, s.grad, s.inference, names, tuple(kind(s, v) for v in given))
    found = s.summaries.get(key)
    if found is not None and s.holds(found):
        return _applied(s, found, given)
    if found is None and key in s.summaries:  # it calls itself
        return outside.unknown(s, given)
    if s.depth >= DEPTH:
        return calls.anything(s, args, keywords)
    if key in s.huge:
        raise GiveUpError
    s.summaries[key] = None
    left = s.steps
    try:
        found = s.summaries[key] = _summary(s, code, given, names)
    except (GiveUpError, RecursionError):
        del s.summaries[key]
        if left > s.most // 2:
            s.huge.add(key)
        raise
    return _applied(s, found, given)


def _summary(s: Scout, code: Code, given: list[Value], names: tuple[str, ...]) -> Summary:
    saved, written, hot, read = s.saved, s.written, s.hot, s.read
    s.saved, s.written, s.hot, s.read = set(), set(), set(), set()
    changes = s.changes
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
    result = inline(s, code, values[:count], dict(zip(names, values[count:], strict=True)))
    made = Summary(
        tuple(cells),
        frozenset(s.saved),
        frozenset(s.written),
        result,
        frozenset(s.hot),
        tuple(boxes),
        frozenset(s.read),
        changes,
    )
    s.saved, s.written, s.hot, s.read = saved, written, hot, read
    return made


def _abstract(value: Value, cell: int) -> tuple[Value, Box | None]:
    """An argument with one cell in the place of all of its own, and its container."""
    held = [m for m in value if isinstance(m, Box)]
    out: set[Member] = {m for m in value if not isinstance(m, (int, Box))}
    if len(out) + len(held) < len(value):
        out.add(cell)
    if not held:
        return frozenset(out), None
    box = Box()
    for member in held:
        inside: set[Member] = {m for m in _inside(member) if not isinstance(m, (int, Box))}
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
    s.hot |= made.hot
    s.read |= made.read
    written: set[int] = set()
    for cell in made.written:
        written |= places.get(cell, {cell})
    kept: set[int] = set()
    for cell in made.saved:
        kept |= places.get(cell, {cell})
    if not written.isdisjoint(s.saved):
        s.blame()
    effects.refused(s, written)
    if len(places) > 1 and any(
        a != b and not places[a].isdisjoint(places[b])
        for a in made.written & places.keys()
        for b in made.saved & places.keys()
    ):
        s.blame()
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
        if type(member) is int and member in places:
            out |= places[member]
        elif type(member) is Box and depth:
            inner = [_moved(v, places, depth - 1) for v in member.items]
            named = {k: _moved(v, places, depth - 1) for k, v in member.named.items()}
            out.add(Box(inner, _moved(member.rest, places, depth - 1), named))
        else:
            out.add(member)
    return frozenset(out)


def inline(s: Scout, code: Code, args: list[Value], keywords: Keywords) -> Value:
    """Look at a function's body with these arguments."""
    owner = code.info.owner if code.info is not None else code.owner
    me = args[0] if args and code.me is not None else NOTHING
    names = _bound(s, code, args, keywords)
    kept, modes, calling = s.scope, (s.grad, s.inference), (s.calling, s.discarded)
    if isinstance(code.node, ast.Lambda):
        me = me or kept.me
    elif code.scopes and owner is not None and code.info is not None and code.info.owner is None:
        me = kept.me
    scope = s.scope = Scope(code.path, names, code.scopes, owner or code.owner, me)
    s.depth += 1
    s.running.append(code.node)
    here = s.here
    if code.info is not None and not code.scopes:
        s.here = code.node
    node = code.node
    if isinstance(node, ast.Lambda):
        result = expressions.evaluate(s, node.body)
    else:
        for decorator in node.decorator_list:
            effects.switch(s, decorator)
        walk.execute(s, node.body)
        result = _result(scope)
    s.depth -= 1
    s.running.pop()
    s.here = here
    s.scope, (s.grad, s.inference) = kept, modes
    s.calling, s.discarded = calling
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
        return expressions.evaluate(s, default)
    kept, s.scope = s.scope, Scope(code.path, {}, code.scopes)
    found = expressions.evaluate(s, default)
    s.scope = kept
    return found
