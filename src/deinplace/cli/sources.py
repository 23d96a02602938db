"""The files that a command works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deinplace.errors import DeinplaceError

if TYPE_CHECKING:
    from deinplace.analysis.source import Source
    from deinplace.config import Config
    from deinplace.model import Problem


def gather(given: list[str], config: Config) -> tuple[dict[str, Source], tuple[Problem, ...]]:
    """Sources by path, and what could not be read.

    Raises:
        DeinplaceError: a path does not exist, or there is no Python file in any of them.
    """
    from deinplace.files import discover, load

    paths, problems = discover(given, config.selection)
    if not paths and not problems and not config.force_exclude:
        raise DeinplaceError(f"no Python files in {', '.join(given)}")
    sources, unread = load(paths)
    return sources, (*problems, *unread)
