"""Errors that end a command with one clear line for the user."""

from __future__ import annotations


class DeinplaceError(Exception):
    """What went wrong, where, and what to do, as one line: the command prints it and exits 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
