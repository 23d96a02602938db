"""Finds the in-place write that breaks a PyTorch backward pass, rewrites it, and proves the gradients right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deinplace.testing import InPlaceError, assert_same_gradients, watch

__all__ = ["InPlaceError", "__version__", "assert_same_gradients", "watch"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The functions for tests are loaded when they are first asked for: they need torch, and the command does not."""
    if name in ("InPlaceError", "assert_same_gradients", "watch"):
        from deinplace import testing

        return getattr(testing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
