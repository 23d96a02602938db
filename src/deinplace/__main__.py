"""`python -m deinplace`."""

from __future__ import annotations

from deinplace.cli import main

if __name__ == "__main__":
    main()
