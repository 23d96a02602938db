"""Records what training saw, in order of events: gradients, parameters, buffers, results, and random states."""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import random
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from . import frames, modules, overlay
from .costs import Costs
from .sketch import Sketcher, checksum

CALLS = 60
"""Calls of one function that are recorded; later ones only count."""
REACH = 120
"""Tensors reachable from a call that are recorded after it."""


def start(state: Any, torch: Any) -> Recorder:
    """Begin recording into this process's file."""
    recorder = Recorder(torch, state)
    setattr(builtins, overlay.RECORDER, recorder.decorator)
    return recorder


class Recorder:
    """Writes one JSON line for each event."""

    def __init__(self, torch: Any, state: Any) -> None:
        self.torch, self.state = torch, state
        self.sketch = Sketcher(torch)
        self.costs = Costs(torch, state)
        self.file = open(f"{state.stem}.rec", "w", encoding="utf-8")  # noqa: SIM115 - open as long as the process
        self.optimizers: list[Any] = []
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Optimizers in the order of their construction, which a step that moves does not change."""
        self.built = 0
        self.calls: dict[str, int] = {}
        self.quiet = False
        self.labels: dict[int, str] = {}
        self.idle = False
        """True in a forked child that has not trained, such as a loader's worker: how far it gets is chance."""

    def reopen(self, stem: str) -> None:
        """Continue in a file of one's own after a fork."""
        self.idle = True
        self.file = open(f"{stem}.rec", "w", encoding="utf-8")  # noqa: SIM115

    def event(self, kind: str, name: str, values: dict[str, Any], soft: bool = False, at: Any = None) -> None:
        """Write one event, and the user's line that it happened at."""
        if at is None:
            at = frames.user_stack(1, sys._getframe(1))
        where = frames.resolve(*at[0]) if at else None
        json.dump({"e": kind, "n": name, "soft": soft, "v": values, "at": where}, self.file)
        self.file.write("\n")

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work on tensors without being watched, traced or recorded."""
        torch = self.torch
        self.quiet, before = True, self.quiet
        start = time.perf_counter()
        try:
            with torch._C.DisableTorchFunction(), _outside_transforms(torch), torch.no_grad(), _no_dispatch(torch):
                yield
        finally:
            self.quiet = before
            if not before:
                self.costs.spent += time.perf_counter() - start

    # ---- backward

    def before_backward(self, name: str, args: Any, kwargs: Any) -> Any:
        """Values passed to backward, and the leaves that it will reach."""
        self.idle = False
        roots = _tensors(args[0] if args else kwargs.get("tensors", kwargs.get("outputs")))
        with self.aside():
            self.costs.before_backward(roots)
            self.event("backward", name, {"roots": [self.sketch.tensor(t) for t in roots]})
        return leaves_below(roots) if name == "backward" else []

    def after_backward(self, name: str, leaves: Any, result: Any) -> None:
        """Gradients that the call left on leaves, or returned."""
        with self.aside():
            if name == "grad":
                self.event("grad", name, {"result": self.sketch.value(result)})
                return
            named: dict[str, list[Any]] = {}
            for leaf in leaves:
                if leaf.grad is not None:
                    named.setdefault(self.label(leaf), []).append(self.sketch.tensor(leaf.grad))
            self.event("gradients", name, {label: named[label] for label in sorted(named)})

    def label(self, leaf: Any) -> str:
        """A name for a leaf that two runs share: its place in an optimizer, else its shape and dtype."""
        known = self.labels.get(id(leaf))
        return known or f"leaf {'nested' if leaf.is_nested else tuple(leaf.shape)} {leaf.dtype}"

    def number(self, optimizer: Any) -> int:
        """The optimizer's place among all that were constructed, or else seen."""
        if optimizer not in self.numbers:
            self.numbers[optimizer] = self.built
            self.built += 1
        return self.numbers[optimizer]

    def before_step(self, optimizer: Any) -> None:
        """Gradients that the step consumes."""
        self.idle = False
        if optimizer not in self.optimizers:
            index = self.number(optimizer)
            self.optimizers.append(optimizer)
            for g, group in enumerate(optimizer.param_groups):
                for i, parameter in enumerate(group["params"]):
                    self.labels[id(parameter)] = f"optimizer {index} group {g} parameter {i}"
        with self.aside():
            self.event("consumed", self._title(optimizer), self._each(optimizer, lambda p: p.grad))

    def after_step(self, optimizer: Any) -> None:
        """Parameters after the step, and the state of the random generators."""
        self.costs.after_step()
        with self.aside():
            self.event("stepped", self._title(optimizer), self._each(optimizer, lambda p: p))
            self.event("buffers", "after step", self._buffers())
            self.event("random", "after step", self._random())

    def _buffers(self) -> dict[str, Any]:
        """Buffers of every module that is alive, by order of construction."""
        out = {}
        index = 0
        for ref in modules.alive:
            module = ref()
            if module is not None:
                index += 1
                for key, buffer in module._buffers.items():
                    if buffer is not None:
                        out[f"{type(module).__name__} {index} {key}"] = self.sketch.tensor(buffer)
        return out

    def _title(self, optimizer: Any) -> str:
        return f"{type(optimizer).__name__} {self.number(optimizer)}"

    def _each(self, optimizer: Any, pick: Callable[[Any], Any]) -> dict[str, Any]:
        out = {}
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                value = pick(parameter)
                out[f"group {g} parameter {i}"] = None if value is None else self.sketch.tensor(value)
        return out

    def _random(self) -> dict[str, int]:
        states = {
            "torch": checksum(bytes(self.torch.get_rng_state().tolist())),
            "random": checksum(repr(random.getstate()).encode()),
        }
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            state = numpy.random.get_state()
            states["numpy"] = checksum(state[1].tobytes() + repr(state[2:]).encode())
        if self.torch.cuda.is_initialized():
            states["cuda"] = checksum(b"".join(bytes(s.tolist()) for s in self.torch.cuda.get_rng_state_all()))
        return states

    # ---- calls

    def decorator(self, path: str, name: str) -> Callable[[Any], Any]:
        """Decorator that records what a function returns, and what its arguments and surroundings hold afterwards."""

        def decorate(function: Any) -> Any:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                attest = self.state.attest
                result = attest.call(f"{path}:{name}", function, args, kwargs) if attest else function(*args, **kwargs)
                if not self.quiet:
                    self.after_call(f"{path}:{name}", function, args, kwargs, result)
                return result

            # Programs read these off the function; `wraps` leaves them out, and `call` itself has no use for them.
            call.__defaults__ = function.__defaults__  # type: ignore[attr-defined]
            call.__kwdefaults__ = function.__kwdefaults__  # type: ignore[attr-defined]
            return call

        return decorate

    def after_call(self, name: str, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """One call of a recorded function has returned."""
        count = self.calls[name] = self.calls.get(name, 0) + 1
        if count > CALLS:
            return
        with self.aside():
            at = ((function.__code__, 0),)
            self.event("returned", name, {"result": self.sketch.value(result)}, at=at)
            reach: dict[str, Any] = {}
            for index, value in enumerate(args):
                self._reach(f"argument {index}", value, reach, 0)
            for key, value in kwargs.items():
                self._reach(f"argument {key}", value, reach, 0)
            for index, cell in enumerate(function.__closure__ or ()):
                with contextlib.suppress(ValueError):
                    self._reach(f"closure {index}", cell.cell_contents, reach, 0)
            for index, value in enumerate(function.__defaults__ or ()):
                self._reach(f"default {index}", value, reach, 0)
            for key in function.__code__.co_names:
                if key in function.__globals__:
                    self._reach(f"global {key}", function.__globals__[key], reach, 1)
            self.event("after call", name, {k: self.sketch.tensor(v) for k, v in reach.items()}, soft=True, at=at)
            if self.state.watcher is not None:
                self.state.watcher.mark(name, count, reach)

    def _reach(self, path: str, value: Any, found: dict[str, Any], depth: int) -> None:
        """Collect tensors reachable through containers and attributes."""
        if len(found) >= REACH or depth > 3:
            return
        torch = self.torch
        if isinstance(value, torch.Tensor):
            if not isinstance(value, torch.nn.Parameter):
                found[path] = value
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value[:32]):
                self._reach(f"{path}[{index}]", item, found, depth + 1)
        elif isinstance(value, dict):
            for key, item in list(value.items())[:32]:
                self._reach(f"{path}[{key!r}]", item, found, depth + 1)
        elif isinstance(value, torch.nn.Module) or (hasattr(value, "__dict__") and not callable(value) and depth < 2):
            for key, item in list(vars(value).items()):
                if key not in ("_parameters", "_deinplace_built", "_deinplace_flagged"):
                    self._reach(f"{path}.{key}", item, found, depth + 1)

    # ---- end

    def close(self) -> None:
        """What the main module's names hold at the end."""
        if self.idle:
            self.file.close()
            return
        main = sys.modules.get("__main__")
        with self.aside():
            values = {}
            for name, value in sorted(vars(main).items()) if main is not None else ():
                if name.startswith("__"):
                    continue
                if isinstance(value, self.torch.nn.Module):
                    state = [*value.named_parameters(), *value.named_buffers()]
                    values[name] = {"m": {k: self.sketch.tensor(v) for k, v in state}, "n": len(state)}
                else:
                    described = self.sketch.value(value)
                    if described is not None:
                        values[name] = described
            self.event("end", "names of the main module", values)
            self.event("random", "at the end", self._random())
        self.file.close()


def _no_dispatch(torch: Any) -> Any:
    """Context in which no dispatch mode sees operations."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def _outside_transforms(torch: Any) -> Any:
    """Context in which no torch.func transform wraps what is computed: our numbers must not become its tensors."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def _tensors(value: Any) -> list[Any]:
    """The tensors of a backward call's first argument."""
    if value is None:
        return []
    items = list(value) if isinstance(value, list | tuple) else [value]
    return [item for item in items if hasattr(item, "grad_fn")]


def leaves_below(roots: list[Any]) -> list[Any]:
    """Leaves that the graph below `roots` ends in, in the order of a depth-first walk."""
    found: dict[int, Any] = {id(t): t for t in roots if t.grad_fn is None and t.requires_grad}
    seen = set()
    stack = [t.grad_fn for t in reversed(roots) if t.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.setdefault(id(variable), variable)
        stack.extend(following for following, _ in reversed(node.next_functions))
    return list(found.values())
