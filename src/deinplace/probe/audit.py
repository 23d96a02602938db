"""Notes what each in-place operation saves, and which operations could have written their input without harm.

An operation could be in place where its input is an intermediate result of the same shape and type, autograd has saved
nothing of that memory, and no later operation reads it. All three are seen, not guessed; but they are seen in this run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from . import frames, held, modules
from .watch import storage_key

PURGE = 2000
"""After so many operations, storages that are gone are forgotten."""


class Site:
    """One operation at one line, and all its executions."""

    def __init__(self, stack: frames.Stack, op: str, writes: bool, module: dict[str, object] | None) -> None:
        self.stack, self.op, self.writes, self.module = stack, op, writes, module
        self.count = 0
        self.bytes = 0
        self.why = ""
        """What forbids to write in place; empty where nothing does."""

    def plain(self) -> dict[str, Any]:
        """As data for the account."""
        return {
            "stack": frames.resolved(self.stack),
            "op": self.op,
            "writes": self.writes,
            "module": self.module,
            "count": self.count,
            "bytes": self.bytes,
            "why": self.why,
        }


class Auditor:
    """Every site of one process."""

    def __init__(self, torch: Any, state: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self.torch, self.state, self.weak = torch, state, StorageWeakRef
        self.sites: dict[Any, Site] = {}
        self.pending: dict[int, tuple[Any, list[Site]]] = {}
        """By storage that an operation could have written: a weak reference, and the sites that could."""
        self.twins: dict[Any, bool] = {}
        self.calls = 0

    def plain(self) -> list[dict[str, Any]]:
        """As data for the account."""
        return [site.plain() for site in self.sites.values()]

    def site(self, op: str, writes: bool) -> Site | None:
        """The site of the operation that runs now; None inside torch, and for what optimizers write."""
        frame = sys._getframe(2)
        stack = frames.user_stack(2, frame)
        if not stack:
            return None
        key = (stack, op)
        if key not in self.sites:
            if modules.optimizer(frame, self.torch) is not None:
                return None
            self.sites[key] = Site(stack, op, writes, modules.running(frame, self.torch))
        return self.sites[key]

    def wrote(self, op: str, tensor: Any) -> None:
        """An operation is about to write a tensor in place."""
        site = self.site(op, True)
        if site is not None:
            site.count += 1
            site.bytes = max(site.bytes, tensor.numel() * tensor.element_size())

    def read(self, args: Any) -> None:
        """An operation reads some tensors: those could not have been written before."""
        for tensor in self.tensors(args):
            known = self.pending.get(storage_key(tensor) or 0)
            if known is not None:
                for site in known[1]:
                    site.why = site.why or "its input is read again"

    def saved(self, key: int | None) -> None:
        """Autograd has saved a storage."""
        known = self.pending.get(key or 0)
        if known is not None:
            for site in known[1]:
                site.why = site.why or "autograd keeps its input"

    def computed(self, func: Any, args: Any, result: Any) -> None:
        """An operation has made a new tensor: could it have written its input?"""
        if not args or not self.fits(func, args[0], result):
            return
        site = self.site(f"{func._schema.name}.{func._overloadname}", False)
        if site is None:
            return
        site.count += 1
        site.bytes = max(site.bytes, result.numel() * result.element_size())
        key = storage_key(args[0])
        if key is None or self.state.session.live.get(key):
            site.why = site.why or "autograd keeps its input"
            return
        known = self.pending.setdefault(key, (self.weak(args[0].untyped_storage()), []))  # type: ignore[no-untyped-call]
        known[1].append(site)
        self.purge()

    def fits(self, func: Any, given: Any, made: Any) -> bool:
        """An intermediate result that is no view, and a result of the same shape and type in memory of its own."""
        tensor = self.torch.Tensor
        if not isinstance(given, tensor) or not isinstance(made, tensor) or not self.has_twin(func):
            return False
        alike = given.shape == made.shape and given.dtype == made.dtype and given.device == made.device
        own = given.grad_fn is not None and not given._is_view() and storage_key(given) != storage_key(made)
        return bool(alike and own and given.numel())

    def has_twin(self, func: Any) -> bool:
        """Whether the operator has an in-place form, by its name and overload."""
        if func not in self.twins:
            space, _, name = func._schema.name.partition("::")
            packet = getattr(getattr(self.torch.ops, space, None), f"{name}_", None)
            self.twins[func] = packet is not None and func._overloadname in packet.overloads()
        return self.twins[func]

    def tensors(self, values: Any) -> Iterator[Any]:
        """The tensors among the arguments of an operation."""
        for value in values:
            if isinstance(value, self.torch.Tensor):
                yield value
            elif isinstance(value, list | tuple):
                yield from self.tensors(value)

    def purge(self) -> None:
        """Forget storages that nobody can read any more. A weak reference keeps their address from being used again."""
        self.calls += 1
        if self.calls % PURGE == 0:
            self.pending = {key: entry for key, entry in self.pending.items() if not entry[0].expired()}


def start(state: Any, torch: Any) -> Auditor:
    """Look at every operation of this thread's forward passes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    auditor = Auditor(torch, state)
    session = state.session
    pack = session.pack

    def packed(tensor: Any) -> Any:
        auditor.saved(storage_key(tensor))
        return pack(tensor)

    torch._C._autograd._pop_saved_tensors_default_hooks()
    torch._C._autograd._push_saved_tensors_default_hooks(packed, session.unpack)

    class Audit(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if state.in_backward():
                return func(*args, **kwargs)
            auditor.read((*args, *kwargs.values()))
            written = session.written(func)
            for position, name in written:
                value = args[position] if 0 <= position < len(args) else kwargs.get(name)
                for tensor in auditor.tensors([value]):
                    auditor.wrote(f"{func._schema.name}.{func._overloadname}", tensor)
            result = func(*args, **kwargs)
            if not written:
                auditor.computed(func, args, result)
            return result

    held.enter(Audit())  # type: ignore[no-untyped-call]
    return auditor
