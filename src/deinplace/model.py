"""The frozen records that travel along the road: places, events, sites, rewrites, verdicts.

Everything here is picklable, imports nothing but the standard library, and is shared by every stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Applicability = Literal["safe", "unsafe", "display"]
Status = Literal["confirmed", "refuted", "unconfirmed"]


@dataclass(frozen=True, order=True)
class Span:
    """A stretch of source as `ast` and `code.co_positions()` give it.

    Lines are 1-based, columns are 0-based offsets in UTF-8 bytes, the end is exclusive.
    """

    line: int
    col: int
    end_line: int
    end_col: int


@dataclass(frozen=True, order=True)
class Place:
    """A span in a file, and the qualified name of the function whose code stands there."""

    path: str
    span: Span
    function: str = "<module>"


@dataclass(frozen=True)
class TensorInfo:
    """What a report says of a tensor: its shape, dtype (`float32`) and device."""

    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"


@dataclass(frozen=True)
class ModuleInfo:
    """The innermost `nn.Module` of torch's own whose forward an event happened in."""

    cls: str
    """Class name, such as `ReLU`."""
    name: str | None
    """Qualified name inside the outermost module that was running, such as `down.body.2`."""
    inplace: bool
    """True where the module carries a true `inplace` attribute."""
    constructed: tuple[Place, ...] = ()
    """User frames, innermost first, when the module was constructed."""
    flagged: tuple[Place, ...] = ()
    """User frames, innermost first, when its `inplace` attribute was last set."""


@dataclass(frozen=True)
class Event:
    """One write or one save that happened at run time.

    `stack` holds the frames outside torch and the standard library, innermost first.
    """

    op: str
    """Operator such as `aten::add_.Tensor`; for a save, the backward node that keeps the tensor."""
    stack: tuple[Place, ...]
    tensor: TensorInfo | None = None
    module: ModuleInfo | None = None
    optimizer: str | None = None
    """Class name of the optimizer whose `step` made this write."""
    role: Literal["input", "output", ""] = ""
    """For a save: the operation kept one of its inputs, or its own output."""
    expressions: tuple[Span, ...] = ()
    """For a save: side-effect free sub-expressions of the innermost frame that hold the saved storage."""
    names: tuple[str, ...] = ()
    """For a write: names in the innermost frame bound to the very tensor that was written."""
    views: tuple[str, ...] = ()
    """For a write: other names in the innermost frame that share its storage."""

    @property
    def place(self) -> Place | None:
        """The innermost user frame, or None where the whole stack lies inside torch."""
        return self.stack[0] if self.stack else None


@dataclass(frozen=True)
class Conflict:
    """A saved tensor that backward needed after something had overwritten it.

    `kind` is `version` where PyTorch's version counter sees the write and backward raises, `hidden` where it does
    not (`.data`, NumPy) and gradients are silently wrong. `disjoint` says that no element that was saved was also
    written: PyTorch raises all the same.
    """

    kind: Literal["version", "hidden"]
    save: Event
    writes: tuple[Event, ...]
    node: str
    backward: tuple[Place, ...]
    disjoint: bool = False
    count: int = 1

    @property
    def write(self) -> Event:
        """The write that came first: later ones often stop being conflicts once it is mended."""
        return self.writes[0]


@dataclass(frozen=True)
class Raised:
    """A write that autograd refuses on the spot, or another error of its family."""

    category: str
    """One of the categories that `probe.errors.PATTERNS` tells apart, such as `leaf` or `multi-view`."""
    message: str
    stack: tuple[Place, ...]
    op: str = ""
    module: ModuleInfo | None = None
    tensor: TensorInfo | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Why a site is believed to write a tensor, and what that could break."""

    kind: Literal["tensor", "likely", "unknown", "other"] = "unknown"
    kind_why: str = ""
    origin: Literal["fresh", "alias", "view", "parameter", "attribute", "element", "unknown"] = "unknown"
    saved_by: str = ""
    grad_mode: Literal["on", "off", "unknown"] = "unknown"
    hazard: Literal["hazard", "possible", "harmless", "unknown"] = "unknown"
    why: str = ""


@dataclass(frozen=True)
class Site:
    """A place in source that writes a tensor in place.

    `span` is the writing expression or statement, `statement` the logical statement that holds it.
    """

    rule: str
    path: str
    span: Span
    statement: Span
    target: str
    """Source text of what is written, such as `x` or `self.buf[i]`."""
    function: str = "<module>"
    method: str = ""
    """The method, function, operator or flag that writes: `add_`, `+=`, `inplace`, `[]=`, `out`."""
    evidence: Evidence = field(default_factory=Evidence)


@dataclass(frozen=True)
class Edit:
    """Replace `start:end` of a file's decoded text by `new`.

    Offsets count code points of the text as `Source.text` holds it: decoded, newlines as they stand in the file.
    """

    path: str
    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Rewrite:
    """One candidate change for a site. A rule offers several, the cheapest first."""

    rule: str
    title: str
    edits: tuple[Edit, ...]
    applicability: Applicability
    line: int
    path: str
    touches: tuple[tuple[str, str], ...] = ()
    """(path, qualified function name) of each function whose code changes."""
    note: str = ""
    """A sentence for the user: a cost, a caveat, what changes in meaning."""
    keeps_source: bool = False
    """An alias without gradient (`detach()`, `.data`) becomes a copy: the tensor it came from keeps its values."""
    costly: bool = False
    """A copy of a whole tensor in every round of a loop, such as makes it quadratic: tried after all others."""


@dataclass(frozen=True)
class ModeVerdict:
    """What came of a confirmed patch under autocast, checkpointing, a compiler, in float64, or on another device."""

    name: str
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    """What verification found out about a rewrite, or about a whole patch."""

    status: Status
    reason: str
    oracle: str = ""
    driver: str = ""
    device: str = ""
    steps: int = 0
    compared: int = 0
    """How many recorded values were compared."""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    parameters: int = 0
    """How many parameters had their gradients compared."""
    dtype: str = ""
    """Types of the gradients that were compared, such as `float32`."""
    seed: int | None = None
    """What the random generators start from where the program does not seed them itself."""
    tolerance: float | None = None
    """Largest error that passes, relative to a tensor's largest value; coarser types have more, noise adds to it."""
    modes: tuple[ModeVerdict, ...] = ()


@dataclass(frozen=True)
class Memory:
    """Bytes of all tensors at their peak, before and after, in the first steps; shared storages count once.

    `kept` is what the graph holds for backward when that starts, leaves left out.
    """

    bytes_before: int
    bytes_after: int
    kept_before: int | None = None
    kept_after: int | None = None
    rewrites: int = 1
    """How many rewrites made the difference together; one where a rewrite was run by itself."""
    seconds_before: float | None = None
    """Median time of a step under the probe; None where the two were not run alike."""
    seconds_after: float | None = None


@dataclass(frozen=True)
class Trial:
    """One rewrite that was tried, and what came of it."""

    rewrite: Rewrite
    verdict: Verdict


@dataclass(frozen=True)
class Finding:
    """A fault at a site, what was done about it, and why.

    `state` is `fixed` (written), `fixable` (a dry run would write it), `unsafe` (a rewrite exists but needs
    `--unsafe`), `rolled-back` (every rewrite was refuted), `advised` (no rewrite: a person has to decide) or
    `suppressed`.
    """

    rule: str
    name: str
    path: str
    span: Span
    message: str
    state: Literal["fixed", "fixable", "unsafe", "rolled-back", "advised", "suppressed"]
    reason: str = ""
    """A short stable code for a state other than fixed, such as `meaning-differs` or `not-editable`."""
    advice: str = ""
    severity: Literal["error", "warning", "note"] = "error"
    evidence: Evidence = field(default_factory=Evidence)
    conflict: Conflict | None = None
    raised: Raised | None = None
    rewrite: Rewrite | None = None
    verdict: Verdict | None = None
    trials: tuple[Trial, ...] = ()
    memory: Memory | None = None


@dataclass(frozen=True)
class FileChange:
    """A file before and after a patch, as decoded text."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Problem:
    """Something that kept a file or a run from being handled: where, what, and what to do."""

    path: str
    message: str
    line: int = 0
    code: str = ""


@dataclass(frozen=True)
class Outcome:
    """All that one `check`, `run` or `fix` has to say; every report format prints this and nothing else."""

    command: Literal["check", "run", "fix", "verify", "audit"]
    findings: tuple[Finding, ...] = ()
    changes: tuple[FileChange, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    memory: Memory | None = None
    """What all rewrites together cost."""
    written: bool = False
    runs: int = 0
    """How many times the user's program was run."""
    driver: str = ""
    driver_exit: int | None = None
    files: int = 0
    """How many files were looked at."""
