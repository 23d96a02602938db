"""`deinplace explain`: what a rule is about, or what an error that PyTorch printed means."""

from __future__ import annotations

import difflib
import inspect
import sys
import textwrap
from typing import Annotated

import typer

from deinplace.errors import DeinplaceError


def explain(
    what: Annotated[list[str], typer.Argument(metavar="RULE|ERROR", help="A code, a name, PyTorch's message, or -.")],
) -> int:
    """Explain a rule (DIP102 or its name), or an error message pasted from a traceback (`-` reads it from stdin).

    A few words of your own find the pages that speak of them: deinplace explain leaf variable
    """
    text = sys.stdin.read() if what == ["-"] else " ".join(what)
    print(_page(text.strip()))
    return 0


def _page(text: str) -> str:
    from deinplace.cli import messages

    if meaning := messages.understand(text):
        return meaning
    from deinplace.analysis import suppress
    from deinplace.rules import all_rules

    known = all_rules()
    for rule in known:
        if text.upper() == rule.code or text.casefold() == rule.name:
            return f"{rule.code} {rule.name}\n\n{inspect.cleandoc(type(rule).__doc__ or '')}"
    for (code, name), page in suppress.PAGES.items():
        if text.upper() == code or text.casefold() == name:
            return f"{code} {name}\n\n{page}"
    for each in messages.MEANINGS:
        if text.casefold() == each.key:
            return messages.page(each)
    names = [name for rule in known for name in (rule.code, rule.name)]
    typed = text.upper() if text[:3].upper() == "DIP" else text.lower()
    close = difflib.get_close_matches(typed, names, n=1, cutoff=0.8)
    found = _found(text) if not close else ""
    if found:
        return found
    hint = f"did you mean {close[0]}?" if close else "`deinplace rules` lists the rules"
    raise DeinplaceError(f"{_short(text)!r} is neither a rule nor an in-place error of PyTorch's; {hint}")


def _found(text: str) -> str:
    """The pages that speak of a few words, one after the other; empty where there is none."""
    from deinplace.cli.lookup import lookup

    pages = lookup(text)
    if not pages:
        return ""
    width = max(len(page.ask) for page in pages)
    rows = [
        textwrap.fill(f"  {page.ask:<{width}}  {page.title}", 80, subsequent_indent=" " * (width + 4)) for page in pages
    ]
    first = f"`deinplace explain {pages[0].ask}` prints the first."
    return "\n".join(["Pages that speak of this:", "", *rows, "", first])


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:59] + "…"


def rules() -> int:
    """List every rule."""
    from deinplace.rules._codes import ledger

    for entry in ledger():
        if entry.state != "retired":
            print(f"{entry.code}  {entry.name}{'  (preview)' if entry.state == 'preview' else ''}")
    return 0
