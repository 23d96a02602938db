"""Enters a mode for as long as the process lives."""

from __future__ import annotations

from typing import Any

_HELD: list[Any] = []
"""torch 2.4 keeps no reference of its own to a dispatch mode that it takes off its stack for a while."""


def enter(mode: Any) -> None:
    """Enter a mode that nobody leaves."""
    _HELD.append(mode)
    mode.__enter__()
