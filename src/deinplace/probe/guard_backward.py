"""Watches one block of a program, and raises where backward needs what a write in it has overwritten."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import control, frames
from .detail import Look
from .errors import classify
from .events import Conflicts, Write, describe
from .watch import Handle, Session

Entry = dict[str, Any]
MakeError = Callable[[Entry], Exception]
UNSEEN = "foreign::after the watched block"
"""What stands for the operator of a write that happened where nobody watched."""


class Guard(Session):
    """A session that stops backward at the first saved tensor that was overwritten, as PyTorch does."""

    def __init__(self, make: MakeError, hidden: bool) -> None:
        super().__init__(torch, Look(set(), set()))
        self.make, self.hidden = make, hidden

    def unpack(self, handle: Any) -> Any:
        """Give the saved tensor, or raise."""
        if not isinstance(handle, Handle) or self.probing is not None:
            return super().unpack(handle)
        raises = handle.refused()
        lost = bool(handle.writes) and not handle.disjoint
        if raises or (lost and self.hidden):
            raise self.make(self._entry(handle, raises)) from (RuntimeError(_plain(handle)) if raises else None)
        return super().unpack(handle)

    def _entry(self, handle: Handle, raises: bool) -> Entry:
        """The conflict as the account of a run has it."""
        if not handle.writes:
            handle.writes = [Write(UNSEEN, (), describe(handle.original), None, None, [], [])]
        node = torch._C._current_autograd_node()
        found = Conflicts()
        found.add(
            handle,
            kind="version" if raises else "hidden",
            node=node.name() if node is not None else "",
            role=self.role(node, handle),
            backward=frames.user_stack(8),
        )
        return found.plain()[0]


def _plain(handle: Handle) -> str:
    """PyTorch's own words, which its check would have raised had no hook been in its place."""
    tensor = handle.original
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; "
        f"expected version {handle.version} instead."
    )


@contextlib.contextmanager
def guarded(make: MakeError, refused: Callable[[Entry, RuntimeError], Exception], hidden: bool) -> Iterator[None]:
    """Watch this thread for the time of a block. What it changes in torch is put back at its end."""
    graph = torch.autograd.graph
    session = Guard(make, hidden)
    hooks = graph.saved_tensors_hooks(session.pack, session.unpack)
    kept = graph.saved_tensors_hooks.__init__, graph.disable_saved_tensors_hooks
    control.compose_user_hooks(torch, session)
    control.stand_aside(torch, session)
    try:
        with control.mode_class(torch, session)(), hooks:
            yield
    except RuntimeError as error:
        category = classify(str(error))
        if category is None or type(error) is not RuntimeError:
            raise
        stack = frames.resolved(frames.traceback_stack(error.__traceback__))
        raise refused({"category": category, "stack": stack}, error) from error
    finally:
        graph.saved_tensors_hooks.__init__, graph.disable_saved_tensors_hooks = kept  # type: ignore[method-assign]


@contextlib.contextmanager
def repaired() -> Iterator[None]:
    """A block in which backward sees what was saved, whatever has overwritten it."""
    session = Session(torch, Look(set(), set()))
    hooks = torch.autograd.graph.saved_tensors_hooks(session.pack, session.unpack)
    with control.mode_class(torch, session)(), hooks:
        yield
