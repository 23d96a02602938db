"""Parameters of a function as slots of a search: what its annotations, defaults, names and text let one try."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .guide import Guide
from .names import known
from .search import Slot, State
from .shapes import documented
from .usage import attributes_anywhere, module_path, usage
from .values import Group, Plain, Tensor, Value, imports, parse

_UNKNOWN_BUILD = ("32", "2", "nn.Identity()", "nn.ReLU", "0.5", "[32, 32]", "'mean'", "None")
_DEPTH = re.compile(r"((num|n)_?)?(layers?|depth|blocks?)")
_CONFIG = re.compile(r"(\w+_)?(config|cfg|args|opts?|options|hparams?|conf|hp|hyper\w*|settings|params)")


def slots(function: Callable[..., Any], calling: bool, guide: Guide, skip: int = 0) -> list[Slot]:
    """A slot for each parameter; the first `skip` (such as self) are given by Python."""
    found: list[Slot] = []
    parameters = list(signature(function).parameters.values())[skip:]
    for position, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            if calling and not any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in parameters[:position]):
                found.append(Slot(parameter.name, guide.inputs[:6], keyword=False))
            continue
        config = None if calling else _config(function, parameter)
        if config is not None:
            found += config
            continue
        keyword = parameter.kind is not parameter.POSITIONAL_ONLY and not calling
        optional = parameter.default is not parameter.empty
        values = list(dict.fromkeys(_values(function, parameter, calling, guide, position)))
        if optional:
            found.append(Slot(parameter.name, (None, *values[:6]), True, True, parameter.default))
        else:
            found.append(Slot(parameter.name, tuple(values[:12]) or (Plain("32"),), keyword))
    return found


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """A signature with its annotations evaluated where that works."""
    try:
        return inspect.signature(function, eval_str=True)
    except (TypeError, ValueError):
        return inspect.Signature()
    except Exception:  # noqa: BLE001  annotations run the user's code, and may raise anything
        return inspect.signature(function)


def _values(
    function: Callable[..., Any], parameter: inspect.Parameter, calling: bool, guide: Guide, position: int
) -> Iterator[Value]:
    """Values for one parameter, the likeliest first."""
    annotation = parameter.annotation
    typed = list(_annotated(annotation, module_path(function)))
    accepts = _filter(annotation)
    named = [parse(t, guide.sizes, guide.main, guide.high) for t in known(parameter.name, calling)]
    if calling and not named and not usage(function, parameter.name).tensor:
        yield from (v for v in map(Plain, known(parameter.name, False)) if accepts(v))
    if isinstance(parameter.default, bool):
        yield Plain(str(not parameter.default))
        return
    if not calling:
        yield from _with_attributes(function, parameter.name)
    spoken = usage(function, parameter.name).texts
    yield from (v for v in (Plain(repr(text)) for text in spoken if text != parameter.default) if accepts(v))
    fitting = [v for v in named if accepts(v)]
    if calling:
        yield from _used(function, parameter.name, guide, position, bool(fitting), annotation)
    if "x" in known(parameter.name, calling) or (calling and position == 0 and not fitting):
        yield from (v for v in guide.inputs[:6] if accepts(v))
    yield from fitting
    yield from typed
    if calling:
        others: list[Value] = [*guide.inputs[:8], Plain("2"), Plain("None")]
        yield from (v for v in others if accepts(v))
    elif annotation is parameter.empty or not (fitting or typed):
        yield from (Plain(text) for text in _UNKNOWN_BUILD)
    yield from (v for v in named if not accepts(v))


def _with_attributes(function: Callable[..., Any], name: str) -> Iterator[Value]:
    """Modules that the file knows which have what is read of a parameter: `net.emb_dim`."""
    wanted = [a for a in usage(function, name).attributes if not hasattr(nn.Module, a)]
    if not wanted or name == "self":
        return
    for thing in list(getattr(function, "__globals__", {}).values()):
        if inspect.isclass(thing) and issubclass(thing, nn.Module) and not thing.__module__.startswith("torch."):
            init = getattr(thing.__init__, "__code__", None)
            names = set(init.co_names) if init is not None else set()
            if set(wanted) <= names | set(dir(thing)):
                yield from _classes(thing, module_path(thing), 0)


def _used(
    function: Callable[..., Any], name: str, guide: Guide, position: int, named: bool, annotation: Any
) -> Iterator[Value]:
    """Values that the text of the function asks for."""
    use = usage(function, name)
    if annotation is inspect.Parameter.empty or "tensor" in _kinds(annotation):
        yield from (Tensor("float", shape) for shape in documented(function, name)[:2])
    if use.keys:
        yield Group((guide.main,) * len(use.keys), "dict", use.keys)
    if use.number and not use.tensor:
        yield from (Plain("4"), Plain("2"))
    own = guide if use.rank is None else Guide(guide.module, use.rank)
    inputs = [t for t in own.inputs if use.rank is None or len(t.shape) == use.rank]
    if use.last == 4 or (use.last == 5 and not guide.numbers):
        yield Tensor("box", (8, use.last))
        yield Tensor("box", (2, 8, use.last))
    if use.listed and not use.tensor:
        counts = (use.items,) if use.items else (2, 3, 4)
        yield from (Group((t,) * n) for n in counts for t in own.inputs[:2])
    if use.rank is not None and (position == 0 or not named):
        yield from inputs[:4]
    if use.tensor and not named and position:
        yield from own.inputs[:4]


def _config(function: Callable[..., Any], parameter: inspect.Parameter) -> list[Slot] | None:
    """Slots for the fields of an object of settings, where a parameter is one and no class for it is named."""
    name = parameter.name
    bare = parameter.annotation in (parameter.empty, dict, Any) or isinstance(parameter.annotation, str)
    if parameter.default is not parameter.empty or not bare or not _CONFIG.fullmatch(name):
        return None
    fields = list(attributes_anywhere(module_path(function), name))
    dotted = [f for f, key in fields if not key and not f.startswith("_")]
    keyed = [f for f, key in fields if key]
    mark, chosen = (".", dotted) if len(dotted) >= len(keyed) else ("[]", keyed)
    if not chosen or set(chosen) & {"items", "keys"}:
        return None
    out = []
    for field in chosen:
        values = tuple(Plain(t) for t in (known(field, False) or _UNKNOWN_BUILD))
        out.append(Slot(f"{name}{mark}{field}", values[:8]))
    return out


def _annotated(annotation: Any, path: str, depth: int = 0) -> Iterator[Value]:
    """Values that a type names."""
    if annotation in (inspect.Parameter.empty, Any, None) or isinstance(annotation, str) or depth > 2:
        return
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    simple: dict[Any, tuple[str, ...]] = {
        int: ("2", "32", "1"), float: ("0.5", "1.0"), bool: ("False", "True"), str: ("'mean'",),
        dict: ("{}",), list: ("[32, 32]",), tuple: ("(8, 8)",), type(None): ("None",), torch.device: ("'cpu'",),
        torch.dtype: ("torch.float32",),
    }  # fmt: skip
    if annotation in simple:
        yield from map(Plain, simple[annotation])
    elif origin is typing.Literal:
        yield from (Plain(repr(a)) for a in arguments)
    elif origin in (typing.Union, types.UnionType):
        for option in arguments:
            yield from _annotated(option, path, depth)
    elif origin in (tuple, list, collections.abc.Sequence, collections.abc.Iterable):
        yield from _sequences(origin, arguments, path, depth)
    elif origin in (type, collections.abc.Callable) or annotation in (type, Callable, typing.Callable):
        yield from map(Plain, ("nn.ReLU", "nn.LayerNorm", "nn.Linear", "nn.Identity", "torch.relu"))
    elif inspect.isclass(annotation):
        yield from _classes(annotation, path, depth)


def _sequences(origin: Any, arguments: tuple[Any, ...], path: str, depth: int) -> Iterator[Value]:
    kind = "tuple" if origin is tuple else "list"
    parts = [a for a in arguments if a is not ...]
    counts = (len(parts),) if kind == "tuple" and ... not in arguments and parts else (2, 4, 3, 1)
    for count in counts:
        default: Value = Plain("2")
        chosen = [next(_annotated(p, path, depth + 1), default) for p in (parts or [int])]
        yield Group(tuple(chosen[i % len(chosen)] for i in range(count)), kind)


def _classes(annotation: type, path: str, depth: int) -> Iterator[Value]:
    """Instances of a class of the project: members of an enumeration, modules, records with defaults."""
    if issubclass(annotation, torch.Tensor):
        return
    where = (annotation.__module__, annotation.__qualname__)
    if issubclass(annotation, enum.Enum):
        yield from (Plain(f"{annotation.__name__}.{member.name}", (where,)) for member in annotation)
    elif annotation is nn.Module:
        yield from map(Plain, ("nn.Linear(32, 32)", "nn.Conv2d(32, 32, 3, padding=1)", "nn.Identity()"))
    elif "." not in annotation.__qualname__ and annotation.__module__ != "builtins":
        texts: list[str] = []
        wants: dict[tuple[str, str], None] = {where: None}
        try:
            parameters = list(signature(annotation).parameters.values())
        except (TypeError, ValueError):
            return
        for p in parameters:
            missing = p.default is None and _DEPTH.fullmatch(p.name) is not None  # asked for by hand, as a rule
            if (p.default is p.empty or missing) and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                value = next((Plain(t) for t in known(p.name, False)), None) or next(
                    _annotated(p.annotation, path, depth + 1), Plain("32")
                )
                texts.append(f"{p.name}={value.text()}")
                wants.update(dict.fromkeys(imports(value)))
        yield Plain(f"{annotation.__name__}({', '.join(texts)})", tuple(wants))
        small = [
            f"{p.name}={known(p.name, False)[0]}" for p in parameters if type(p.default) is int and known(p.name, False)
        ]
        if small and dataclasses.is_dataclass(annotation):
            yield Plain(f"{annotation.__name__}({', '.join([*texts, *small])})", tuple(wants))


def _filter(annotation: Any) -> Callable[[Value], bool]:
    """Whether a value may be of a type."""
    wants = set(_kinds(annotation))
    return lambda value: not wants or _kind(value) in wants or (_kind(value) == "int" and "float" in wants)


def _kinds(annotation: Any) -> Iterator[str]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            yield from _kinds(option)
    elif annotation in (int, float, bool, str, dict):
        yield annotation.__name__
    elif annotation in (tuple, list) or origin in (tuple, list, collections.abc.Sequence):
        if arguments and inspect.isclass(arguments[0]) and issubclass(arguments[0], torch.Tensor):
            yield "tensors"
        else:
            yield "sequence"
    elif origin is dict:
        yield "dict"
    elif origin is typing.Literal:
        yield "literal"
    elif origin in (type, collections.abc.Callable) or annotation in (type, typing.Callable):
        yield "object"
    elif inspect.isclass(annotation) and annotation not in (inspect.Parameter.empty, type(None), object):
        yield "tensor" if issubclass(annotation, torch.Tensor) else "object"


def _kind(value: Value) -> str:
    if isinstance(value, Tensor):
        return "tensor"
    if isinstance(value, Group):
        return "dict" if value.kind == "dict" else "tensors"
    code = value.code
    if code in ("True", "False"):
        return "bool"
    if re.fullmatch(r"-?\d+", code):
        return "int"
    if re.fullmatch(r"-?\d*\.\d+|\d+e-?\d+", code):
        return "float"
    return "str" if code[0] in "'\"" else "sequence" if code[0] in "[(" else "dict" if code[0] == "{" else "object"


def arguments(chosen: list[Slot], state: State) -> list[tuple[str, Value, bool]]:
    """(name, value, by keyword) of what is given; fields of settings are put together to one object."""
    out: list[tuple[str, Value, bool]] = []
    fields: dict[str, dict[str, Value]] = {}
    skipped = False
    for slot, value in zip(chosen, state, strict=True):
        if value is None:
            skipped = True
            continue
        found = re.fullmatch(r"(\w+)(\.|\[\])(\w+)", slot.name)
        if found is None:
            out.append((slot.name, value, slot.keyword or skipped))
            continue
        name, mark, field = found.groups()
        if name not in fields:
            out.append((name, value, True))
        fields.setdefault(name, {})[field] = value
        kind = "object" if mark == "." else "dict"
        group = Group(tuple(fields[name].values()), kind, tuple(fields[name]))
        out = [(n, group if n == name else v, k) for n, v, k in out]
    return out
