"""Carries out writes that autograd refuses, as they were meant, so that a failing program yields an oracle.

What each refused write becomes:
- a leaf or its view: the write under `no_grad` (an update, an initialisation), out of place (an activation), or after
  the leaf gave up `requires_grad` (a buffer that is filled); the settings say which, by `path:line`;
- an output of chunk, split, unbind or iteration: a view of its own, which autograd lets one write through;
- a hooked output: out of place; an output of a custom Function: the function's views are cloned;
- expanded memory: `expand` gives memory of its own;
- an inference tensor: the write in inference mode; an integer result that is not an integer: cast as `copy_` casts;
- `detach_` on a view: `detach`; `out=` under grad: the functional form, bound to the names of the out tensor.
"""

from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any

from . import errors, frames, held, modules
from .events import describe

SIBLING = "its base or another view of its base has been modified"
EXPANDS = ("expand", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid")


def start(state: Any, torch: Any) -> Emulator:
    """Begin emulating in this thread."""
    from torch.overrides import TorchFunctionMode

    emulator = Emulator(state, torch, state.settings["emulate"])

    class Emulate(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return emulator.call(func, args, kwargs or {})

    held.enter(Emulate())
    if "function-view" in emulator.kinds:
        emulator.clone_function_views()
    return emulator


class Emulator:
    """Tries each call as it stands, and steps in where autograd refuses."""

    def __init__(self, state: Any, torch: Any, settings: dict[str, Any]) -> None:
        self.state, self.torch = state, torch
        self.intents: dict[str, str] = settings.get("intents", {})
        self.kinds = set(settings.get("kinds", ()))
        self.meta = torch._C._autograd

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One torch call."""
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            category = errors.classify(str(error))
            if category is None:
                raise
            return self.refused(category, error, func, args, kwargs)
        name = getattr(func, "__name__", "")
        if name == "__iter__":
            return iter(self.single(args[0].unbind(0)))
        if isinstance(result, tuple | list) and result and isinstance(result[0], self.torch.Tensor):
            result = self.single(result)
        if "expanded" in self.kinds and name in EXPANDS:
            result = self.owned(result)
        return result

    def single(self, result: Any) -> Any:
        """Views that one operation made together, as views made one by one; marked, so that writes are noticed."""
        meta = self.meta
        if not self.marked(result[0], meta.CreationMeta.MULTI_OUTPUT_NODE):
            return result
        views = []
        for view in result:
            mine = view._base.as_strided(view.shape, view.stride(), view.storage_offset())
            meta._set_creation_meta(mine, meta.CreationMeta.MULTI_OUTPUT_NODE)
            views.append(mine)
        kind = type(result)
        return kind(*views) if hasattr(kind, "_fields") else kind(views)

    def marked(self, tensor: Any, kind: Any) -> bool:
        """True for a view that autograd made under the circumstances `kind`."""
        return bool(tensor._is_view()) and self.meta._get_creation_meta(tensor) == kind

    def owned(self, result: Any) -> Any:
        """Expanded results in memory of their own."""
        if isinstance(result, self.torch.Tensor):
            return result.clone()
        return type(result)(self.owned(item) for item in result)

    # ---- refused writes

    def refused(self, category: str, error: RuntimeError, func: Any, args: Any, kwargs: Any) -> Any:
        """Note the error, and do what was meant."""
        frame = frames.user_frame(sys._getframe(2))
        stack = frames.user_stack(8, frame) if frame is not None else ()
        target = kwargs.get("out", args[0] if args else kwargs.get("input"))
        if SIBLING in str(error):  # the write itself was noted when it happened
            return self.allowed(func, args, kwargs, error)
        errors.note(
            self.state, error, stack,
            op=getattr(func, "__name__", ""),
            module=modules.running(sys._getframe(2), self.torch),
            tensor=describe(target) if isinstance(target, self.torch.Tensor) else None,
            names=_bound(frame, target) if isinstance(target, self.torch.Tensor) else [],
        )  # fmt: skip
        intent = self.intents.get(_line(stack), "functional")
        if category in ("multi-view", "no-grad-view"):
            return self.allowed(func, args, kwargs, error)
        if category in ("leaf", "leaf-view"):
            return self.leaf(intent, frame, func, args, kwargs, error)
        if category == "hook-view":
            return self.functional(frame, func, args, kwargs, error)
        if category == "inference":
            return self.inference(func, args, kwargs, target)
        if category == "cast":
            return self.cast(func, args, kwargs)
        if category == "detach-view":
            return self.rebind(frame, args[0], args[0].detach())
        if category == "out-grad":
            plain = {k: v for k, v in kwargs.items() if k != "out"}
            return self.rebind(frame, kwargs["out"], func(*args, **plain))
        raise error

    def allowed(self, func: Any, args: Any, kwargs: Any, error: RuntimeError) -> Any:
        """Take the mark off the views among the arguments, and write through them."""
        default = self.meta.CreationMeta.DEFAULT
        changed = False
        given = [*args, *kwargs.values()]
        for value in (*given, *(item for many in given if isinstance(many, tuple | list) for item in many)):
            if (
                isinstance(value, self.torch.Tensor)
                and value._is_view()
                and self.meta._get_creation_meta(value) != default
            ):
                self.meta._set_creation_meta(value, default)
                changed = True
        if not changed:
            raise error
        return self.call(func, args, kwargs)

    def leaf(self, intent: str, frame: Any, func: Any, args: Any, kwargs: Any, error: RuntimeError) -> Any:
        """A write to a leaf that requires grad, or to a view of one."""
        if intent == "no_grad":
            with self.torch.no_grad():
                return func(*args, **kwargs)
        if intent == "drop-grad" or getattr(func, "__name__", "") == "__setitem__":
            leaf = args[0] if args[0].is_leaf else args[0]._base
            if leaf is None or not leaf.is_leaf:
                raise error
            leaf.requires_grad_(False)
            return func(*args, **kwargs)
        return self.functional(frame, func, args, kwargs, error)

    def functional(self, frame: Any, func: Any, args: Any, kwargs: Any, error: RuntimeError) -> Any:
        """The write on a copy; the names of the original in the user's frame then mean the copy."""
        target = args[0] if args else kwargs.get("input")
        if not isinstance(target, self.torch.Tensor):
            raise error
        copy = target.clone()
        result = func(copy, *args[1:], **kwargs) if args else func(**{**kwargs, "input": copy})
        self.rebind(frame, target, copy)
        return result

    def inference(self, func: Any, args: Any, kwargs: Any, target: Any) -> Any:
        """Torch complains about an inference tensor once it has written it, unless autograd complains before."""
        values = [*args, *kwargs.values()]
        if self.torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in values):
            with self.torch.inference_mode():
                return func(*args, **kwargs)
        return target

    def cast(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result computed in floating point, then cast to the type of the tensor that is written."""
        target = args[0]
        with self.torch.no_grad():
            wide = target.to(self.torch.get_default_dtype())
            target.copy_(func(wide, *args[1:], **kwargs))
        return target

    def rebind(self, frame: FrameType | None, old: Any, new: Any) -> Any:
        """Let every name of `old` in the user's frame mean `new`."""
        if frame is not None:
            names = _bound(frame, old)
            variables = frame.f_locals
            for name in names:
                variables[name] = new
            if names and sys.version_info < (3, 13):
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        return new

    def clone_function_views(self) -> None:
        """Results of custom Functions that are views become tensors of their own."""
        torch, emulator = self.torch, self
        base = torch.autograd.Function
        plain = base.apply.__func__

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            result = plain(cls, *args, **kwargs)
            return result if cls.__module__.startswith("torch.") else emulator.unviewed(result)

        base.apply = classmethod(apply)
        self._clone_hooked()

    def _clone_hooked(self) -> None:
        """What full backward hooks wrap leaves a module as a tensor of its own, too."""
        from torch.utils.hooks import BackwardHook

        for name in ("setup_input_hook", "setup_output_hook"):
            plain = getattr(BackwardHook, name)

            def setup(hook: Any, args: Any, plain: Any = plain) -> Any:
                return self.unviewed(plain(hook, args))

            setattr(BackwardHook, name, setup)

    def unviewed(self, value: Any) -> Any:
        """A clone of a view made inside a custom Function."""
        if isinstance(value, tuple):
            return tuple(self.unviewed(item) for item in value)
        kind = self.meta.CreationMeta.IN_CUSTOM_FUNCTION
        return value.clone() if isinstance(value, self.torch.Tensor) and self.marked(value, kind) else value


def _line(stack: frames.Stack) -> str:
    if not stack:
        return ""
    where = frames.resolve(*stack[0])
    return f"{where['path']}:{where['span'][0]}"  # type: ignore[index]


def _bound(frame: FrameType | None, value: Any) -> list[str]:
    """Names in a frame bound to this very object."""
    if frame is None:
        return []
    return sorted(name for name, other in frame.f_locals.items() if other is value and not name.startswith("__"))
