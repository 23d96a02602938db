"""Sum up the observations of one public callable into its catalog entry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import catalog_schemas as schemas
import catalog_twins as twins
import torch
from catalog_calls import Call, differentiable
from catalog_observe import Observation, observe
from catalog_surface import Public

Entry = dict[str, Any]


def run(public: Public, kwargs: dict[str, Any] | None = None) -> list[tuple[Call, Observation]]:
    """Observe every sample that the callable accepts, with and without autograd."""
    seen = []
    for call in public.samples():
        if kwargs:
            call = Call(call.args, {**call.kwargs, **kwargs})
        for grad in (True, False) if differentiable((call.args, call.kwargs)) else (False,):
            if (result := _observed(public, call, grad)) is not None:
                seen.append((call, result))
    return seen


def _observed(public: Public, call: Call, grad: bool) -> Observation | None:
    """One call; where op_db has a wrapper for arguments of another order, the wrapper goes first."""
    wrapper = call.function
    if wrapper is not None and not public.method and not in_place(public) and _is_wrapper(wrapper):
        result = observe(wrapper, call, public.wrapped_names(wrapper), grad)
        # A wrapper that returns what it wrote calls something else, such as normal_ for normal.
        if result is not None and not result.wrote & result.same:
            return result
    return observe(public.call, call, public.name_of, grad)


def _is_wrapper(function: Callable[..., Any]) -> bool:
    return (getattr(function, "__module__", None) or "").startswith("torch.testing")


def in_place(public: Public) -> bool:
    """True where a name promises a write: `add_`, not `__add__`."""
    name = public.name.rpartition(".")[2]
    return name.endswith("_") and not name.endswith("__")


def describe(public: Public) -> Entry:
    """The entry of a method or function."""
    seen = run(public)
    plain = [o for _, o in seen]
    if (flag := inplace_parameter(public.call)) and not public.method:
        plain = [o for c, o in seen if not _flag_set(c, flag)]
    entry = summary(public, plain)
    if flag:
        entry["inplace"] = flag
        flagged = [o for _, o in run(public, {flag["name"]: True})]
        entry["saves_inplace"] = saves(flagged)
        entry["inplace_writes"] = sorted(frozenset().union(*(o.wrote for o in flagged)))
    if _has_out(public):
        entry["out"] = True
    if entry["in_place"]:
        entry.update(twins.compare(public, [c for c, _ in seen], entry["effect"] == "data"))
    return {k: v for k, v in entry.items() if v not in (False, None, [], "")}


def _flag_set(call: Call, flag: Entry) -> bool:
    position = flag["position"]
    return bool(call.kwargs.get(flag["name"]) or (len(call.args) > position and call.args[position]))


def summary(public: Public, seen: Sequence[Observation]) -> Entry:
    """What schemas declare together with what was seen."""
    declared = {public.spelt(a.name) for s in public.schemas if not schemas.is_out(s) for a in schemas.written(s)}
    wrote = union(o.wrote for o in seen)
    first = next(iter(public.parameters), "self")
    metadata = union(o.metadata for o in seen)
    autograd = union(o.autograd for o in seen)
    # A write that changed nothing seen, such as that of an operation no sample ran, is known from the schema alone.
    blind = not seen or in_place(public)
    writes = wrote or (declared if blind and not metadata and not autograd else frozenset())
    effect = "data" if writes else "metadata" if metadata else "autograd" if autograd else ""
    changed = writes or metadata or autograd
    entry: Entry = {
        "parameters": list(public.parameters),
        "attribute": public.attribute,
        "writes": _ordered(writes, public.parameters),
        "effect": effect,
        "in_place": bool(changed) and (in_place(public) or first in writes),
        "returns": returns(public, seen),
        "aliases": _ordered(union(o.same | o.views | o.foreign for o in seen), public.parameters),
        "outputs": outputs(public, seen),
        "saves": saves(seen),
        "saves_alone": saves([o for o in seen if o.alone]),
        "ran": bool(seen),
        "factory": _is_factory(public, seen),
    }
    return entry


def union(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    """Union of sets, of none too."""
    return frozenset().union(*sets)


def saves(seen: Sequence[Observation]) -> list[str]:
    """Names of arguments that some call saved; `result` for the first result, `result1` for the second."""
    results = union(o.saved_results for o in seen)
    return sorted({*union(o.saves for o in seen), *(f"result{i or ''}" for i in results)})


def outputs(public: Public, seen: Sequence[Observation]) -> Entry | None:
    """The tensors of a tuple that comes back; None where none does, or one of another length each time, or of views."""
    tuples = [o for o in seen if o.outputs]
    counts = {len(o.outputs) for o in tuples}
    declared = {len(s.returns) for s in public.schemas if not schemas.is_out(s)}
    # A schema that returns a list gives as many as are asked for; Python code gives what its flags say.
    if len(counts) != 1 or (declared and not counts & declared) or any(o.same or o.views for o in tuples):
        return None
    return {
        "differentiable": [any(flags) for flags in zip(*(o.outputs for o in tuples), strict=True)],
        "names": list(next((n for o in tuples if (n := getattr(type(o.value), "__match_args__", ()))), ())),
        "saves": saves(tuples),
        "always": bool(declared) and len(tuples) == len(seen),
    }


def _ordered(names: Iterable[str], parameters: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda n: (parameters.index(n) if n in parameters else len(parameters), n))


def returns(public: Public, seen: Sequence[Observation]) -> str:
    """`self`, `view`, `views`, `maybe_alias`, `fresh` or `other`; see the loader's docstrings."""
    made = [o for o in seen if o.results]
    if not seen:
        return _declared_returns(public)
    if not made:
        return "other"
    if any(o.several for o in made):
        return "views"
    # Results without a storage, sparse or empty, tell nothing about aliases.
    if not all(o.placed or o.same for o in made) and any(o.same for o in made):
        return "maybe_alias"
    made = [o for o in made if o.placed] or made
    aliases = [bool(o.same or o.views) for o in made]
    if not any(aliases):
        return "fresh"
    if not all(aliases) or any(not o.results for o in seen) or _uncertain(public):
        return "maybe_alias"
    return "self" if all(o.same for o in made) else "view"


def _uncertain(public: Public) -> bool:
    """True where a schema says that the result may be the argument or may be new (`Tensor(a|b)`)."""
    return any(not certain for s in public.schemas for _, certain in schemas.aliased(s))


def _declared_returns(public: Public) -> str:
    candidates = [s for s in public.schemas if not schemas.is_out(s)]
    tensors = [s for s in candidates if any(schemas.is_tensor_type(r.type) for r in s.returns)]
    if not candidates:
        return "unknown"
    if not tensors:
        return "other"
    if _uncertain(public):
        return "maybe_alias"
    if all(schemas.aliased(s) for s in tensors):
        if any(schemas.many(s) for s in tensors):
            return "views"
        return "self" if all(schemas.written(s) for s in tensors) else "view"
    return "maybe_alias" if any(schemas.aliased(s) for s in tensors) else "fresh"


def _is_factory(public: Public, seen: Sequence[Observation]) -> bool:
    if public.method:
        return False
    for schema in public.schemas:
        takes = any(schemas.is_tensor_type(a.type) and not a.kwarg_only for a in schema.arguments)
        if not takes and not schemas.is_out(schema) and any(schemas.is_tensor_type(r.type) for r in schema.returns):
            return True
    return False


def _has_out(public: Public) -> bool:
    if any(schemas.is_out(s) for name in public.aten for s in schemas.overloads(name)) and not public.method:
        return True
    try:
        return "out" in inspect.signature(public.call).parameters and not public.attribute
    except (TypeError, ValueError):
        return False


def inplace_parameter(function: Callable[..., Any], skip: int = 0) -> Entry | None:
    """Where `inplace` stands in a signature, not counting the first `skip` parameters."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):
        return None
    for position, parameter in enumerate(parameters):
        if parameter.name == "inplace":
            return {"name": "inplace", "position": position, "default": bool(parameter.default)}
    return None


def augmented() -> dict[str, Entry]:
    """The augmented assignments of Python's data model, and what Tensor does for each."""
    import operator

    table = {}
    symbols = {"+": "add", "-": "sub", "*": "mul", "@": "matmul", "/": "truediv", "%": "mod", "//": "floordiv"}
    symbols |= {"**": "pow", ">>": "rshift", "<<": "lshift", "&": "and", "|": "or", "^": "xor"}
    for symbol, name in symbols.items():
        if not hasattr(operator, f"__i{name}__"):
            raise AssertionError(f"Python has no __i{name}__")
        method = f"__i{name}__"
        table[f"{symbol}="] = {"method": method if method in dir(torch.Tensor) else None, "plain": f"__{name}__"}
    return table
