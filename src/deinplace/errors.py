"""Errors that end a command with one clear line for the user."""

from __future__ import annotations


class DeinplaceError(Exception):
    """What went wrong, where, and what to do, as one line: the command prints it and exits 2.

    `detail` is what another program had to say about it, such as its traceback; it is printed first, as it is.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message, self.detail = message, detail
