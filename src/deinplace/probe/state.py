"""What a watched process counts, whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Counts:
    """What `control` needs and keeps: the tools at work, calls, and errors that autograd raised."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.session: Any = None
        self.recorder: Any = None
        self.attest: Any = None
        self.in_backward: Callable[[], bool] = bool
        self.raised: list[dict[str, Any]] = []
        self.compiled = False
        self.backwards = 0
        self.steps = 0

    def write(self) -> None:
        """Put down what was seen so far; here nobody reads along."""
