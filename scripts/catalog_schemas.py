"""What torch's operator schemas declare: writes, aliases between inputs and results, `out=` arguments, names."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import torch

Entry = dict[str, Any]
NAMESPACES = ("aten::",)


def is_tensor_type(type_: Any) -> bool:
    """True for Tensor, Tensor?, Tensor[] and their optional forms."""
    return "Tensor" in str(type_)


def is_tensor_list(type_: Any) -> bool:
    """True for a list of tensors."""
    return str(type_).startswith("List[") and is_tensor_type(type_)


@cache
def by_name() -> dict[str, list[Any]]:
    """Schemas by operator name without overload, such as `aten::add_`; sorted, since torch lists them in any order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        found[schema.name].append(schema)
    return {name: sorted(group, key=str) for name, group in found.items()}


def overloads(name: str) -> list[Any]:
    """Schemas of an aten operator that take or return a tensor; `name` has no namespace."""
    return [s for s in by_name().get(f"aten::{name}", []) if _about_tensors(s)]


def _about_tensors(schema: Any) -> bool:
    return any(is_tensor_type(x.type) for x in [*schema.arguments, *schema.returns])


def written(schema: Any) -> list[Any]:
    """Arguments that a schema declares as written."""
    return [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def is_out(schema: Any) -> bool:
    """True for a form that writes into keyword-only `out=` tensors."""
    return any(a.kwarg_only and is_tensor_type(a.type) for a in written(schema))


def aliased(schema: Any) -> list[tuple[str, bool]]:
    """(argument, certain) for each tensor argument that a result shares storage with.

    A result such as `Tensor(a|b)` may or may not be the argument: not certain.
    """
    pairs = []
    for argument in schema.arguments:
        if argument.alias_info is None or not is_tensor_type(argument.type) or argument.kwarg_only:
            continue
        names = set(argument.alias_info.before_set)
        # `Tensor(a -> *)`: elements of a list that comes back are views; torch drops their names.
        if "*" in argument.alias_info.after_set and any(is_tensor_list(r.type) for r in schema.returns):
            pairs.append((argument.name, True))
        for result in schema.returns:
            if result.alias_info is not None and names & set(result.alias_info.before_set):
                pairs.append((argument.name, len(result.alias_info.before_set) == 1))
    return pairs


def many(schema: Any) -> bool:
    """True where the results are a list, or more than one, of views of an argument."""
    views = [r for r in schema.returns if r.alias_info is not None and not r.alias_info.is_write]
    return any(is_tensor_list(r.type) for r in views) or len(views) > 1


def operators() -> dict[str, Entry]:
    """Every operator that takes or returns a tensor, by `name.overload`, as it is registered when torch starts."""
    table: dict[str, Entry] = {}
    for name, schemas in by_name().items():
        if not name.startswith(NAMESPACES):
            continue
        for schema in schemas:
            if not _about_tensors(schema):
                continue
            key = f"{name}.{schema.overload_name}" if schema.overload_name else name
            _merge(table.setdefault(key, {}), _operator(schema))
    return table


def _operator(schema: Any) -> Entry:
    names = [a.name for a in schema.arguments]
    entry: Entry = {}
    if writes := [a.name for a in written(schema)]:
        entry["writes"] = writes
        entry["positions"] = [names.index(n) for n in writes]
    if is_out(schema):
        entry["out"] = True
    aliases = sorted({n for n, _ in aliased(schema)} - set(writes))
    if aliases:
        entry["aliases"] = aliases
    if aliases and many(schema):
        entry["many"] = True
    return entry


def _merge(into: Entry, entry: Entry) -> None:
    """Overloads that share one key: keep what any of them does."""
    for key, value in entry.items():
        if isinstance(value, list):
            into[key] = into.get(key, []) + [v for v in value if v not in into.get(key, [])]
        else:
            into[key] = value
