"""What an abstract run notes down: saves, writes, frames, and where its caches ended."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from deinplace.analysis.index import ClassInfo, ModuleInfo
from deinplace.analysis.memory import Memory
from deinplace.analysis.source import Scope
from deinplace.analysis.values import Cut, Grad, Kind, Value
from deinplace.model import Place, Span


class UnreachedError(Exception):
    """Nothing gets past this point: a call that always raises."""


class ExhaustedError(Exception):
    """The abstract run took more steps than it may."""


@dataclass(frozen=True)
class Save:
    """One tensor that an operation keeps for backward."""

    node: int
    sid: int
    op: str
    place: Place
    expression: Span | None
    role: str
    stack: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Write:
    """One write that the abstract run made."""

    place: Place
    stack: tuple[Place, ...]
    form: str
    op: str
    kind: Kind
    why: str
    origin: str
    view: str
    grad_on: bool
    grad: Grad
    leaf: bool
    time: int
    hits: tuple[int, ...] = ()
    maybe: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    flagged: tuple[Place, ...] = ()
    module: str = ""
    cut: Cut = ""
    flags: frozenset[str] = frozenset()
    rhs: Grad = "no"
    """Whether what is written requires gradients."""
    misfit: str = ""
    """`inference`, `cast` or `expanded`: what torch refuses to write whatever autograd knows of it."""
    cast: bool = False
    """Whether what is written may lose a dtype, or a shape, that a new tensor would have."""
    node: ast.AST | None = field(default=None, compare=False, repr=False)
    sids: tuple[int, ...] = field(default=(), compare=False, repr=False)


@dataclass
class Loop:
    """Where `break` and `continue` of a loop that is being run lead to."""

    breaks: list[Memory] = field(default_factory=list)
    continues: list[Memory] = field(default_factory=list)


@dataclass
class Frame:
    """One function, class body or module that is being run."""

    fid: int
    module: ModuleInfo
    scope: Scope
    function: str
    owner: ClassInfo | None = None
    closure: tuple[int, ...] = ()
    node: ast.AST | None = None
    returns: list[tuple[Value, Memory]] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    yields: list[Value] = field(default_factory=list)
    left: int = 0
    """How many steps there were when it began."""


@dataclass(frozen=True)
class Settled:
    """Where the caches of things that live in memory ended before a unit of its own: they only grow."""

    last: int
    sizes: tuple[int, ...]


Added = tuple[tuple[tuple[Any, Any], ...], ...]
"""What each of those caches got since."""
