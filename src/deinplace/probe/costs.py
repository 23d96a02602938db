"""Counts what a run costs: bytes of all tensors at their peak, bytes that a graph keeps for backward, time of a step.

Every operation's tensors are looked at, and their storages counted once each, from the first sight to their death.
That is exact for what tensors hold; scratch memory inside an operation, and an allocator's reserve, is not seen.
"""

from __future__ import annotations

import functools
import statistics
import time
import weakref
from collections.abc import Iterator
from typing import Any

from . import held
from .watch import storage_key

SAMPLES = 3
"""So many backward calls are measured: a training loop repeats itself."""
NODES = 50_000
"""Graphs beyond this size are not walked."""
STEPS = 50


class Costs:
    """What one process has held at most so far."""

    def __init__(self, torch: Any, state: Any) -> None:
        self.torch, self.state = torch, state
        self.samples = 0
        self.live: dict[int, tuple[int, Any]] = {}
        """Bytes of each storage, and the reference that tells of its death."""
        self.now = self.peak = 0
        self.kept: int | None = 0
        self.counting = True
        self.seconds: list[float] = []
        self.spent = 0.0
        """Seconds that recording itself took since the last step."""
        self.since: float | None = None
        self.packed = False
        """True once the program has hooks of its own for saved tensors: asking what they keep would run them."""
        self._notice_hooks()
        if state.settings.get("mode") != "compile":  # nothing is compiled below a dispatch mode
            _count(torch, self)

    def _notice_hooks(self) -> None:
        hooks = self.torch.autograd.graph.saved_tensors_hooks
        plain = hooks.__init__

        def __init__(hook: Any, *args: Any, **kwargs: Any) -> None:
            self.packed = True
            plain(hook, *args, **kwargs)

        hooks.__init__ = __init__

    def plain(self) -> dict[str, Any] | None:
        """As data for the account; None where nothing was measured."""
        if not self.samples or not self.peak:
            return None
        step = statistics.median(self.seconds[1:] or self.seconds) if self.seconds else None
        return {"peak": self.peak, "kept": self.kept, "seconds": step, "watched": self.state.session is not None}

    def see(self, value: Any) -> None:
        """Count the storages of the tensors in what an operation took or gave."""
        if isinstance(value, list | tuple):
            for item in value:
                self.see(item)
        elif issubclass(type(value), self.torch.Tensor) and value.device.type != "meta":
            self._add(value)

    def _add(self, tensor: Any) -> None:
        key = storage_key(tensor)
        if key is None:
            return
        storage = tensor.untyped_storage()
        known = self.live.get(key)
        try:
            size = storage.nbytes()
            if known is not None and known[0] == size:
                return
            reference = weakref.ref(storage, functools.partial(self._died, key)) if known is None else known[1]
        except (RuntimeError, NotImplementedError, TypeError):
            return  # memory that only looks like memory, as wrappers of tensors have it
        self.now += size - (known[0] if known is not None else 0)
        self.live[key] = size, reference
        self.peak = max(self.peak, self.now)

    def _died(self, key: int, reference: Any) -> None:
        known = self.live.get(key)
        if known is not None and known[1] is reference:
            del self.live[key]
            self.now -= known[0]

    def before_backward(self, roots: list[Any]) -> None:
        """See what the graph keeps, if this is one of the first calls; after those, stop counting."""
        if self.samples >= SAMPLES:
            self.counting = False
            self.live.clear()
            return
        self.samples += 1
        found = None if self.packed or self.kept is None else self._kept(roots)
        self.kept = None if found is None else max(self.kept or 0, found)

    def after_step(self) -> None:
        """Measure the time since the last step."""
        now = time.perf_counter()
        if self.since is not None and len(self.seconds) < STEPS:
            self.seconds.append(max(now - self.since - self.spent, 0.0))
        self.since, self.spent = now, 0.0

    def _kept(self, roots: list[Any]) -> int | None:
        """Bytes that the graph below `roots` has saved, leaves left out; None where it is too large to be walked."""
        sizes: dict[int, int] = {}
        leaves: set[int | None] = set()
        seen: set[Any] = set()
        stack = [root.grad_fn for root in roots if root.grad_fn is not None]
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if len(seen) > NODES:
                return None
            if getattr(node, "variable", None) is not None:
                leaves.add(storage_key(node.variable))
            for tensor in self._saved(node):
                key = storage_key(tensor)
                if key is not None and tensor.dim():  # a plain number, such as the 2 in `x * 2`, is kept as a tensor
                    sizes[key] = tensor.untyped_storage().nbytes()
            stack.extend(following for following, _ in node.next_functions)
        return sum(size for key, size in sizes.items() if key not in leaves)

    def _saved(self, node: Any) -> Iterator[Any]:
        """The tensors that one node has saved; those that a watched run has replaced as they were."""
        session = self.state.session
        for name in _names(type(node).__mro__):
            if session is not None:
                session.probing = []
            try:
                value = getattr(node, name)
            except (RuntimeError, AttributeError, TypeError, NotImplementedError):
                continue  # freed already
            finally:
                handles = session.probing if session is not None else None
                if session is not None:
                    session.probing = None
            if handles is not None:
                yield from (handle.original for handle in handles)
                continue
            for item in value if isinstance(value, tuple | list) else (value,):
                if issubclass(type(item), self.torch.Tensor):
                    yield item


def _count(torch: Any, costs: Costs) -> None:
    """Look at each operation of this thread, inside of whatever else looks at them."""
    from torch.utils._python_dispatch import TorchDispatchMode

    lists: dict[Any, tuple[int, ...]] = {}
    aside = torch._C.DisableTorchFunctionSubclass

    class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            written = lists.get(func)
            if written is None:
                written = lists[func] = _written_lists(func)
            values = [args[i] for i in written if i < len(args)]
            result = counted(torch, values, func, args, kwargs) if values else func(*args, **kwargs)
            if costs.counting:
                with aside():  # subclasses of tensors need not know that they are looked at
                    costs.see(args)
                    costs.see(result)
            return result

    held.enter(Count())  # type: ignore[no-untyped-call]


def _written_lists(func: Any) -> tuple[int, ...]:
    """Positions of the lists of tensors that an operator writes, from its schema."""
    return tuple(
        i
        for i, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write and "List" in argument.type.kind()
    )


def counted(torch: Any, lists: list[Any], func: Any, args: Any, kwargs: Any) -> Any:
    """Run a foreach operator. Below a dispatch mode those leave version counters alone that they bump otherwise."""
    before = [tensor._version for tensors in lists for tensor in tensors]
    result = func(*args, **kwargs)
    for tensor, version in zip((t for tensors in lists for t in tensors), before, strict=True):
        if tensor._version == version:
            torch.autograd.graph.increment_version(tensor)
    return result


@functools.cache
def _names(bases: tuple[type, ...]) -> tuple[str, ...]:
    """The attributes under which a kind of node shows what it saved; those of custom Functions are `saved_tensors`."""
    kind = bases[0]
    found = tuple(name for name in dir(kind) if name.startswith("_saved_"))
    return (*found, "saved_tensors") if hasattr(kind, "saved_tensors") else found
