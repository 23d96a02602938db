"""What an `nn.Module` remembers: where it was built, and where its `inplace` flag was last set."""

from __future__ import annotations

import os
import weakref
from types import FrameType
from typing import Any

from . import frames

alive: list[weakref.ref[Any]] = []
"""Every module that was constructed, in order."""
_BUILT = "_deinplace_built"
_FLAGGED = "_deinplace_flagged"


def install(torch: Any) -> None:
    """Make every module note the user frames at its construction and whenever `inplace` is set on it.

    The notes live in the module's `__dict__`, so that `copy.deepcopy` carries them along.
    """
    module = torch.nn.Module
    plain_init, plain_setattr = module.__init__, module.__setattr__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        plain_init(self, *args, **kwargs)
        alive.append(weakref.ref(self))
        if _BUILT not in self.__dict__:
            self.__dict__[_BUILT] = tuple(_plain(frames.user_stack(6)))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        plain_setattr(self, name, value)
        if name == "inplace":
            self.__dict__[_FLAGGED] = tuple(_plain(frames.user_stack(6)))

    for mine, theirs in ((__init__, plain_init), (__setattr__, plain_setattr)):
        mine.__doc__, mine.__qualname__ = theirs.__doc__, theirs.__qualname__
    module.__init__, module.__setattr__ = __init__, __setattr__


def _plain(stack: frames.Stack) -> list[tuple[str, str, tuple[int, ...]]]:
    """A stack made of strings and numbers, so that a module that carries it stays picklable."""
    out: list[tuple[str, str, tuple[int, ...]]] = []
    for spot in stack:
        data = frames.resolve(*spot)
        out.append((data["path"], data["function"], tuple(data["span"])))  # type: ignore[arg-type]
    return out


def _places(notes: tuple[tuple[str, str, tuple[int, ...]], ...]) -> list[dict[str, object]]:
    return [{"path": path, "function": function, "span": list(span)} for path, function, span in notes]


def running(frame: FrameType | None, torch: Any) -> dict[str, object] | None:
    """The innermost module of torch's own between an event and the user's frame, described.

    Reading `f_locals` of torch's frames keeps their arguments alive until those frames end; so this is called
    for events that matter only.
    """
    layers = os.path.join(os.path.dirname(torch.__file__), "nn", "modules") + os.sep
    inner: Any = None
    outer: list[Any] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(layers) and frame.f_code.co_name != "_call_impl":
            candidate = frame.f_locals.get("self")
            if isinstance(candidate, torch.nn.Module):
                if inner is None and not passes_on(frame):
                    inner = candidate
                outer.append(candidate)
        elif inner is not None and frames.is_user(name):
            candidate = frame.f_locals.get("self")
            if isinstance(candidate, torch.nn.Module):
                outer.append(candidate)
        elif inner is None and frames.is_user(name):
            return None
        frame = frame.f_back
    return describe(inner, outer) if inner is not None else None


def passes_on(frame: FrameType) -> bool:
    """True for frames of containers, which compute nothing themselves."""
    return frame.f_code.co_filename.endswith(os.sep + "container.py")


def describe(module: Any, around: list[Any]) -> dict[str, object]:
    """Class, qualified name inside the outermost module around it, flag, and the two notes."""
    name = None
    for root in reversed(around):
        name = next((n for n, m in root.named_modules() if m is module and n), None)
        if name:
            break
    notes = module.__dict__
    return {
        "cls": type(module).__name__,
        "name": name,
        "inplace": bool(notes.get("inplace")),
        "constructed": _places(notes.get(_BUILT, ())),
        "flagged": _places(notes.get(_FLAGGED, ())),
    }


def optimizer(frame: FrameType | None, torch: Any) -> str | None:
    """Class name of the optimizer whose `step` is on the stack."""
    while frame is not None:
        if frame.f_code.co_name == "step":
            candidate = frame.f_locals.get("self")
            if isinstance(candidate, torch.optim.Optimizer):
                return type(candidate).__name__
        frame = frame.f_back
    return None
