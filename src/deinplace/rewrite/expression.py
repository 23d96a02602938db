"""Small edits inside an expression: `.clone()` behind it, parentheses where needed, an argument taken out."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import tokenize
from functools import lru_cache

from deinplace.analysis.imports import dotted_path
from deinplace.analysis.source import Source
from deinplace.model import Edit
from deinplace.rewrite.statement import Refused, dump

_PURE = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Slice,
    ast.Tuple,
    ast.List,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
    ast.expr_context,
)


def pure(node: ast.AST) -> bool:
    """True where evaluating an expression twice gives the same and has no effect, as far as syntax can tell."""
    return all(isinstance(n, _PURE) for n in ast.walk(node))


def path_of(node: ast.expr) -> bool:
    """True for a name or a dotted path from one: what can be read and assigned without surprises."""
    return bool(dotted_path(node))


def outer_bounds(source: Source, node: ast.expr) -> tuple[int, int]:
    """Bounds of an expression with the parentheses that are only its own, such as `(a + b)` in `(a + b).sum()`."""
    start, end = source.bounds(node)
    low, high = source.bounds(source.statement(node))
    text = source.text[low:high]
    if "#" in text or "\\" in text:
        text = _bare(text)
    while True:
        left = start - 1
        while left >= low and text[left - low].isspace():
            left -= 1
        right = end
        while right < high and text[right - low].isspace():
            right += 1
        if left < low or right >= high or text[left - low] != "(" or text[right - low] != ")":
            return start, end
        if not _only_grouping(source, node, left):
            return start, end
        start, end = left, right + 1


@lru_cache(maxsize=16)
def _bare(text: str) -> str:
    """A statement with blanks for its comments and for backslashes at the ends of lines."""
    feeds = text.replace("\r\n", "\n ").replace("\r", "\n")  # line ends that the tokenizer knows, at the same offsets
    starts = [0, *(m.end() for m in re.finditer("\n", feeds))]
    kept: list[tuple[int, int]] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # a part of a file need not be one
        for token in tokenize.generate_tokens(io.StringIO(feeds).readline):
            if token.type != tokenize.COMMENT and token.string:
                kept.append((starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]))
    done = kept[-1][1] if kept else 0
    bare = [" "] * done + list(text[done:])
    for start, end in kept:
        bare[start:end] = text[start:end]
    return "".join(bare)


def _opening(source: Source, call: ast.Call) -> int:
    """Where the parenthesis of a call's arguments opens."""
    at = source.bounds(call.func)[1]
    comment = False
    while comment or source.text[at] != "(":
        comment = source.text[at] == "#" or (comment and source.text[at] not in "\r\n")
        at += 1
    return at


def _only_grouping(source: Source, node: ast.expr, paren: int) -> bool:
    """False where the parenthesis at `paren` is that of a call or belongs to a larger node."""
    for parent in source.ancestors(node):
        if not isinstance(parent, ast.expr):
            break
        start, _ = source.bounds(parent)
        if start <= paren:
            if isinstance(parent, ast.Call):
                return paren != _opening(source, parent)
            return not (isinstance(parent, ast.Tuple | ast.GeneratorExp) and start == paren)
    outer = source.parents.get(node)
    if isinstance(outer, ast.keyword):
        return source.bounds(outer)[0] <= paren
    return not isinstance(outer, ast.ClassDef)


def atomic(node: ast.expr) -> bool:
    """True where `.attr` may follow an expression without parentheses around it."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, int | float | complex) or isinstance(node.value, bool)
    kinds = ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.List | ast.Dict | ast.Set | ast.ListComp
    return isinstance(node, kinds)


def clone(source: Source, node: ast.expr, call: str = ".clone()") -> list[Edit]:
    """Edits that put `.clone()` behind an expression."""
    start, end = outer_bounds(source, node)
    if atomic(node) or (start, end) != source.bounds(node):
        return [Edit(source.path, end, end, call)]
    if isinstance(node, ast.Tuple) and source.text[start] == "(":
        return [Edit(source.path, end, end, call)]
    return [Edit(source.path, start, start, "("), Edit(source.path, end, end, f"){call}")]


def flat(source: Source, node: ast.expr) -> str:
    """Source of an expression on one line, as a statement of its own needs it."""
    text = source.segment(node)
    return ast.unparse(node) if "\n" in text or "\r" in text else text


def cloned_text(source: Source, node: ast.expr) -> str:
    """Source text of an expression with `.clone()` behind it."""
    text = source.segment(node)
    return f"{text}.clone()" if atomic(node) else f"({text}).clone()"


def replace(source: Source, node: ast.AST, new: str) -> Edit:
    """An edit that replaces a node's own text."""
    start, end = source.bounds(node)
    return Edit(source.path, start, end, new)


def attribute_name(source: Source, node: ast.Attribute, new: str) -> Edit:
    """An edit that renames the last part of `a.b.name`."""
    _, end = source.bounds(node)
    start = end - len(node.attr)
    if source.text[start:end] != node.attr:
        raise Refused("the name is not spelled as Python reads it")
    return Edit(source.path, start, end, new)


def drop_keyword(source: Source, call: ast.Call, name: str) -> Edit:
    """An edit that takes the keyword argument `name` out of a call.

    Raises:
        Refused: a comment would be lost with it.
    """
    arguments: list[ast.AST] = sorted([*call.args, *call.keywords], key=lambda n: source.bounds(n))
    at = next(i for i, n in enumerate(arguments) if isinstance(n, ast.keyword) and n.arg == name)
    start, end = source.bounds(arguments[at])
    if at + 1 < len(arguments):
        end = _argument_start(source, arguments[at + 1])
    elif at > 0:
        start = _argument_end(source, arguments[at - 1])
        end = _argument_end(source, arguments[at])
    if "#" in source.text[start:end]:
        raise Refused("a comment stands beside the argument")
    return Edit(source.path, start, end, "")


def _argument_start(source: Source, node: ast.AST) -> int:
    start = outer_bounds(source, node)[0] if isinstance(node, ast.expr) else source.bounds(node)[0]
    if isinstance(node, ast.keyword) and node.arg is None:
        start = source.text.rindex("**", 0, start + 2)
    return start


def _argument_end(source: Source, node: ast.AST) -> int:
    value = node.value if isinstance(node, ast.keyword) else node
    return outer_bounds(source, value)[1] if isinstance(value, ast.expr) else source.bounds(value)[1]


def fresh_name(source: Source, stem: str, taken: set[str]) -> str:
    """A name that the file does not use; it joins `taken`."""
    used = _names_used(source)
    name, number = stem, 1
    while name in used or name in taken:
        number += 1
        name = f"{stem}{number}"
    taken.add(name)
    return name


@lru_cache(maxsize=16)
def _names_used(source: Source) -> frozenset[str]:
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return frozenset(found)


def same(a: ast.AST, b: ast.AST) -> bool:
    """True where two expressions are spelled alike, whether read or written."""
    if type(a) is not type(b):
        return False
    if isinstance(a, ast.Name) and isinstance(b, ast.Name):
        return a.id == b.id
    return dump(a) == dump(b)
