"""Runs a program otherwise than it was written: under autocast, checkpointing, a compiler, in float64, on a device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

from . import amp, frames

BACKEND = "aot_eager"
"""Traces, functionalizes and checks mutations as every backend does, and needs no compiler of its own."""


def start(state: Any, torch: Any) -> None:
    """Change what the settings ask for; called before the program makes its first tensor."""
    mode = state.settings.get("mode")
    device = state.settings.get("device")
    if device:
        torch.set_default_device(device)
    if mode == "float64":
        torch.set_default_dtype(torch.float64)
    elif mode == "amp":
        _autocast(torch, device or "cpu", torch.bfloat16)
    elif mode == "amp-float16":
        amp.start(torch, torch.device(device or "cpu").type)
        _autocast(torch, device or "cpu", torch.float16)
    elif mode in ("checkpoint", "checkpoint-reentrant", "compile"):
        _Modules(state, torch, mode).install()


def _autocast(torch: Any, device: str, dtype: Any) -> None:
    """A coarse type wherever autocast wants it, and backward outside of it, as its documentation asks."""
    kind = torch.device(device).type
    torch.autocast(kind, dtype=dtype).__enter__()
    engine = torch.autograd
    for name in ("backward", "grad"):
        plain = getattr(engine, name)

        @functools.wraps(plain)
        def call(*args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            with torch.autocast(kind, enabled=False):
                return plain(*args, **kwargs)

        setattr(engine, name, call)


class _Modules:
    """Wraps the outermost call of each module whose class stands in one of the files that matter."""

    def __init__(self, state: Any, torch: Any, mode: str) -> None:
        self.state, self.torch, self.mode = state, torch, mode
        self.paths = set(state.settings.get("mode_paths", ()))
        self.local = threading.local()

    def install(self) -> None:
        """Change how modules are called."""
        plain = self.torch.nn.Module.__call__
        modules = self

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(modules.local, "inside", 0) or not modules.wanted(module):
                return plain(module, *args, **kwargs)
            if modules.mode == "compile":
                return modules.compiled(plain, module, args, kwargs)
            return modules.checkpointed(plain, module, args, kwargs)

        self.torch.nn.Module.__call__ = __call__

    def wanted(self, module: Any) -> bool:
        """Whether the class of a module was written in one of the files."""
        code = getattr(type(module).forward, "__code__", None)
        return code is not None and frames.real(code.co_filename) in self.paths

    def inside(self, plain: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module whose own modules are then left alone, in a second forward as in the first."""
        self.local.inside = getattr(self.local, "inside", 0) + 1
        try:
            return plain(module, *args, **kwargs)
        finally:
            self.local.inside -= 1

    def compiled(self, plain: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Compile a module when it is called first."""
        if getattr(module, "_compiled_call_impl", None) is None:
            module.compile(backend=BACKEND)
        self.state.mode_calls += 1
        return self.inside(plain, module, args, kwargs)

    def checkpointed(self, plain: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Throw away what a module saves, and compute it again in backward."""
        reentrant = self.mode == "checkpoint-reentrant"
        tensors = list(self._tensors(args))
        hidden = [t for t in self._tensors(tuple(kwargs.values())) if t.requires_grad]
        fits = not reentrant or (any(t.requires_grad for t in tensors) and not hidden)
        if not self.torch.is_grad_enabled() or not fits:
            return self.inside(plain, module, args, kwargs)
        from torch.utils.checkpoint import checkpoint

        self.state.mode_calls += 1

        def run(*again: Any) -> Any:
            return self.inside(plain, module, again, kwargs)

        return checkpoint(run, *args, use_reentrant=reentrant)

    def _tensors(self, values: Any) -> Iterator[Any]:
        for value in values:
            if isinstance(value, self.torch.Tensor):
                yield value
            elif isinstance(value, tuple | list):
                yield from self._tensors(value)
