"""The public names of torch that the catalog describes, their parameters, and calls to try for each."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import catalog_calls as calls
import catalog_schemas as schemas
import torch
import torch.nn.functional
import torch.nn.init

NAMESPACES = {
    "torch": (torch, ("",)),
    "torch.nn.functional": (torch.nn.functional, ("",)),
    "torch.linalg": (torch.linalg, ("linalg_",)),
    "torch.special": (torch.special, ("special_",)),
    "torch.fft": (torch.fft, ("fft_",)),
    "torch.nn.init": (torch.nn.init, ()),
}
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Public:
    """One public callable, or property, of torch."""

    name: str
    """`add_` for a method, `torch.relu_` for a function."""
    call: Callable[..., Any]
    aten: tuple[str, ...]
    """Names, without namespace, of the aten operators that carry this name."""
    method: bool
    python: bool
    """Written in Python, so its signature can be read."""
    attribute: bool = False

    @property
    def schemas(self) -> list[Any]:
        """Schemas that speak for this callable; none where Python code stands between."""
        return [] if self.python else [s for name in self.aten for s in schemas.overloads(name)]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names by position; where overloads differ, the name of a tensor counts."""
        return _parameters(self)

    def name_of(self, position: int, tensor: bool) -> str:
        """The parameter that a positional argument binds to."""
        for schema in self.schemas if tensor else ():
            arguments = [a for a in schema.arguments if not a.kwarg_only]
            if position < len(arguments) and schemas.is_tensor_type(arguments[position].type):
                return self.spelt(arguments[position].name)
        names = self.parameters
        return names[position] if position < len(names) else names[-1] if names else f"arg{position}"

    def spelt(self, name: str) -> str:
        """A schema's argument as Python spells it: functions say `input` for `self`."""
        return "input" if name == "self" and not self.method else name

    def samples(self) -> Iterable[calls.Call]:
        """Calls to try, those that op_db knows first."""
        short = self.name.removeprefix("torch.")
        plain = short if short.endswith("__") else short.removesuffix("_")
        names = dict.fromkeys((short, plain, f"nn.functional.{plain}", plain.removeprefix("nn.functional.")))
        known = tuple(chain.from_iterable(calls.op_calls(n) for n in names))
        made = chain.from_iterable(calls.schema_calls(n) for n in self.aten)
        single = calls.of_every_dtype() if self.method or not known else ()
        return chain(known, made, single, () if known or self.attribute else calls.pairs(self.method))

    def wrapped_names(self, wrapper: Callable[..., Any]) -> Callable[[int, bool], str]:
        """Names for a wrapper that op_db calls instead: parameters that it spells its own way go to those left."""
        theirs = _signature_names(wrapper, _POSITIONAL)
        left = [n for n in self.parameters if n not in theirs]
        table = [n if n in self.parameters or not left else left.pop(0) for n in theirs]
        return lambda position, tensor: table[position] if position < len(table) else self.name_of(position, tensor)


@cache
def _parameters(public: Public) -> tuple[str, ...]:
    names = _schema_names(public) or _signature_names(public.call)
    if (not names or names[0] in ("args", "fn")) and public.call in _testing_overrides():
        names = _signature_names(_testing_overrides()[public.call])
    names = tuple(n for n in names if n != "out")
    if public.attribute:
        return ("self",)
    return ("self", *names[1:]) if public.method else names


def _schema_names(public: Public) -> tuple[str, ...]:
    names: list[str] = []
    for schema in public.schemas:
        if schemas.is_out(schema):
            continue
        for position, argument in enumerate(a for a in schema.arguments if not a.kwarg_only):
            spelt = public.spelt(argument.name)
            if position == len(names):
                names.append(spelt)
            elif schemas.is_tensor_type(argument.type) and spelt not in names:
                names[position] = spelt
    return tuple(names)


def _signature_names(
    function: Callable[..., Any], kinds: tuple[Any, ...] = (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)
) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in kinds)


@cache
def _testing_overrides() -> dict[Any, Any]:
    return torch.overrides.get_testing_overrides()


def is_python(function: Any) -> bool:
    """True for a callable whose body is Python code."""
    return isinstance(inspect.unwrap(function), types.FunctionType)


@cache
def methods() -> dict[str, Public]:
    """Public methods, operators and properties of Tensor."""
    found = {}
    for name in sorted(dir(torch.Tensor)):
        dunder = name.startswith("__") and name.endswith("__")
        value = getattr(torch.Tensor, name)
        if (name.startswith("_") and not dunder) or value is getattr(object, name, None):
            continue
        if isinstance(value, type) or (dunder and not (callable(value) and value in _testing_overrides())):
            continue
        if callable(value):
            aten = (name,) if schemas.overloads(name) else ()
            found[name] = Public(name, value, aten, True, is_python(value))
        elif hasattr(value, "__get__"):
            found[name] = Public(name, value.__get__, (), True, False, attribute=True)
    return found


@cache
def functions() -> dict[str, Public]:
    """Public functions of torch, torch.nn.functional, linalg, special, fft and nn.init, by qualified name."""
    found = {}
    for space, (module, prefixes) in NAMESPACES.items():
        for name in sorted(dir(module)):
            value = getattr(module, name)
            if name.startswith("_") or not callable(value) or isinstance(value, type):
                continue
            aten = tuple(p + name for p in prefixes if schemas.overloads(p + name))
            public = Public(f"{space}.{name}", value, aten, False, is_python(value))
            if _is_about_tensors(space, public):
                found[public.name] = public
    return found


def _is_about_tensors(space: str, public: Public) -> bool:
    """True for what works on tensors: it has a schema, can be overridden, or is a builtin that makes tensors."""
    if public.schemas or public.call in _testing_overrides():
        return True
    if space == "torch.nn.init":
        return public.name.endswith("_")
    if public.python:
        return getattr(public.call, "__module__", "") == "torch.nn.functional" and space.endswith("functional")
    return isinstance(public.call, types.BuiltinFunctionType) and "Tensor" in (public.call.__doc__ or "")
