"""More oracles for writes that autograd refuses: forward without gradients, cloned inputs, and finite differences."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

CHECKS = 2
"""Calls of one function whose gradients are checked."""
SLOW = 64
"""Elements up to which the whole Jacobian is compared; above, random directions of it."""
LARGEST = 200_000
"""Elements above which finite differences say nothing."""


def start(state: Any, torch: Any) -> Attest:
    """Begin, as the settings say: `forward` true, or names of functions to `clone` the arguments of or to `check`."""
    settings = state.settings["attest"]
    if settings.get("forward"):
        _no_gradients(torch)
    return Attest(state, torch, settings)


def _no_gradients(torch: Any) -> None:
    """No gradient is ever wanted, whatever the program says: then autograd refuses no write to a leaf or a view."""
    plain = torch._C._set_grad_enabled

    def _set_grad_enabled(_: bool) -> None:
        plain(False)

    torch._C._set_grad_enabled = _set_grad_enabled
    plain(False)


class Attest:
    """Stands between the program and the functions that matter."""

    def __init__(self, state: Any, torch: Any, settings: dict[str, Any]) -> None:
        self.state, self.torch = state, torch
        self.forward = bool(settings.get("forward"))
        self.cloned, self.checked = set(settings.get("clone", ())), set(settings.get("check", ()))
        self.calls: dict[str, int] = {}
        self.inside = False
        self.found: list[dict[str, str]] = []

    def call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One call of a function of the user's."""
        if name in self.cloned:
            self.calls[name] = self.calls.get(name, 0) + 1
            return function(*self.fresh(args), **self.fresh(kwargs))
        if name not in self.checked or self.inside or not self.torch.is_grad_enabled():
            return function(*args, **kwargs)
        count = self.calls[name] = self.calls.get(name, 0) + 1
        if count > CHECKS:
            return function(*args, **kwargs)
        with self.aside():
            twins = self.twins(args, kwargs)
        before = self.state.backwards
        result = function(*args, **kwargs)
        if isinstance(twins, str):
            self.say(name, "cannot", twins)
        elif self.state.backwards == before:  # else it trains: a second time would train once more
            with self.aside():
                self.check(name, function, *twins)
        return result

    def say(self, name: str, status: str, why: str = "") -> None:
        """Note what came of a check."""
        self.found.append({"name": name, "status": status, "why": " ".join(why.split())[:300]})

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Neither recorded nor counted, and random numbers go on afterwards as if nothing had been."""
        torch = self.torch
        recorder, self.state.recorder = self.state.recorder, None
        backwards, dtype = self.state.backwards, torch.get_default_dtype()
        self.inside, quiet = True, recorder.quiet if recorder is not None else False
        if recorder is not None:
            recorder.quiet = True
        try:
            with torch.random.fork_rng(devices=[]):
                torch.set_default_dtype(torch.float64)
                yield
        finally:
            torch.set_default_dtype(dtype)
            self.state.recorder, self.state.backwards, self.inside = recorder, backwards, False
            if recorder is not None:
                recorder.quiet = quiet

    # ---- inputs

    def fresh(self, value: Any, every: bool = False) -> Any:
        """The same with each tensor that autograd follows, or with every one, cloned: no leaf, no view, own memory."""
        if isinstance(value, self.torch.Tensor):
            return value.clone() if every or value.requires_grad or value._is_view() else value
        if type(value) in (list, tuple):
            return type(value)(self.fresh(item, every) for item in value)
        if type(value) is dict:
            return {key: self.fresh(item, every) for key, item in value.items()}
        return value

    def twins(self, args: Any, kwargs: Any) -> tuple[Any, Any, list[Any]] | str:
        """Arguments in float64 that share nothing with the program's, and those that require grad; or why not."""
        inputs: list[Any] = []
        try:
            doubled = self.doubled(args, inputs), self.doubled(kwargs, inputs)
        except (RuntimeError, TypeError, NotImplementedError, ValueError) as error:
            return f"its arguments cannot be copied: {error}"
        if not inputs:
            return "nothing that it is given requires gradients"
        if sum(t.numel() for t in inputs) > LARGEST:
            return "its arguments are too large"
        return *doubled, inputs

    def doubled(self, value: Any, inputs: list[Any]) -> Any:
        """A copy in float64; leaves that require grad are added to `inputs`."""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            twin = value.detach().clone()
            if value.is_floating_point():
                twin = twin.double().requires_grad_(value.requires_grad)
                inputs.extend([twin] if value.requires_grad else ())
            return twin
        if isinstance(value, torch.nn.Module):
            twin = copy.deepcopy(value).double()
            inputs.extend(p for p in twin.parameters() if p.requires_grad)
            return twin
        if type(value) in (list, tuple):
            return type(value)(self.doubled(item, inputs) for item in value)
        if type(value) is dict:
            return {key: self.doubled(item, inputs) for key, item in value.items()}
        if type(value).__module__ == "builtins" or callable(value):
            return value
        return copy.deepcopy(value)

    # ---- finite differences

    def check(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, inputs: list[Any]) -> None:
        """Compare what backward gives with finite differences."""
        from torch.autograd.gradcheck import GradcheckError

        torch = self.torch
        large = sum(t.numel() for t in inputs) > SLOW

        def call(*_: Any) -> tuple[Any, ...]:
            torch.manual_seed(0)
            given, named = self.fresh(args, every=True), self.fresh(kwargs, every=True)
            result = function(*given, **named)
            found = list(self.floats(result)) or [t for t in self.floats([given, named]) if t._version]
            return tuple(t.clone() for t in found)

        try:
            with torch.enable_grad():
                torch.autograd.gradcheck(
                    call, inputs, atol=1e-5, rtol=1e-3, nondet_tol=1e-9, check_undefined_grad=False, fast_mode=large
                )
        except GradcheckError as error:
            wrong = "Jacobian" in str(error) or "expected to be zero" in str(error)
            self.say(name, "differs" if wrong else "cannot", str(error))
        except Exception as error:  # noqa: BLE001  the user's code in float64 may raise anything
            self.say(name, "cannot", f"{type(error).__name__}: {error}")
        else:
            self.say(name, "agrees")

    def floats(self, value: Any) -> Iterator[Any]:
        """Tensors of floating point in a result."""
        if isinstance(value, self.torch.Tensor):
            if value.is_floating_point():
                yield value
        elif isinstance(value, list | tuple):
            for item in value:
                yield from self.floats(item)
        elif isinstance(value, dict):
            yield from self.floats(list(value.values()))
