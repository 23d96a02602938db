"""Switches the probe on inside a process that has just imported torch, and follows it into threads."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

from . import detail, errors, frames, held, modes, modules
from .costs import counted
from .paranoid import Paranoia
from .watch import Handle, Session, storage_key

_RECOMPUTED = "_deinplace_recomputed"
"""Attribute of a tensor that a checkpoint computed again: the handles of those who saved it, in order."""


def start(state: Any, torch: Any) -> None:
    """Begin watching, recording and emulating, as the settings say."""
    settings = state.settings
    torch.manual_seed(settings.get("seed", 0))
    modes.start(state, torch)
    modules.install(torch)
    if settings.get("watch"):
        look = settings.get("look", {})
        session = state.session = Session(
            torch,
            detail.Look({tuple(x) for x in look.get("saves", ())}, {tuple(x) for x in look.get("writes", ())}),
            Paranoia(torch, storage_key) if settings.get("paranoid") else None,
        )
        session.sites = {} if settings.get("sites") else None
        mode = mode_class(torch, session)
        _enter_everywhere(torch, session, mode)
        compose_user_hooks(torch, session)
        stand_aside(torch, session)
    if settings.get("audit"):
        from . import audit

        state.auditor = audit.start(state, torch)
    if settings.get("emulate") is not None:
        from . import emulate

        state.emulator = emulate.start(state, torch)
    if settings.get("attest"):
        from . import attest

        state.attest = attest.start(state, torch)
    if settings.get("record"):
        from . import record

        state.recorder = record.start(state, torch)
    if settings.get("stale"):
        from . import stale

        state.watcher = stale.start(state, torch, settings["stale"])
    _follow_backward(state, torch)
    _follow_steps(state, torch)
    _note_compile(state, torch)


def mode_class(torch: Any, session: Session) -> Any:
    """The dispatch mode that shows a session every write before it happens."""
    from torch.utils._python_dispatch import TorchDispatchMode

    written, live, schemas, sites = session.written, session.live, session.schemas, session.sites

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            writes = schemas.get(func)
            if writes is None:
                writes = written(func)
            if writes and sites is not None:
                session.visit(sys._getframe(0))
            if not writes or not live:
                return func(*args, **kwargs)
            session.before_write(func, writes, args, kwargs)
            lists = [args[i] for i, _ in writes if 0 <= i < len(args) and isinstance(args[i], list | tuple)]
            if not lists:
                return func(*args, **kwargs)
            return counted(torch, lists, func, args, kwargs)

    return Watch


def _enter_everywhere(torch: Any, session: Session, mode: Any) -> None:
    """Both switches are thread-local: turn them on here, and in each thread that starts later."""

    def enter() -> None:
        held.enter(mode())
        torch._C._autograd._push_saved_tensors_default_hooks(session.pack, session.unpack)

    enter()
    plain = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(self: threading.Thread) -> None:
        enter()
        plain(self)

    threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]


def compose_user_hooks(torch: Any, session: Session) -> None:
    """Autograd calls the innermost hooks only: put ours around those of the user (and of checkpoint, save_on_cpu).

    A checkpoint that is not reentrant computes again what it gave up, keeps that by itself, and asks for no version:
    what is overwritten there backward reads as it is, without a word.
    """
    hooks = torch.autograd.graph.saved_tensors_hooks
    plain = hooks.__init__

    def __init__(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        recomputes = type(self).__name__ == "_recomputation_hook"

        def pack(tensor: Any) -> Any:
            packed = pack_hook(tensor)
            key = storage_key(tensor)
            if key is None or not _holds(packed, key):
                return packed
            handle = session.pack(tensor)
            handle.packed, handle.unpack = packed, unpack_hook
            if not isinstance(packed, tuple):
                handle.data = handle.original = packed
                handle.version = packed._version
                if recomputes:
                    handle.unchecked = True
                    packed.__dict__.setdefault(_RECOMPUTED, []).append(handle)
            else:
                handle.original = handle.data = next(item for item in packed if storage_key(item) == key)
            if session.paranoia is not None:
                handle.data = session.paranoia.copied(handle.original)
            return handle

        def unpack(packed: Any) -> Any:
            if isinstance(packed, Handle):
                return session.unpack(packed)
            if session.probing is not None:
                return session.asked(packed)
            value = unpack_hook(packed)
            handles = getattr(value, "__dict__", {}).get(_RECOMPUTED)
            return session.unpack_held(packed, handles.pop()) if handles else value

        plain(self, pack, unpack)

    hooks.__init__ = __init__


def _holds(packed: Any, key: int) -> bool:
    """True where the user's pack hook kept the tensor's own storage."""
    items = packed if isinstance(packed, tuple) else (packed,)
    return any(storage_key(item) == key for item in items)


def stand_aside(torch: Any, session: Session) -> None:
    """torch.func transforms refuse to run under any saved-tensor hooks: lift ours for their time."""
    graph = torch.autograd.graph
    plain = graph.disable_saved_tensors_hooks

    @contextlib.contextmanager
    def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
        depth = getattr(session.local, "aside", 0)
        session.local.aside = depth + 1
        if depth == 0:
            session.notes.add("saves inside torch.func transforms were not watched")
            torch._C._autograd._pop_saved_tensors_default_hooks()
        try:
            with plain(error_message):
                yield
        finally:
            session.local.aside = depth
            if depth == 0:
                torch._C._autograd._push_saved_tensors_default_hooks(session.pack, session.unpack)

    graph.disable_saved_tensors_hooks = disable_saved_tensors_hooks


def _follow_backward(state: Any, torch: Any) -> None:
    """Know which line called backward, count it, and note the errors that autograd raises there."""
    engine = torch.autograd
    compiled = state.settings.get("mode") == "compile"
    tracing: Any = torch._guards.TracingContext.try_get if compiled else lambda: None
    local = state.session.local if state.session is not None else threading.local()
    state.in_backward = lambda: bool(getattr(local, "backward", ()))

    def around(plain: Any, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # pytest shows the user's frames
            if tracing() is not None:  # a compiler asks for gradients of its own stand-ins
                return plain(*args, **kwargs)
            outer = getattr(local, "backward", ())
            local.backward = outer or frames.user_stack(8)
            state.backwards += not outer
            recorder = None if outer else state.recorder  # a function mode calls twice, a checkpoint calls inside
            before = recorder.before_backward(name, args, kwargs) if recorder is not None else None
            if state.attest is not None and state.attest.forward:
                _stop(state)  # there is no graph to go back through
            try:
                result = plain(*args, **kwargs)
            except RuntimeError as error:
                inner = frames.traceback_stack(error.__traceback__)  # a checkpoint runs the user's code in here
                errors.note(state, error, inner or local.backward)
                raise
            finally:
                local.backward = outer
            if recorder is not None:
                recorder.after_backward(name, before, result)
            if state.session is not None and state.session.conflicts.changed:
                state.session.conflicts.changed = False
                state.write()
            return result

        call.__doc__, call.__name__, call.__qualname__ = plain.__doc__, plain.__name__, plain.__qualname__
        call.__wrapped__ = plain  # type: ignore[attr-defined]
        return call

    engine.backward = around(engine.backward, "backward")
    engine.grad = around(engine.grad, "grad")


def _follow_steps(state: Any, torch: Any) -> None:
    """Count optimizer steps; stop the program after the last one that was asked for."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    limit = state.settings.get("max_steps")

    def before(optimizer: Any, *_: Any) -> None:
        if state.recorder is not None:
            state.recorder.before_step(optimizer)

    def after(optimizer: Any, *_: Any) -> None:
        state.steps += 1
        if state.recorder is not None:
            state.recorder.after_step(optimizer)
        if limit and state.steps >= limit:
            _stop(state)

    plain = torch.optim.Optimizer.__init__

    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if state.recorder is not None:
            state.recorder.number(self)
        plain(self, *args, **kwargs)

    torch.optim.Optimizer.__init__ = __init__
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _stop(state: Any) -> None:
    """End the program here, as if it had come to its end."""
    import os

    state.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _note_compile(state: Any, torch: Any) -> None:
    """Compiled code runs eagerly under the probe (TORCHDYNAMO_DISABLE); remember that it was asked for."""
    plain = torch.compile

    def compile(*args: Any, **kwargs: Any) -> Any:
        state.compiled = True
        return plain(*args, **kwargs)

    compile.__doc__, compile.__wrapped__ = plain.__doc__, plain  # type: ignore[attr-defined]
    torch.compile = compile
