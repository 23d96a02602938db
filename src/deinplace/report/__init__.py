"""Reports: one module a format, each a pure function of an outcome and a view."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from deinplace.model import Outcome
from deinplace.report.view import View

_MODULES = {"json": "as_json", "html": "as_html"}
"""Formats whose module bears another name, as that one is taken by the standard library."""
FOR_PEOPLE = frozenset({"full", "concise"})
"""Formats that may share a terminal with other text; any other is a document of its own."""


def render(kind: str, outcome: Outcome, view: View) -> str:
    """The whole report in the format `kind`, one of `deinplace.config.FORMATS`."""
    module = importlib.import_module(f"{__name__}.{_MODULES.get(kind, kind)}")
    write: Callable[[Outcome, View], str] = module.render
    return write(*shown(kind, outcome, view))


def shown(kind: str, outcome: Outcome, view: View) -> tuple[Outcome, View]:
    """The outcome and the view with the places in notebooks as readers of the format `kind` know them."""
    if not any(path.endswith(".ipynb") for path in view.texts):
        return outcome, view
    from deinplace.notebooks.reports import localized

    return localized(kind, outcome, view)
