"""`deinplace explain`: what a rule is about, or what an error that PyTorch printed means."""

from __future__ import annotations

import difflib
import inspect
import sys
from typing import Annotated

import typer

from deinplace.errors import DeinplaceError


def explain(
    what: Annotated[list[str], typer.Argument(metavar="RULE|ERROR", help="A code, a name, PyTorch's message, or -.")],
) -> int:
    """Explain a rule (DIP102 or its name), or an error message pasted from a traceback (`-` reads it from stdin)."""
    text = sys.stdin.read() if what == ["-"] else " ".join(what)
    from deinplace.cli.messages import understand

    if meaning := understand(text):
        print(meaning)
        return 0
    from deinplace.rules import all_rules

    known = all_rules()
    wanted = text.strip()
    for rule in known:
        if wanted.upper() == rule.code or wanted.lower() == rule.name:
            print(f"{rule.code} {rule.name}\n\n{inspect.cleandoc(type(rule).__doc__ or '')}")
            return 0
    close = difflib.get_close_matches(wanted, [name for rule in known for name in (rule.code, rule.name)], n=1)
    hint = f"did you mean {close[0]}?" if close else "`deinplace rules` lists the rules"
    raise DeinplaceError(f"{wanted[:60]!r} is neither a rule nor an in-place error of PyTorch's; {hint}")


def rules() -> int:
    """List every rule."""
    from deinplace.rules import all_rules

    for rule in all_rules():
        print(f"{rule.code}  {rule.name}")
    return 0
