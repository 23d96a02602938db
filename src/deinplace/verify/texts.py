"""Settings files beside the program: only so that advice can name their lines; nothing ever edits them."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIXES = frozenset({".json", ".yaml", ".yml", ".toml"})
_SKIPPED = frozenset({"node_modules", "__pycache__", "build", "dist", "venv", "site-packages"})
_LARGEST = 200_000
_MOST = 2_000
_DEEP = 5


def settings_files(folder: str, word: str = "inplace") -> dict[str, str]:
    """Text by absolute path of the small settings files below `folder` that hold `word`."""
    found: dict[str, str] = {}
    seen = 0
    top = Path(folder)
    for base, folders, names in os.walk(top):
        here = Path(base)
        depth = len(here.relative_to(top).parts)
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not f.startswith(".") and depth < _DEEP)
        for name in sorted(names):
            path = here / name
            if path.suffix.lower() not in SUFFIXES:
                continue
            seen += 1
            if seen > _MOST:
                return found
            try:
                if path.stat().st_size <= _LARGEST and word in (text := path.read_text("utf-8")):
                    found[str(path)] = text
            except (OSError, UnicodeDecodeError):
                continue
    return found
