"""The type checkers that a command asks, by its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deinplace.errors import DeinplaceError

if TYPE_CHECKING:
    from deinplace.analysis.source import Source
    from deinplace.config import Config
    from deinplace.typing_evidence import TypeEvidence


def evidence(config: Config, sources: Mapping[str, Source], edited: bool = False) -> TypeEvidence | None:
    """What asks checkers about `sources`; None where the settings say no, or an editor waits and nobody said yes.

    Raises:
        DeinplaceError: checkers are asked for, and none is installed.
    """
    if config.types == "off" or (edited and config.types == "auto"):
        return None
    from deinplace.cli.run import default_python
    from deinplace.typing_evidence import CHECKERS, INSTALL, TypeEvidence

    if config.types == "on" and not any(checker.find() for checker in CHECKERS):
        raise DeinplaceError(f"--types on needs a type checker: {INSTALL}")
    return TypeEvidence(sources, config.python or default_python(), config.all)
