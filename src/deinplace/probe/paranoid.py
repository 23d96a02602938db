"""Finds writes that go past torch: through NumPy, DLPack, raw pointers or foreign kernels.

No operator runs, so no schema tells of the write. Each saved tensor is copied when it is saved and compared with its
copy when backward reads it. The line to show is the one that handed the memory out, or took it in.
"""

from __future__ import annotations

import sys
from typing import Any

from . import frames
from .events import Write

FOREIGN = "foreign"
"""What stands for the operator of a write that torch did not make."""


class Paranoia:
    """Which storages are known outside torch, and since which line."""

    def __init__(self, torch: Any, key_of: Any) -> None:
        self.torch, self.key_of = torch, key_of
        self.known: dict[int, tuple[str, frames.Stack]] = {}
        for name in ("numpy", "__array__", "__dlpack__", "data_ptr"):
            setattr(torch.Tensor, name, self._handed_out(getattr(torch.Tensor, name), name))
        for name in ("from_numpy", "as_tensor", "asarray", "from_dlpack", "frombuffer"):
            setattr(torch, name, self._taken_in(getattr(torch, name), name))

    def _handed_out(self, plain: Any, name: str) -> Any:
        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(tensor, name, sys._getframe(1))
            return plain(tensor, *args, **kwargs)

        return _like(call, plain)

    def _taken_in(self, plain: Any, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            tensor = plain(*args, **kwargs)
            if not any(tensor is given for given in args):
                self._note(tensor, name, sys._getframe(1))
            return tensor

        return _like(call, plain)

    def _note(self, tensor: Any, name: str, frame: Any) -> None:
        key = self.key_of(tensor)
        direct = frames.is_user(frame.f_code.co_filename)
        if key is not None and (direct or name == "__array__"):
            self.known.setdefault(key, (name, frames.user_stack(8, frame)))

    def copied(self, tensor: Any) -> Any:
        """The value that is saved now, out of reach."""
        return tensor.detach().clone()

    def changed(self, handle: Any) -> bool:
        """Whether the saved tensor no longer equals its copy; a NaN equals a NaN."""
        now, then = handle.original.detach(), handle.data
        if self.torch.equal(now, then):
            return False
        return bool(((now != then) & ~((now != now) & (then != then))).any())

    def write(self, handle: Any, tensor: dict[str, object]) -> Write:
        """What is known of a write that torch did not see."""
        name, stack = self.known.get(handle.key, (FOREIGN, ()))
        return Write(f"{FOREIGN}::{name}", stack, tensor, None, None, [], [])


def _like(call: Any, plain: Any) -> Any:
    call.__doc__, call.__name__ = plain.__doc__, plain.__name__
    call.__wrapped__ = plain
    return call
