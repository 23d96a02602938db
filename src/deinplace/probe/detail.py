"""A second, closer look at the lines of known conflicts: which names and expressions hold the tensor."""

from __future__ import annotations

import ast
import functools
import linecache
import os
from collections.abc import Callable
from types import FrameType
from typing import Any

from . import frames
from .events import Save

KeyOf = Callable[[Any], int | None]


class Look:
    """Lines to look at, as (absolute path, line) pairs; empty on a first run, which stays cheap."""

    def __init__(self, saves: set[tuple[str, int]], writes: set[tuple[str, int]]) -> None:
        self.saves, self.writes = saves, writes
        self.busy = False

    def save(self, stack: frames.Stack, frame: FrameType, key: int, key_of: KeyOf) -> Save | None:
        """Spans of side-effect free expressions in the saving expression that hold the saved storage."""
        if self.busy or not stack or not self._wanted(stack[0], self.saves):
            return None
        self.busy = True  # evaluating an expression may save tensors itself
        try:
            return self._expressions(stack, frame, key, key_of)
        finally:
            self.busy = False

    @staticmethod
    def _expressions(stack: frames.Stack, frame: FrameType, key: int, key_of: KeyOf) -> Save | None:
        user = frames.user_frame(frame)
        if user is None:
            return None
        where = frames.resolve(*stack[0])
        found = []
        for node in _candidates(where["path"], tuple(where["span"])):  # type: ignore[arg-type]
            value = _value(node, user)
            if value is not None and key_of(value) == key:
                found.append([node.lineno, node.col_offset, node.end_lineno, node.end_col_offset])
        return Save(found)

    def write(self, stack: frames.Stack, frame: FrameType, key: int | None, key_of: KeyOf) -> dict[str, list[str]]:
        """Names in the innermost user frame: those bound to the written tensor, and those that share its storage."""
        if not stack or not self._wanted(stack[0], self.writes):
            return {"names": [], "views": []}
        user = frames.user_frame(frame)
        if user is None:
            return {"names": [], "views": []}
        whole: dict[int, list[str]] = {}
        shared = []
        for name, value in list(user.f_locals.items()):
            if name.startswith("__") or key_of(value) != key:
                continue
            shared.append((name, value))
            whole.setdefault(id(value), []).append(name)
        same = max(whole.values(), key=len, default=[])
        target = _target_names(stack[0])
        for names in whole.values():
            if target & set(names):
                same = names
        return {"names": sorted(same), "views": sorted(n for n, _ in shared if n not in same)}

    @staticmethod
    def _wanted(spot: frames.Spot, lines: set[tuple[str, int]]) -> bool:
        if not lines:
            return False
        where = frames.resolve(*spot)
        span: Any = where["span"]
        return (str(where["path"]), span[0]) in lines


def _target_names(spot: frames.Spot) -> set[str]:
    """Names that stand in the writing expression."""
    where = frames.resolve(*spot)
    tree = _tree(str(where["path"]))
    if tree is None:
        return set()
    first, _, last, _ = where["span"]  # type: ignore[misc]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and first <= node.lineno <= last:  # type: ignore[has-type]
            names.add(node.id)
    return names


@functools.lru_cache(maxsize=64)
def _tree(path: str) -> ast.Module | None:
    text = "".join(linecache.getlines(path))
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=1024)
def _candidates(path: str, span: tuple[int, int, int, int]) -> tuple[Any, ...]:
    """Names, attribute chains and plain subscripts inside the expression at `span`."""
    tree = _tree(os.path.abspath(path))
    if tree is None:
        return ()
    line, col, end_line, end_col = span
    inside = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            continue
        if (node.lineno, node.col_offset) < (line, col) or (node.end_lineno, node.end_col_offset) > (end_line, end_col):
            continue
        if isinstance(node.ctx, ast.Load) and _pure(node):
            inside.append(node)
    return tuple(inside)


def _pure(node: ast.expr) -> bool:
    """Evaluating it again has no effect but its value: names, attributes, and subscripts by such or by constants."""
    return all(
        isinstance(
            part,
            ast.Name
            | ast.Attribute
            | ast.Subscript
            | ast.Constant
            | ast.Slice
            | ast.Tuple
            | ast.UnaryOp
            | ast.BinOp
            | ast.expr_context
            | ast.operator
            | ast.unaryop,
        )
        for part in ast.walk(node)
    )


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The expression's value in a frame, or None where it has none."""
    try:
        code = compile(ast.Expression(node), "<deinplace>", "eval")
        return eval(code, frame.f_globals, frame.f_locals)
    except Exception:  # noqa: BLE001 - the user's own properties may raise anything; then it is no candidate
        return None
