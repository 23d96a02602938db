"""Finds out whether anybody reads a tensor that a call left behind unlike the original did."""

from __future__ import annotations

from typing import Any

from . import frames, held
from .watch import storage_key

OVERWRITES = ("copy_", "fill_", "zero_", "normal_", "uniform_", "set_")
"""Operators that write their first argument without reading it."""


class Watcher:
    """Marks storages, and notes the first reader of each outside backward."""

    def __init__(self, torch: Any, state: Any, marks: list[list[Any]]) -> None:
        self.torch, self.state = torch, state
        self.wanted = {(name, call, label) for name, call, label in marks}
        self.marked: dict[int, tuple[Any, Any]] = {}
        self.found: list[dict[str, Any]] = []
        self.seen: set[Any] = set()

    def mark(self, name: str, call: int, reach: dict[str, Any]) -> None:
        """A call has returned: hold on to the storages that differ from the original's."""
        for label, tensor in reach.items():
            key = storage_key(tensor)
            if key is not None and (name, call, label) in self.wanted:
                self.marked[key] = ((name, call, label), tensor.detach())

    def look(self, func: Any, args: Any, kwargs: Any) -> None:
        """An operation is about to run."""
        if self.state.in_backward():
            return
        base = func._schema.name.rsplit("::", 1)[-1]
        skip = 1 if base in OVERWRITES else 0
        for value in (*args[skip:], *(v for k, v in kwargs.items() if k != "out")):
            for tensor in value if isinstance(value, list | tuple) else (value,):
                key = storage_key(tensor)
                if key in self.marked and self.marked[key][0] not in self.seen:
                    mark = self.marked[key][0]
                    self.seen.add(mark)
                    self.found.append({"mark": list(mark), "stack": frames.resolved(frames.user_stack(4))})


def start(state: Any, torch: Any, marks: list[list[Any]]) -> Watcher:
    """Begin looking at every operation's inputs."""
    from torch.utils._python_dispatch import TorchDispatchMode

    watcher = Watcher(torch, state, marks)

    class Look(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if watcher.marked:
                watcher.look(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    held.enter(Look())  # type: ignore[no-untyped-call]
    return watcher
