"""Enters a mode for as long as the process lives."""

from __future__ import annotations

import sys
from typing import Any

_HELD: list[Any] = []
"""torch 2.4 keeps no reference of its own to a dispatch mode that it takes off its stack for a while."""
_DYNAMO = "torch._dynamo"


def enter(mode: Any) -> None:
    """Enter a mode that nobody leaves."""
    _HELD.append(mode)
    _spare_the_compiler(type(mode))
    mode.__enter__()


def _spare_the_compiler(kind: Any) -> None:
    """Let a mode's operations do without Dynamo until the program itself imports it.

    PyTorch (`TorchDispatchMode.__init_subclass__`) wraps `__torch_dispatch__` to keep Dynamo out of it, and imports
    Dynamo for that at the first operation: over a second in every process, where there is nothing to be kept out.
    """
    wrapped = getattr(kind, "__torch_dispatch__", None)
    plain = getattr(wrapped, "__wrapped__", None)
    if wrapped is None or plain is None:
        return

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dynamo = sys.modules.get(_DYNAMO)
        if dynamo is None or getattr(dynamo.__spec__, "_initializing", False):
            return plain(self, func, types, args, kwargs)
        kind.__torch_dispatch__ = wrapped
        return wrapped(self, func, types, args, kwargs)

    kind.__torch_dispatch__ = dispatch
