"""Records back from what JSON holds: every field is checked against the type that it is declared with."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def restored(kind: type[Record], data: object) -> Record:
    """The dataclass `kind` that `dataclasses.asdict` made `data` of.

    Raises:
        TypeError: a value is not of the type that its field is declared with, or a field is missing.
    """
    value: Record = _value(kind, data)
    return value


def _value(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _member(get_args(kind), data)
    if origin is Literal:
        _checked(data in get_args(kind), data, kind)
        return data
    if origin is tuple:
        return _tuple(get_args(kind), data)
    if isinstance(kind, type) and is_dataclass(kind):
        _checked(isinstance(data, Mapping), data, kind)
        hints = _hints(kind)
        unknown = data.keys() - hints.keys()
        if unknown:
            raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
        return kind(**{name: _value(hints[name], value) for name, value in data.items()})
    if kind is float:
        _checked(type(data) in (int, float), data, kind)
        return float(data)
    return _checked(type(data) is kind, data, kind)


def _member(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None:
        return _checked(type(None) in kinds, data, kinds)
    (kind,) = (k for k in kinds if k is not type(None))
    return _value(kind, data)


def _tuple(kinds: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    _checked(isinstance(data, list | tuple), data, kinds)
    if kinds[-1] is Ellipsis:
        return tuple(_value(kinds[0], value) for value in data)
    _checked(len(kinds) == len(data), data, kinds)
    return tuple(map(_value, kinds, data))


def _checked(good: bool, data: Any, kind: Any) -> Any:
    if not good:
        raise TypeError(f"{data!r:.60} is no {kind}")
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
