"""Watches autograd: what it saves, what overwrites a saved tensor, and which of those backward then needs.

Saves come from `saved_tensors_hooks`, writes from a `TorchDispatchMode` that reads operator schemas. Both are keyed by
storage, so that `.data` aliases and views at other offsets are seen. A saved tensor is cloned at the moment something
is about to overwrite it (copy-on-write): the program runs on with the gradients that its code meant.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from . import detail, frames, modules
from .events import Conflicts, Save, Write, describe
from .paranoid import Paranoia

MAX_WRITES = 8
"""Writes remembered for one saved tensor: the first is the one to mend, the others are shown."""


class Handle:
    """What autograd keeps in place of a saved tensor; it dies with the graph."""

    __slots__ = (
        "__weakref__",
        "data",
        "disjoint",
        "key",
        "original",
        "packed",
        "save",
        "session",
        "stack",
        "unchecked",
        "unpack",
        "version",
        "writes",
    )

    def __init__(self, session: Session, tensor: Any, key: int, stack: frames.Stack) -> None:
        self.session = session
        self.data = self.original = tensor
        self.version = tensor._version
        self.key = key
        self.stack = stack
        self.writes: list[Write] | None = None
        self.unpack: Any = None
        self.packed: Any = None
        self.unchecked = False
        """Whether nobody compares versions when it is read: a checkpoint that keeps what it computed again."""
        self.disjoint = True
        self.save: Save | None = None

    def refused(self) -> bool:
        """Whether autograd finds another version than it saved, and raises."""
        return not self.unchecked and self.original._version != self.version

    def __del__(self) -> None:
        live = self.session.live
        entries = live.get(self.key)
        if entries is not None:
            entries.pop(id(self), None)
            if not entries:
                live.pop(self.key, None)


class Session:
    """State of one watched process."""

    def __init__(self, torch: Any, look: detail.Look, paranoia: Paranoia | None = None) -> None:
        self.torch = torch
        self.paranoia = paranoia
        self.look = look
        self.live: dict[int, dict[int, Any]] = {}
        self.schemas: dict[Any, tuple[tuple[int, str], ...]] = {}
        self.conflicts = Conflicts()
        self.probing: list[Handle] | None = None
        self.held: tuple[Any, Handle] | None = None
        """What a checkpoint holds in the place of the saved tensor that is being read, and that tensor's handle."""
        self.overlaps: dict[Any, bool] = {}
        self.notes: set[str] = set()
        self.local = threading.local()
        self.saves = 0
        self.sites: dict[Any, list[dict[str, object]]] | None = None
        """Where in-place operations ran, where that was asked for."""

    def forget(self) -> None:
        """Leave what was seen so far to another process's account."""
        self.conflicts = Conflicts()
        self.saves = 0

    # ---- saves

    def pack(self, tensor: Any) -> Any:
        """Pack hook: keep the tensor, remember who saved it."""
        key = storage_key(tensor)
        if key is None:
            return tensor
        handle = Handle(self, tensor, key, frames.user_stack(4, sys._getframe(1)))
        entries = self.live.get(key)
        if entries is None:
            entries = self.live[key] = {}
        entries[id(handle)] = weakref.ref(handle)
        self.saves += 1
        if self.paranoia is not None:
            handle.data = self.paranoia.copied(tensor)
        if self.look.saves:
            handle.save = self.look.save(handle.stack, sys._getframe(1), key, storage_key)
        return handle

    def unpack(self, handle: Any) -> Any:
        """Unpack hook: give the value that was saved, and report when something had overwritten it."""
        if not isinstance(handle, Handle):
            return handle
        if self.probing is not None:
            self.probing.append(handle)
            return handle.data
        if handle.writes is None and self.paranoia is not None and self.paranoia.changed(handle):
            handle.writes, handle.disjoint = [self.paranoia.write(handle, describe(handle.original))], False
        if handle.writes is not None:
            self.report(handle)
        if handle.unpack is not None:
            return handle.unpack(_replaced(handle))
        return _given(handle)

    def unpack_held(self, holder: Any, handle: Handle) -> Any:
        """Give the value that a checkpoint computed again and holds in the place of a saved tensor."""
        self.held = (holder, handle)
        try:
            return self.unpack(handle)
        finally:
            self.held = None

    def asked(self, holder: Any) -> Any:
        """Who saved what a checkpoint holds, while the node that is being run is asked for its saved tensors.

        Raises:
            RuntimeError: it is none that is known; for its value the checkpoint would compute all again.
        """
        if self.held is None or self.held[0] is not holder or self.probing is None:
            raise RuntimeError("the probe asks who saved a value, not for the value")
        self.probing.append(self.held[1])
        return self.held[1].data

    def report(self, handle: Handle) -> None:
        """Count the conflict between a save that backward is reading and the writes that came after it."""
        raises = handle.refused()
        if handle.disjoint and not raises:
            return
        node = self.torch._C._current_autograd_node()
        self.conflicts.add(
            handle,
            kind="version" if raises else "hidden",
            node=node.name() if node is not None else "",
            role=self.role(node, handle),
            backward=getattr(self.local, "backward", ()) or frames.user_stack(8),
        )

    def role(self, node: Any, handle: Handle) -> str:
        """Whether a node saved its result or an input: asked of the node's own `_saved_*` attributes."""
        if node is None:
            return ""
        for name in dir(type(node)):
            if not name.startswith("_saved_"):
                continue
            self.probing = []
            try:
                getattr(node, name)
                found = any(other is handle for other in self.probing)
            except (RuntimeError, AttributeError, TypeError, NotImplementedError):
                found = False
            finally:
                self.probing = None
            if found:
                return (
                    "output" if name.startswith("_saved_result") or name in ("_saved_out", "_saved_output") else "input"
                )
        return "input"

    # ---- writes

    def visit(self, frame: Any) -> None:
        """Note the line of an in-place operation, and the line that made its layer write in place."""
        assert self.sites is not None
        module = modules.running(frame, self.torch)
        stack = frames.user_stack(2, frame)
        places: Any = (module["flagged"] or module["constructed"]) if module is not None else ()
        flagged = list(places[:1])
        key = (stack, str(flagged))
        if key not in self.sites:
            self.sites[key] = [*frames.resolved(stack), *flagged]

    def written(self, func: Any) -> tuple[tuple[int, str], ...]:
        """Positions and names of the arguments that an operator writes, from its schema."""
        known = self.schemas.get(func)
        if known is None:
            arguments = func._schema.arguments
            known = tuple(
                (-1 if a.kwarg_only else i, a.name)
                for i, a in enumerate(arguments)
                if a.alias_info is not None and a.alias_info.is_write
            )
            self.schemas[func] = known
        return known

    def before_write(self, func: Any, written: tuple[tuple[int, str], ...], args: Any, kwargs: Any) -> None:
        """Protect every saved tensor that the operator is about to overwrite.

        Raises:
            RuntimeError: the probe itself failed. A TypeError would not be seen: torch takes one in `x += r` for
                `NotImplemented`, and Python then goes on with `x = x + r`.
        """
        try:
            self._before_write(written, args, kwargs, func)
        except TypeError as error:
            raise RuntimeError(f"the probe failed at {func}: {error!r}") from error

    def _before_write(self, written: tuple[tuple[int, str], ...], args: Any, kwargs: Any, func: Any) -> None:
        write: Write | None = None
        for position, name in written:
            value = args[position] if 0 <= position < len(args) else kwargs.get(name)
            for tensor in value if isinstance(value, list | tuple) else (value,):
                key = storage_key(tensor)
                entries = self.live.get(key) if key is not None else None
                if entries:
                    if write is None:
                        write = self.event(func, tensor)
                    self.protect(list(entries.values()), tensor, write)

    def protect(self, entries: list[Any], tensor: Any, write: Write) -> None:
        """Clone what is still shared, and note the write on each saved tensor that it touches."""
        clones: dict[Any, Any] = {}
        for ref in entries:
            handle = ref()
            if handle is None:
                continue
            original = handle.original
            if storage_key(original) != handle.key:
                continue  # `w.data = ...` gave it other memory, and the key is now somebody else's
            if handle.data is original:
                shape = (original.dtype, tuple(original.shape), original.stride(), original.storage_offset())
                if shape not in clones:
                    clones[shape] = original.clone()
                handle.data = clones[shape]
            self.note(handle, tensor, write)

    def note(self, handle: Handle, tensor: Any, write: Write) -> None:
        """Remember that a write touched a saved tensor: the first few of those from different places."""
        if handle.writes is None:
            handle.writes = []
        if len(handle.writes) < MAX_WRITES and all(w.stack != write.stack for w in handle.writes):
            handle.writes.append(write)
            if handle.disjoint:
                handle.disjoint = not self.overlap(handle, tensor, write)

    def overlap(self, handle: Handle, tensor: Any, write: Write) -> bool:
        """Whether an element that was saved is also written; asked once for each pair of lines and pair of shapes."""
        a, b = handle.original, tensor
        layout = tuple((t.dtype, tuple(t.shape), t.stride(), t.storage_offset()) for t in (a, b))
        key = (handle.stack[:1], write.stack[:1], layout)
        if key not in self.overlaps:
            self.overlaps[key] = elements_overlap(self.torch, a, b)
        return self.overlaps[key]

    def event(self, func: Any, tensor: Any) -> Write:
        """Describe the write that is about to happen."""
        frame = sys._getframe(3)
        stack = frames.user_stack(8, frame)
        return Write(
            op=f"{func._schema.name}.{func._overloadname}" if hasattr(func, "_overloadname") else str(func),
            stack=stack,
            tensor=describe(tensor),
            module=modules.running(frame, self.torch),
            optimizer=modules.optimizer(frame, self.torch),
            **self.look.write(stack, frame, storage_key(tensor), storage_key),
        )


def _replaced(handle: Handle) -> Any:
    """What the user's own pack hook returned, with the protected value in the place of the overwritten one."""
    packed = handle.packed
    if isinstance(packed, tuple):
        return tuple(_given(handle) if item is handle.original else item for item in packed)
    return _given(handle)


def _given(handle: Handle) -> Any:
    """The value that was saved. What was overwritten once is given as a copy: a checkpoint that computes again with it
    overwrites it again, and others that saved the same have the same clone."""
    return handle.data if handle.writes is None or handle.data is None else handle.data.detach().clone()


def storage_key(tensor: Any) -> int | None:
    """Identity of a tensor's storage; None for values without one (sparse, functional, a class, not a tensor)."""
    if isinstance(tensor, type):
        return None
    try:
        return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return None


def elements_overlap(torch: Any, a: Any, b: Any, limit: int = 1 << 22) -> bool:
    """Whether two tensors on one storage share an element. Beyond `limit` elements, or across dtypes: assume so."""
    size = max(_extent(a), _extent(b))
    if a.dtype != b.dtype or size > limit:
        return True
    mask = torch.zeros(size, dtype=torch.bool)
    mask.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(mask.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def _extent(tensor: Any) -> int:
    """Elements of the storage up to and including the tensor's last one."""
    if tensor.numel() == 0:
        return 1
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + reach + 1)
