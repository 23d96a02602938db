"""Who called: the user's frames on the Python stack, with exact column spans."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import sysconfig
from types import CodeType, FrameType, TracebackType

Spot = tuple[CodeType, int]
"""A code object and the offset of the instruction that runs in it."""
Stack = tuple[Spot, ...]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_user: dict[str, bool] = {}
_copies: list[tuple[str, str]] = []


def copied(pairs: list[list[str]]) -> None:
    """Say which folders are scratch copies of which others: files in them go by the names of the originals."""
    _copies[:] = [(os.path.realpath(copy) + os.sep, os.path.realpath(original) + os.sep) for copy, original in pairs]


def real(path: str) -> str:
    """The path of a file as the user knows it."""
    path = os.path.realpath(path)
    for copy, original in _copies:
        if path.startswith(copy):
            return original + path[len(copy) :]
    return path


@functools.cache
def _hidden_prefixes() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    hidden = [_HERE, paths["stdlib"] + os.sep, paths["platstdlib"] + os.sep]
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        hidden.append(os.path.dirname(torch.__file__) + os.sep)
    return tuple(hidden)


def is_user(filename: str) -> bool:
    """True for source outside torch, the standard library and the probe."""
    known = _user.get(filename)
    if known is None:
        site = f"{os.sep}site-packages{os.sep}"
        hidden = filename.startswith(_hidden_prefixes())
        if hidden and site in filename:  # site-packages lies below the standard library's folder
            hidden = any(filename.startswith(p) for p in _hidden_prefixes() if site in p)
        known = _user[filename] = not hidden and not filename.startswith("<")
    return known


def user_stack(limit: int, frame: FrameType | None = None) -> Stack:
    """The innermost `limit` user frames, innermost first."""
    frame = frame or sys._getframe(1)
    found: list[Spot] = []
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        known = _user.get(name)
        if known is None:
            known = is_user(name)
        if known:
            found.append((code, frame.f_lasti))
            if len(found) == limit:
                break
        frame = frame.f_back
    return tuple(found)


def traceback_stack(trace: TracebackType | None, limit: int = 8) -> Stack:
    """The user frames of a traceback, innermost first."""
    found: list[Spot] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_user(code.co_filename):
            found.append((code, trace.tb_lasti))
        trace = trace.tb_next
    return tuple(reversed(found))[:limit]


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost user frame itself."""
    while frame is not None and not is_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=4096)
def resolve(code: CodeType, lasti: int) -> dict[str, object]:
    """A spot as plain data: path, function, and the span that the compiler noted for its instruction."""
    line, end_line, col, end_col = next(
        itertools.islice(code.co_positions(), max(lasti, 0) // 2, None), (None, None, None, None)
    )
    line = line if line is not None else code.co_firstlineno
    return {
        "path": real(code.co_filename),
        "function": code.co_qualname,
        "span": [line, col or 0, end_line or line, end_col or 0],
    }


def resolved(stack: Stack) -> list[dict[str, object]]:
    """A whole stack as plain data."""
    return [resolve(code, lasti) for code, lasti in stack]
