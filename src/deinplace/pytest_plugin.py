"""`pytest --deinplace`: a test whose backward fails says what was saved, what overwrote it, and what to write instead.

Loaded by every pytest run of an environment that has deinplace: without the flag nothing else is imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two flags."""
    group = parser.getgroup("deinplace", "in-place writes that break backward")
    group.addoption(
        "--deinplace", action="store_true", help="Watch autograd; name the lines behind a backward that fails."
    )
    group.addoption(
        "--deinplace-fix", action="store_true", help="The same, and mend it: write the patch that the tests confirm."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch, where that was asked for and nobody does so already."""
    wanted = config.getoption("--deinplace") or config.getoption("--deinplace-fix")
    if wanted and not os.environ.get("DEINPLACE_PROBE"):
        from deinplace.pytest_watch import Watch

        config.pluginmanager.register(Watch(config), "deinplace-watch")
