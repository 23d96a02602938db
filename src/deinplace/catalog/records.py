"""The records of the catalog: what one Tensor method, function, module or operator of torch does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["data", "metadata", "autograd", "none"]
Returns = Literal["self", "view", "views", "maybe_alias", "fresh", "other", "unknown"]


@dataclass(frozen=True)
class InplaceParameter:
    """Where a signature takes `inplace`."""

    position: int
    """0-based among positional arguments, `self` of a module's `__init__` not counted."""
    default: bool
    name: str = "inplace"
    """Its keyword."""


@dataclass(frozen=True)
class Outputs:
    """The tensors of a tuple that an operation gives, each in memory of its own."""

    differentiable: tuple[bool, ...]
    """For each, whether it was seen to require gradients: values do, indices do not."""
    names: tuple[str, ...] = ()
    """What the tuple calls them, such as `values` and `indices`; none where it is a plain one."""
    saves: frozenset[str] = frozenset()
    """As `saves` of the operation, for the calls that gave a tuple."""
    always: bool = True
    """No call gave a single tensor, as `max` does without `dim`."""


@dataclass(frozen=True)
class FunctionInfo:
    """What a function of torch does, by its public name such as `torch.relu_` or `torch.nn.functional.relu`.

    Everything here was seen when samples ran on the CPU, together with what operator schemas declare; where
    `ran` is false no sample was accepted and only the schemas speak. Argument names are Python's: those of
    `parameters`, where a method's first is `self` and a torch function's usually `input`.
    """

    name: str
    parameters: tuple[str, ...] = ()
    """Names by position. Where overloads differ (`max(dim)`, `max(other)`), the name of a tensor counts."""
    writes: tuple[str, ...] = ()
    """Arguments whose elements it overwrites in its default form (without `inplace=True` or `out=`)."""
    in_place: bool = False
    """It changes its first argument: elements, metadata or autograd state (`effect` says which)."""
    effect: Effect = "none"
    """`data`: elements are overwritten; `metadata`: shape, strides or storage (`squeeze_`, `resize_`, `set_`);
    `autograd`: only requires_grad, history or hooks (`detach_`, `requires_grad_`)."""
    twin: str | None = None
    """Functional twin, proved by running both on the same samples and seeds: equal values, argument untouched.
    The bare name of a Tensor method (`add`) or a function's qualified name (`torch.fill`)."""
    namesake: str | None = None
    """What looks like the twin and is none: it gives other values (`bernoulli`), or never ran beside it."""
    twin_keeps_dtype: bool = False
    """The twin's dtype is the argument's when no argument's dtype promotes it. False for `gt_`: `gt` gives bool."""
    twin_keeps_shape: bool = False
    twin_promotes: bool = False
    """With a wider argument the twin's result is wider than what is written: `half.add_(float32)` stays half."""
    random: bool = False
    """It draws from the random generator: another seed writes other elements."""
    returns: Returns = "unknown"
    """`self`: the argument itself; `view`: always of an argument's storage; `views`: several of one storage (no
    in-place write allowed where autograd tracks them); `maybe_alias`: argument, view or copy, by its data
    (`contiguous`, `reshape`, `to`); `fresh`: a new storage; `other`: no tensor; `unknown`: neither ran nor declared."""
    aliases: tuple[str, ...] = ()
    """Arguments that a result was seen to share memory with (NumPy arrays count: `numpy`, `from_numpy`)."""
    factory: bool = False
    """It can make a tensor without being given one (`torch.zeros`)."""
    saves: frozenset[str] = frozenset()
    """What some sample saved for backward: arguments by name, `result` for the first result, `result1` for the second.
    An in-place form's `result` is the argument after the write."""
    saves_alone: frozenset[str] = frozenset()
    """The same for calls in which only one argument was a tensor: `x * y` saves both, `x * 2` nothing."""
    outputs: Outputs | None = None
    """What it gives in a tuple, in some calls or in all of them; None for a single tensor and for views."""
    inplace: InplaceParameter | None = None
    inplace_writes: tuple[str, ...] = ()
    """What `inplace=True` overwrites."""
    saves_inplace: frozenset[str] = frozenset()
    """What is saved under `inplace=True`."""
    out: bool = False
    """It takes `out=`."""
    ran: bool = False

    @property
    def twin_exact(self) -> bool:
        """The twin gives the same value, dtype and shape for every sample without type promotion."""
        return self.twin is not None and self.twin_keeps_dtype and self.twin_keeps_shape

    @property
    def saves_result(self) -> bool:
        """Backward needs (one of) its results: they must not be overwritten."""
        return any(name.startswith("result") for name in self.saves)

    def parameter(self, position: int, keyword: str | None = None) -> str | None:
        """Name of the parameter that an argument binds to, by keyword or else by position."""
        if keyword is not None:
            return keyword
        if position < len(self.parameters):
            return self.parameters[position]
        return self.parameters[-1] if self.parameters else None

    def saves_argument(self, position: int, keyword: str | None = None) -> bool:
        """True where some call keeps this argument for backward."""
        return self.parameter(position, keyword) in self.saves


@dataclass(frozen=True)
class MethodInfo(FunctionInfo):
    """What a Tensor method, operator method or attribute does; positions count `self` as 0."""

    attribute: bool = False
    """Read without a call: `x.T`, `x.data`."""


@dataclass(frozen=True)
class ModuleEntry:
    """What a module class of torch.nn does."""

    name: str
    inplace: InplaceParameter | None = None
    """Where the constructor takes `inplace`."""
    functional: str | None = None
    """The one public function that its forward calls, where it calls exactly one."""
    saves: frozenset[str] = frozenset()
    """What a forward saved: names of forward's parameters, of Parameters and buffers, `result`, `result1` ..."""
    saves_inplace: frozenset[str] = frozenset()
    """The same with `inplace=True`."""
    returns: Returns = "unknown"
    """`view` and `maybe_alias` as for functions (`Identity`, `Dropout` in evaluation), else `fresh`."""
    ran: bool = False


@dataclass(frozen=True)
class OperatorInfo:
    """What the schema of an overload such as `aten::add_.Tensor` declares."""

    name: str
    writes: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    """Places of `writes` among all arguments of the schema."""
    out: bool = False
    aliases: tuple[str, ...] = ()
    """Arguments that a result is, or may be, a view of, those written left out."""
    many: bool = False
    """The results are several views."""


@dataclass(frozen=True)
class Augmented:
    """An augmented assignment such as `+=` on a Tensor."""

    symbol: str
    method: str | None
    """`__iadd__`; None where Tensor has none and Python falls back to rebinding (`@=`)."""
    in_place: MethodInfo | None
    """What the in-place method does, its twin included."""
    plain: MethodInfo
    """What `__add__` does: `saves` is what `x = x + r` saves."""
