"""Every code that was ever given to a rule: none is used again for another, and new ones start as preview.

`codes.json` is only ever added to; a rule that goes stays in it as `retired`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal


@dataclass(frozen=True)
class Code:
    """A code with its name, its state, and the version that brought it into that state."""

    code: str
    name: str
    state: Literal["preview", "stable", "retired"]
    since: str


@cache
def ledger() -> tuple[Code, ...]:
    """All codes, in order."""
    held = json.loads(files(__package__).joinpath("codes.json").read_text("utf-8"))
    return tuple(Code(code, **entry) for code, entry in sorted(held.items()))
