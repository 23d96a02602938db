"""Trains with a GradScaler a program that has none: float16 gradients vanish without one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

SCALE = 2.0**10
"""Where the scale starts: the usual 2**16 overflows at first, and a short program would then never train."""


def start(torch: Any, kind: str) -> None:
    """Scale every loss that the program calls backward on, and give it gradients that are no longer scaled.

    A program that has a scaler of its own keeps it, and gets no other.

    Raises:
        RuntimeError: this torch has no autocast to float16, or no GradScaler, for such a device.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns, and then does nothing
        able = torch.autocast(kind, dtype=torch.float16)._enabled
    if not able or not hasattr(torch.amp, "GradScaler"):
        raise RuntimeError(f"torch {torch.__version__} has no autocast to float16 with a GradScaler on {kind}")
    scaler = torch.amp.GradScaler(kind, init_scale=SCALE)
    own: list[Any] = []
    plain = torch.amp.GradScaler.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        own.append(self)

    torch.amp.GradScaler.__init__ = __init__
    engine = torch.autograd
    backward = engine.backward

    @functools.wraps(backward)
    def scaled(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        fits = grad_tensors is None and all(root.requires_grad and root.numel() == 1 for root in roots)
        if any(s.is_enabled() for s in own) or not fits:
            return backward(tensors, grad_tensors, *args, **kwargs)
        return _unscaled(torch, scaler, roots, lambda losses: backward(losses, grad_tensors, *args, **kwargs))

    engine.backward = scaled


def _unscaled(torch: Any, scaler: Any, roots: list[Any], backward: Callable[[list[Any]], Any]) -> Any:
    """Backward of the scaled roots; what it adds to leaves is then divided by the scale, or dropped if it overflowed.

    To drop it is what a scaler means by skipping a step.
    """
    from .record import leaves_below

    reached = [leaf for leaf in leaves_below(roots) if leaf.is_floating_point()]
    before = [leaf.grad for leaf in reached]
    for leaf in reached:
        leaf.grad = None
    result = backward([scaler.scale(root.float()) for root in roots])
    optimizer = torch.optim.SGD(reached, lr=0.0) if any(leaf.grad is not None for leaf in reached) else None
    if optimizer is not None:
        scaler.unscale_(optimizer)
        scaler.update()
        lost = not all(bool(leaf.grad.isfinite().all()) for leaf in reached if leaf.grad is not None)
        for leaf, grad in zip(reached, before, strict=True):
            _join(leaf, grad, lost)
    return result


def _join(leaf: Any, before: Any, lost: bool) -> None:
    """Put together what a leaf had and what backward added."""
    added = None if lost else leaf.grad
    if before is not None and added is not None:
        before.add_(added)  # as backward does: others may hold that very gradient
    leaf.grad = before if before is not None else added
