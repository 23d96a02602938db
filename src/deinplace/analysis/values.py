"""Abstract values: what a name can hold, as far as reading the source can tell."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from deinplace.analysis.index import ClassInfo, FunctionInfo

Kind = Literal["tensor", "likely", "unknown"]
Grad = Literal["yes", "maybe", "no"]
Cut = Literal["", "detached", "unseen"]
NO_IDS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Const:
    """A Python constant whose value is known."""

    value: object


@dataclass(frozen=True, slots=True)
class Other:
    """Something that is known not to be a tensor: `number`, `string`, `ndarray`, `set`, `size`, `optimizer`, ..."""

    what: str
    term: int = 0


@dataclass(frozen=True, slots=True)
class Ten:
    """A tensor, or a value that may be one: `sids` are the storages it may lie in, all of them if `exact` is false.

    `view` is empty for a whole tensor, `view` for a part or a reshape, `multi` for one of several outputs of
    `chunk` and the like. `cut` says that it shares memory with its base but not the graph: `detached` by `detach`,
    `unseen` by `.data`, which has no version counter in common with its base, either.
    """

    sids: tuple[int, ...]
    exact: bool = True
    view: str = ""
    cut: Cut = ""
    path: tuple[object, ...] = ()
    """Steps that lead from the base to this view: term ids, slices among them."""
    choice: tuple[int, Ten, Ten] | None = None
    """(condition, value where it held, value where it did not), for a name that two paths bound differently."""


@dataclass(frozen=True, slots=True)
class Obj:
    """A container or an instance with contents of its own in memory."""

    oid: int
    what: str
    """`list`, `tuple`, `dict`, `instance` or `module` (of torch's own)."""


@dataclass(frozen=True, slots=True)
class Fn:
    """A function of the project, with what it closes over."""

    info: FunctionInfo
    closure: tuple[int, ...] = ()
    bound: Value | None = None
    defaults: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Lam:
    """A lambda, with what it closes over."""

    node: ast.Lambda
    path: str
    closure: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cls:
    """A class of the project."""

    info: ClassInfo


@dataclass(frozen=True, slots=True)
class Ref:
    """Something outside the project, by its dotted name: `torch.nn.ReLU`."""

    name: str


@dataclass(frozen=True, slots=True)
class Mod:
    """A module of the project, by path."""

    path: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A method of a tensor, container or unknown value."""

    base: Value
    attr: str


@dataclass(frozen=True, slots=True)
class Part:
    """`functools.partial`."""

    func: Value
    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Union:
    """One of several values."""

    options: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Super:
    """`super()` inside a method: look-ups start after `after`."""

    after: ClassInfo
    self: Value


Value = Const | Other | Ten | Obj | Fn | Lam | Cls | Ref | Mod | Bound | Part | Union | Super
NONE = Const(None)
NUMBER = Other("number")
STRING = Other("string")


@dataclass(frozen=True, slots=True)
class Storage:
    """What is known of one piece of tensor memory at one moment."""

    origin: str
    """`fresh`, `parameter`, `attribute`, `element`, `external`, `leaf`, `buffer`."""
    kind: Kind
    why: str
    dtype: str = ""
    grad: Grad = "maybe"
    term: int = 0
    """What the memory holds, as a term: equal terms are equal values."""
    graph: int = 0
    """How gradients leave it, as a term; 0 where none do."""
    nodes: frozenset[int] = NO_IDS
    saves: frozenset[int] = NO_IDS
    maybe: frozenset[int] = NO_IDS
    flags: frozenset[str] = frozenset()


def evolved(known: Storage, **changes: Any) -> Storage:
    """A storage of which something else is known; `dataclasses.replace` takes three times as long."""
    get = changes.get
    return Storage(
        get("origin", known.origin),
        get("kind", known.kind),
        get("why", known.why),
        get("dtype", known.dtype),
        get("grad", known.grad),
        get("term", known.term),
        get("graph", known.graph),
        get("nodes", known.nodes),
        get("saves", known.saves),
        get("maybe", known.maybe),
        get("flags", known.flags),
    )


@dataclass(frozen=True, slots=True)
class Spec:
    """A kind that an annotation or a use gives: `tensor`, `number`, `list`, `dict`, ...; `parts` for what it holds."""

    what: str
    parts: tuple[Spec | None, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """Contents of a list or tuple. `open` says that there may be more than are listed."""

    items: tuple[Value, ...]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Fields:
    """Contents of a dict, an instance or a frame: `open` says that there may be more."""

    fields: dict[object, Value] = field(compare=False)
    open: bool = False
    tag: object = None
    """For an instance its class; for a module of torch's own its name and where it was constructed."""


Content = Storage | Items | Fields


@dataclass(frozen=True, slots=True)
class Torch:
    """A module of torch's own: its dotted name and the call that constructed it."""

    name: str
    path: str
    node: ast.AST = field(compare=False)
    kwargs: tuple[tuple[str, Value], ...] = ()


def union(options: tuple[Value, ...], condition: int = 0) -> Value:
    """One value that stands for all options; two tensors stay told apart by the condition."""
    flat: list[Value] = []
    for option in options:
        for part in option.options if isinstance(option, Union) else (option,):
            if part not in flat:
                flat.append(part)
    tensors = [v for v in flat if isinstance(v, Ten)]
    if len(tensors) > 1:
        flat = [v for v in flat if not isinstance(v, Ten)]
        merged = tensors[0]
        for n, other in enumerate(tensors[1:]):
            merged = join_tensors(merged, other, further(condition, n))
        flat.append(merged)
    return flat[0] if len(flat) == 1 else Union(tuple(flat[:6]))


def further(condition: int, n: int) -> int:
    """The condition that leads to option `n + 1`, where `condition` tells more than two apart: another one for each."""
    return -(condition * 64 + n) if condition and n else condition


def join_tensors(a: Ten, b: Ten, condition: int) -> Ten:
    """A tensor that is `a` where the condition held and `b` elsewhere."""
    sids = tuple(dict.fromkeys((*a.sids, *b.sids)))
    view = "multi" if "multi" in (a.view, b.view) else a.view or b.view
    if a == b:
        return a
    return Ten(sids, False, view, a.cut and b.cut, (), (condition, a, b))
