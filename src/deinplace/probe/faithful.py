"""Watches a process that is running already, and changes nothing that it computes: PyTorch's errors stay errors.

Copy-on-write would let a backward pass that PyTorch refuses run through. Here saved tensors stay what they are, and the
version check that PyTorch leaves out for hooked tensors is made in its place, with its words.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from types import TracebackType
from typing import Any

from . import control, detail, frames, modules
from .events import Write
from .state import Counts
from .watch import Handle, Session, storage_key


class State(Counts):
    """What `control` keeps its counts in; nothing is written anywhere."""

    def __init__(self, torch: Any) -> None:
        super().__init__({})
        self.session = Faithful(torch, detail.Look(set(), set()))

    def forget(self) -> None:
        """Start a new account."""
        self.session.forget()
        self.raised = []


class Faithful(Session):
    """A session that protects nothing."""

    def __init__(self, torch: Any, look: detail.Look) -> None:
        super().__init__(torch, look)
        self.tools = os.path.dirname(torch.autograd.__file__) + os.sep
        self.sample = {anomaly: _sample(torch, anomaly) for anomaly in (False, True)}

    def before_write(self, func: Any, written: tuple[tuple[int, str], ...], args: Any, kwargs: Any) -> None:
        """Leave out what autograd's own tools write, such as gradcheck, which moves an input and puts it back."""
        frame = sys._getframe(1).f_back
        while frame is not None and not frames.is_user(frame.f_code.co_filename):
            if frame.f_code.co_filename.startswith(self.tools):
                return
            frame = frame.f_back
        super().before_write(func, written, args, kwargs)

    def protect(self, entries: list[Any], tensor: Any, write: Write) -> None:
        """Note the write on each saved tensor that it touches."""
        for ref in entries:
            handle = ref()
            if handle is not None and storage_key(handle.original) == handle.key:
                self.note(handle, tensor, write)

    def unpack(self, handle: Any) -> Any:
        """Give what is there now, or refuse it as PyTorch does."""
        __tracebackhide__ = True
        if not isinstance(handle, Handle):
            return handle
        if self.probing is not None:
            self.probing.append(handle)
            return handle.original
        if handle.writes is not None:
            self.report(handle)
        if handle.unpack is not None:
            return handle.unpack(handle.packed)
        if handle.refused():
            raise RuntimeError(self.refusal(handle))
        return handle.original

    def refusal(self, handle: Handle) -> str:
        """What PyTorch says, in the words of an error of this torch's own."""
        tensor = handle.original
        sample = self.sample[self.torch.is_anomaly_enabled()]
        return (
            f"{sample[: sample.index('[')]}[{tensor.type()} {list(tensor.shape)}]{self.made_by(handle)} is at version "
            f"{tensor._version}; expected version {handle.version} instead{sample[sample.index('instead') + 7 :]}"
        )

    def made_by(self, handle: Handle) -> str:
        """Which output of which node the saved tensor is: asked of the node that is running."""
        node = self.torch._C._current_autograd_node()
        if node is None:
            return ""
        for name in dir(type(node)):
            if not (name.startswith("_saved_") or name == "saved_tensors"):
                continue
            self.probing = []
            value: Any = None
            with contextlib.suppress(RuntimeError, AttributeError, TypeError, NotImplementedError):
                value = getattr(node, name)
            found, self.probing = self.probing, None
            values = value if isinstance(value, list | tuple) else [value]
            for one, other in zip(found, (v for v in values if v is not None), strict=False):
                if one is handle and getattr(other, "grad_fn", None) is not None:
                    return f", which is output {other.output_nr} of {self.spelt(other.grad_fn.name())},"
        return ""

    def spelt(self, name: str) -> str:
        """A node's name as this torch's message has it."""
        return name if "ExpBackward" in self.sample[False] else re.sub(r"Backward\d*$", "", name)


def _sample(torch: Any, anomaly: bool) -> str:
    """The text of a version error: newer versions name `Exp` where older ones say `ExpBackward0`, and hints vary."""
    with torch.enable_grad(), torch.autograd.set_detect_anomaly(anomaly, check_nan=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torch.ones((), device="cpu", requires_grad=True).exp()
        result.detach().zero_()
        try:
            result.backward()
        except RuntimeError as error:
            return str(error)
    raise AssertionError("torch no longer checks versions")


def attach(torch: Any) -> State:
    """Begin to watch this thread, and those that start later."""
    state = State(torch)
    session = state.session
    modules.install(torch)
    control.compose_user_hooks(torch, session)
    control.stand_aside(torch, session)
    control._follow_backward(state, torch)
    control._enter_everywhere(torch, session, control.mode_class(torch, session))
    return state


def stack_of(trace: TracebackType | None) -> list[dict[str, object]]:
    """The user frames of a traceback as plain data, innermost first."""
    return frames.resolved(frames.traceback_stack(trace))
