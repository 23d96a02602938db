"""What torch.nn's modules save for backward, where their `inplace` stands, and which function they call."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice, product
from typing import Any

import torch
from catalog_calls import REFUSALS, fresh, seed
from catalog_entries import inplace_parameter
from catalog_observe import storage_of, tensors_in
from catalog_surface import functions
from torch.overrides import TorchFunctionMode

Entry = dict[str, Any]
Sample = tuple[torch.nn.Module, tuple[Any, ...], Entry]
PER_MODULE = 12


class _Calls(TorchFunctionMode):
    """Notes the public functions that a forward calls."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if name := _public_names().get(func):
            self.called.append(name)
        return func(*args, **(kwargs or {}))


@cache
def _public_names() -> dict[Any, str]:
    """Function objects by name; torch.nn.functional's names win over torch's for the same object."""
    found = {public.call: name for name, public in functions().items() if not name.startswith("torch.nn.init")}
    ours = {p.call: n for n, p in functions().items() if n.startswith("torch.nn.functional.")}
    return found | ours


def classes() -> dict[str, type[torch.nn.Module]]:
    """Module classes that torch.nn exports, by qualified name."""
    found = {}
    for name in sorted(dir(torch.nn)):
        value = getattr(torch.nn, name)
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and not name.startswith("_"):
            found[f"torch.nn.{name}"] = value
    return found


@cache
def _infos() -> dict[type, list[Any]]:
    from torch.testing._internal.common_modules import module_db

    found: dict[type, list[Any]] = defaultdict(list)
    for info in module_db:
        found[info.module_cls].append(info)
    return found


def _samples(cls: type[torch.nn.Module], inplace: bool) -> Iterator[Sample]:
    """(module, arguments, keyword arguments), in training and in evaluation."""
    extra = {"inplace": True} if inplace else {}
    known = False
    for info in _infos().get(cls, ()):
        for training in (True, False):
            seed()
            try:
                made = list(islice(info.module_inputs_func(info, "cpu", torch.float32, False, training), PER_MODULE))
            except REFUSALS:
                continue
            for sample in made:
                arguments, forward = sample.constructor_input, sample.forward_input
                module = _built(cls, arguments.args, {**arguments.kwargs, **extra})
                if forward is not None and module is not None:
                    known = True
                    yield module.train(training), forward.args, forward.kwargs
    if not known:
        yield from _guesses(cls, extra)


def _guesses(cls: type[torch.nn.Module], extra: Entry) -> Iterator[Sample]:
    """For a module that module_db does not sample: small numbers for what its constructor needs, then tensors."""
    parameters = list(inspect.signature(cls).parameters.values())
    needed = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    for arguments in product((2, 4), repeat=needed) if needed < 4 else ():
        if (module := _built(cls, arguments, extra)) is None:
            continue
        seed()
        for rank, count in product(range(1, 6), (1, 2, 3)):
            tensors = tuple(torch.rand((4,) * rank) for _ in range(count))
            yield module.train(), tensors, {}
            yield module.eval(), tensors, {}
            yield module, tuple(t.long() for t in tensors), {}


def _built(cls: type[torch.nn.Module], args: tuple[Any, ...], kwargs: Entry) -> torch.nn.Module | None:
    try:
        return cls(*args, **kwargs)
    except REFUSALS:
        return None


def described() -> dict[str, Entry]:
    """Entries of all modules."""
    return {name: describe(cls) for name, cls in classes().items()}


def describe(cls: type[torch.nn.Module]) -> Entry:
    """The entry of one module class; `inplace` counts positions behind `self`."""
    flag = inplace_parameter(cls.__init__, skip=1)
    entry = _observed(cls, False)
    if flag:
        entry["inplace"] = flag
        entry["saves_inplace"] = _observed(cls, True).get("saves", [])
    return {k: v for k, v in entry.items() if v not in (False, None, [], "")}


def _observed(cls: type[torch.nn.Module], inplace: bool) -> Entry:
    names: set[str] = set()
    called: set[str] = set()
    ran = aliased = copied = False
    for module, args, kwargs in _samples(cls, inplace):
        seen = _forward(module, fresh(args, True), fresh(kwargs, True))
        if seen is None:
            continue
        ran = True
        names |= seen[0]
        called |= set(seen[1])
        aliased, copied = aliased or seen[2], copied or not seen[2]
    functional = {n for n in called if n.startswith("torch.nn.functional.")} or called
    return {
        "saves": sorted(names),
        "functional": functional.pop() if len(functional) == 1 else None,
        "returns": "" if not ran else "maybe_alias" if aliased and copied else "view" if aliased else "fresh",
        "ran": ran,
    }


def _forward(module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[set[str], list[str], bool] | None:
    """(what was saved, functions called, whether a result shares an argument's storage)."""
    if not _initialised(module, args, kwargs):
        return None
    names: dict[int | None, str] = {storage_of(p): n for n, p in module.named_parameters()}
    names |= {storage_of(b): n for n, b in module.named_buffers()}
    inputs = dict(_bound(module.forward, args, kwargs))
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    seed()
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), _Calls() as calls:
            value = module(*args, **kwargs)
    except REFUSALS:
        return None
    made = [storage_of(t) for t in tensors_in(value)]
    results = set(made) - {None}
    written = bool(getattr(module, "inplace", False))
    kept = {storage_of(t) for t in saved} - {None}
    found = {names.get(s) or inputs.get(s) for s in kept if not (written and s in results)} - {None}
    found |= {f"result{i or ''}" for i, s in enumerate(made) if s in kept and (written or s not in inputs)}
    return {n for n in found if n}, calls.called, bool(results & set(inputs))


def _initialised(module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
    """Lazy modules get their parameters from a first call; False where that call is refused."""
    if any(torch.nn.parameter.is_lazy(t) for t in [*module.parameters(), *module.buffers()]):
        try:
            module(*fresh(args, False), **fresh(kwargs, False))
        except REFUSALS:
            return False
    return True


def _bound(forward: Callable[..., Any], args: Any, kwargs: Any) -> Iterator[tuple[int | None, str]]:
    """(storage, parameter name) of each tensor among a forward's arguments."""
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs).arguments
    except TypeError:
        return
    for name, value in bound.items():
        for tensor in tensors_in(value):
            yield storage_of(tensor), name
