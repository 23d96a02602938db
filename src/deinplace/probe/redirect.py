"""Leads imports of a project to a copy of it, such as another revision.

An editable install, or an absolute PYTHONPATH, would else make two revisions import the same files.
"""

from __future__ import annotations

import os
import sys


def install(pairs: list[list[str]]) -> None:
    """For each pair of a copy and its original: change what this process will import."""
    for copy, original in pairs:
        sys.path[:] = [_led(entry, copy, original) for entry in sys.path]
        for name, module in list(sys.modules.items()):
            mapping = getattr(module, "MAPPING", None)  # what setuptools writes for an editable install
            if name.startswith("__editable__") and isinstance(mapping, dict):
                mapping.update({package: _led(path, copy, original) for package, path in mapping.items()})


def _led(entry: str, copy: str, original: str) -> str:
    """The copy's counterpart of an absolute path in the original, where the copy has one of its own."""
    if not os.path.isabs(entry):
        return entry
    real = os.path.realpath(entry)
    if real != original and not real.startswith(original + os.sep):
        return entry
    there = os.path.join(copy, os.path.relpath(real, original))
    return there if os.path.exists(there) and os.path.realpath(there) != real else entry
