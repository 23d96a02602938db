"""A function on its own: on arguments of which only annotations and defaults are known."""

from __future__ import annotations

import ast
import re

from deinplace.analysis.context import special
from deinplace.analysis.index import FunctionInfo
from deinplace.analysis.scout import effects, expressions, summaries, walk
from deinplace.analysis.scout.members import (
    NOTHING,
    Box,
    Code,
    Scope,
    Thing,
    Value,
)
from deinplace.analysis.scout.state import GiveUpError, Scout
from deinplace.analysis.values import Cls

_HOLDS = re.compile(
    r"(?:\w+\.)?(?:Optional\[)?(?:\w+\.)?(?:List|list|Sequence|Iterable|Tuple|tuple|Dict|dict|Mapping)\["
)
"""Annotations of containers."""


def alone(s: Scout, info: FunctionInfo) -> None:
    """A function on arguments of which only annotations and defaults are known."""
    code = Code(info.node, info.path, info)
    spec = info.node.args
    args = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    values: dict[str, Value] = {}
    special_kind = special(info.node)
    if info.owner is not None and special_kind != "staticmethod" and args:
        values[args[0].arg] = frozenset({Cls(info.owner)}) if special_kind == "classmethod" else _receiver(s, info)
    values.update((a.arg, argument(s, code, info, a)) for a in args if a.arg not in values)
    me = values.get(args[0].arg, NOTHING) if args and info.owner is not None else NOTHING
    for extra in (spec.vararg, spec.kwarg):
        if extra is not None:
            values[extra.arg] = frozenset({Box([], frozenset({s.cell()}))})
    s.saved, s.written, s.hot, s.here = set(s.saved), set(), set(), info.node
    s.scope = Scope(info.path, values, (), info.owner, me)
    for decorator in info.node.decorator_list:
        effects.switch(s, decorator)
    walk.execute(s, info.node.body)


def _receiver(s: Scout, info: FunctionInfo) -> Value:
    assert info.owner is not None
    init = s.find_method(info.owner, "__init__")
    if init is None or info.name == "__init__":
        return frozenset({Thing(info.owner)})
    key: tuple[object, ...] = (info.owner, "alone", s.shallow)
    known = s.things.get(key)
    if key in s.huge:
        raise GiveUpError
    if known is None:
        known = s.things[key] = Thing(info.owner)
        code = Code(init.node, init.path, init, frozenset({known}))
        spec = init.node.args
        plain = [*spec.posonlyargs, *spec.args][1:]
        args = [argument(s, code, init, a) for a in plain]
        keywords = {a.arg: argument(s, code, init, a) for a in spec.kwonlyargs}
        s.building = True
        try:
            summaries.inline(s, code, [frozenset({known}), *args], keywords)
        except (GiveUpError, RecursionError):
            del s.things[key]
            s.huge.add(key)
            raise
        finally:
            s.building = False
    return frozenset({known})


def _element(s: Scout, tensor: bool) -> int:
    made = s.cell()
    if tensor:
        s.likely.add(made)
    return made


def argument(s: Scout, code: Code, info: FunctionInfo, arg: ast.arg) -> Value:
    """An argument that nobody gave: its default where that is more than a number, else anything of its annotation."""
    default = next((d for a, d in summaries.defaults_of(info.node.args) if a is arg), None)
    text = ast.unparse(arg.annotation) if arg.annotation is not None else ""
    if text in ("int", "float", "bool", "str"):
        if isinstance(default, ast.Constant) and (text == "str" or "inplace" in arg.arg):
            return expressions.evaluate(s, default)
        return NOTHING
    plain = isinstance(default, ast.Constant) and not isinstance(default.value, str)
    if default is not None and (not plain or ("inplace" in arg.arg and default.value is not None)):  # type: ignore[attr-defined]
        held = summaries.default_value(s, code, default)
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
