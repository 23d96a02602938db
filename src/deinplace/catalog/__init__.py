"""What every torch operation does: writes, views, saves, twins, `inplace` parameters. Generated from torch itself.

`scripts/generate_catalog.py` writes the JSON files beside this module; neither torch nor libcst is needed to read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from deinplace.catalog.records import (
    Augmented,
    Effect,
    FunctionInfo,
    InplaceParameter,
    MethodInfo,
    ModuleEntry,
    OperatorInfo,
    Outputs,
    Returns,
)

__all__ = [
    "Augmented",
    "Catalog",
    "Effect",
    "FunctionInfo",
    "InplaceParameter",
    "MethodInfo",
    "ModuleEntry",
    "OperatorInfo",
    "Outputs",
    "Returns",
    "load",
]
_Record = TypeVar("_Record", bound=FunctionInfo | ModuleEntry | OperatorInfo)
_SETS = frozenset({"saves", "saves_alone", "saves_inplace"})


@cache
def load() -> Catalog:
    """The catalog that ships with this version; read once, entries are built when asked for."""
    return Catalog(_read("data.json"))


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_bytes())
    return content


class Catalog:
    """Look-ups by public name. Callers resolve aliases such as `F` and `nn` first."""

    def __init__(self, data: Mapping[str, Any], operators: Mapping[str, Any] | None = None) -> None:
        self._data = data
        self._given = operators
        self._built: dict[tuple[str, str], Any] = {}

    @property
    def torch_version(self) -> str:
        """The torch that the catalog was generated from."""
        return str(self._data["torch"])

    @property
    def generated(self) -> str:
        """ISO date of generation."""
        return str(self._data["generated"])

    def method(self, name: str) -> MethodInfo | None:
        """A method, operator method (`__mul__`) or attribute (`T`) of Tensor."""
        return self._entry("methods", name, MethodInfo)

    def function(self, qualified: str) -> FunctionInfo | None:
        """A function of torch, torch.nn.functional, linalg, special, fft or nn.init, such as `torch.relu_`."""
        return self._entry("functions", qualified, FunctionInfo)

    def module(self, qualified: str) -> ModuleEntry | None:
        """A module class, such as `torch.nn.ReLU`."""
        return self._entry("modules", qualified, ModuleEntry)

    def operator(self, name: str) -> OperatorInfo | None:
        """An aten overload that takes or returns tensors, such as `aten::add_.Tensor`."""
        key = ("operators", name)
        if key not in self._built:
            self._built[key] = _record(OperatorInfo, name, self._operators.get(name))
        found: OperatorInfo | None = self._built[key]
        return found

    @cached_property
    def augmented(self) -> Mapping[str, Augmented]:
        """All augmented assignment operators of Python, by symbol such as `+=`."""
        return {symbol: self._augmented(symbol, entry) for symbol, entry in self._data["augmented"].items()}

    def methods(self) -> Iterator[MethodInfo]:
        """All methods, by name."""
        return (m for name in self._data["methods"] if (m := self.method(name)) is not None)

    def functions(self) -> Iterator[FunctionInfo]:
        """All functions, by name."""
        return (f for name in self._data["functions"] if (f := self.function(name)) is not None)

    def modules(self) -> Iterator[ModuleEntry]:
        """All module classes, by name."""
        return (m for name in self._data["modules"] if (m := self.module(name)) is not None)

    def operators(self) -> Iterator[OperatorInfo]:
        """All operator overloads, by name."""
        return (o for name in self._operators if (o := self.operator(name)) is not None)

    @cached_property
    def _operators(self) -> Mapping[str, Any]:
        # In a file of its own: static analysis has no need of it.
        found: Mapping[str, Any] = self._given if self._given is not None else _read("operators.json")["operators"]
        return found

    def _entry(self, kind: str, name: str, build: Callable[..., _Record]) -> _Record | None:
        key = (kind, name)
        if key not in self._built:
            self._built[key] = _record(build, name, self._data[kind].get(name))
        found: _Record | None = self._built[key]
        return found

    def _augmented(self, symbol: str, entry: Mapping[str, Any]) -> Augmented:
        plain = self.method(entry["plain"])
        if plain is None:
            raise KeyError(entry["plain"])
        method: str | None = entry["method"]
        return Augmented(symbol, method, self.method(method) if method else None, plain)


def _record(build: Callable[..., _Record], name: str, entry: Mapping[str, Any] | None) -> _Record | None:
    if entry is None:
        return None
    fields = {key: _value(key, value) for key, value in entry.items()}
    return build(name=name, **fields)


def _value(key: str, value: Any) -> Any:
    if key == "inplace":
        return InplaceParameter(**value)
    if key == "outputs":
        return Outputs(**{k: _value(k, v) for k, v in value.items()})
    if isinstance(value, list):
        return frozenset(value) if key in _SETS else tuple(value)
    return value
