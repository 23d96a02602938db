"""`python -m deinplace`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import deinplace
from deinplace.cli import main


def _without_working_folder() -> None:
    """`-m` puts the working folder on the path: a user's `rich.py` there would be run in place of ours."""
    first = os.path.realpath(sys.path[0]) if sys.path else ""
    ours = os.path.realpath(Path(deinplace.__file__).parent.parent)
    if not sys.flags.safe_path and first == os.path.realpath(os.curdir) != ours:
        del sys.path[0]


if __name__ == "__main__":
    _without_working_folder()
    main()
