"""The files that a command works on."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from deinplace.cli.options import silent
from deinplace.errors import DeinplaceError

if TYPE_CHECKING:
    from deinplace.analysis.source import Source
    from deinplace.config import Config
    from deinplace.model import Problem


STDIN = ["-"]


def gather(
    given: list[str], config: Config, stdin_name: str | None = None
) -> tuple[dict[str, Source], tuple[Problem, ...]]:
    """Sources by path, and what could not be read; `-` is standard input, which `stdin_name` names.

    Raises:
        DeinplaceError: a path does not exist, or there is no Python file in any of them.
    """
    from deinplace.files import discover, load, load_bytes

    if given == STDIN:
        held, broken = load_bytes(os.path.abspath(stdin_name or "stdin.py"), sys.stdin.buffer.read())  # noqa: PTH100
        return quietened(held, config), broken
    if "-" in given or stdin_name:
        raise DeinplaceError("`-` stands alone, and --stdin-filename names it")
    paths, problems = discover(given, config.selection)
    if not paths and not problems and not config.force_exclude:
        raise DeinplaceError(f"no Python files in {', '.join(given)}")
    sources, unread = load(paths)
    named = {os.path.realpath(path) for path in given}
    unread = tuple(p for p in unread if p.code != "other-language" or p.path in named)
    return quietened(sources, config), (*problems, *unread)


def quietened(sources: dict[str, Source], config: Config) -> dict[str, Source]:
    """The sources, each with the rules that the settings silence in it."""
    if not config.per_file_ignores:
        return sources
    return {path: replace(source, silent=silent(config, path)) for path, source in sources.items()}
