"""Arguments of a function that is run on its own: what its annotations and defaults say, and nothing more."""

from __future__ import annotations

import ast

from deinplace.analysis import declared
from deinplace.analysis.index import FunctionInfo
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import NONE, Const, Other, Value, union


def arguments(
    machine: Machine, info: FunctionInfo, bound: Value | None, names: list[ast.arg]
) -> list[tuple[str, Value]]:
    """Unknown arguments: parameters by their annotation, their default, or nothing known."""
    defaults = dict(machine.defaults_of(info))
    out: list[tuple[str, Value]] = []
    for n, arg in enumerate(names):
        if n == 0 and bound is not None:
            out.append((arg.arg, bound))
            continue
        out.append((arg.arg, _argument(machine, info, arg, defaults.get(arg.arg))))
    return out


def _not_taken_for_granted(machine: Machine, default: Value) -> Value:
    """A default where something is proved for all callers: another argument may be given."""
    if default == NONE:
        return default
    if isinstance(default, Const) and isinstance(default.value, (str, bool, int, float)):
        what = "string" if isinstance(default.value, str) else "number"
        return Other(what, machine.terms.make("argument", machine.serial()))
    return union((default, Other("unknown")))


def _argument(machine: Machine, info: FunctionInfo, arg: ast.arg, default: Value | None) -> Value:
    if default is not None and not machine.lenient:
        default = _not_taken_for_granted(machine, default)
    key = ("argument", info.node, arg.arg, machine.serial())
    spec = declared.read(machine, arg.annotation)
    what = spec.what if spec is not None else ""
    if what in ("number", "string"):
        known = isinstance(default, Const) and default.value is not None and not machine.glance
        if known and default is not None and (what == "string" or "inplace" in arg.arg):
            return default
        return Other(what, machine.terms.make("argument", machine.serial()))
    if what and not (default is not None and default != NONE):
        return declared.outside(machine, key, "parameter", f"parameter `{arg.arg}`", spec)
    if machine.glance and isinstance(default, Const) and isinstance(default.value, (str, bool)):
        return Other(
            "string" if isinstance(default.value, str) else "number", machine.terms.make("argument", machine.serial())
        )
    if default is not None and not (
        isinstance(default, Const) and (default.value is None or isinstance(default.value, (bool, int, float)))
    ):
        return default
    if isinstance(default, Const) and "inplace" in arg.arg:
        return default
    if isinstance(default, Const) and isinstance(default.value, (bool, int, float)):
        return Other("number", machine.terms.make("argument", machine.serial()))
    forward = info.name in ("forward", "__call__") and info.owner is not None and machine.is_module(info.owner)
    return machine.outside(
        key, "parameter", f"parameter `{arg.arg}`", "likely" if forward and default is None else "unknown"
    )
