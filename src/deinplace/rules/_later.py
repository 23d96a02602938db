"""Moves a write to parameters that no optimizer makes (an average, a clip) behind the backward that needs them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from deinplace.analysis.source import Source
from deinplace.model import Conflict, Edit, Rewrite, Site
from deinplace.rules import _bindings as names
from deinplace.rules import _lines as lines
from deinplace.rules._actions import class_of, helper_of, of_statement
from deinplace.rules._optimizers import related
from deinplace.rules._scene import lift, parting
from deinplace.rules.base import Project

_HARMLESS = frozenset(
    {"print", "float", "int", "len", "str", "zero_grad", "item", "append", "detach", "format", "mean"}
)
"""Names of calls that neither read a module nor run one."""


def written_later(rule: str, site: Site, conflict: Conflict, project: Project) -> Iterator[Rewrite]:
    """The statement that reaches the write moves behind the one that reaches the backward, in the same block.

    Only where nothing between the two can see what is written, or change what the write reads: gradients alone change
    there.
    """
    pair = parting(conflict.write.stack, conflict.backward)
    source = project.sources.get(pair[0].path) if pair is not None else None
    if pair is None or source is None:
        return
    first, second = (names.statement_at(source, place.span) for place in pair)
    lifted = lift(source, first, second) if first is not None and second is not None else None
    if lifted is None or lifted[1] >= lifted[2]:
        return
    block, at, last = lifted
    moved = block[at]
    if not isinstance(moved, ast.Expr | ast.For | ast.With | ast.AugAssign):
        return
    touched, bound = _touched(source, moved), _bound(moved)
    if not touched or not all(_passes(source, s, touched, bound) for s in block[at + 1 : last + 1]):
        return
    code, gone = lines.code_lines(source, moved), lines.delete(source, moved)
    put = lines.insert_after(source, block[last], code) if code else None
    if gone is None or put is None:
        return
    edits: tuple[Edit, ...] = (gone, put)
    title = f"write the parameters of line {moved.lineno} after the backward of line {block[last].lineno}"
    touches = ((source.path, source.qualname(moved)),)
    yield Rewrite(rule, title, edits, "safe", site.span.line, source.path, touches)


def _touched(source: Source, moved: ast.stmt) -> set[str]:
    """Dotted names of what a statement reads or writes; `self` and globals of a helper of the file are followed."""
    found = {text for text, _ in names.chains(moved) if text.split(".")[0] not in _bound(moved)}
    for call in (n for n in ast.walk(moved) if isinstance(n, ast.Call)):
        helper = helper_of(source, call)
        if helper is None:
            continue
        found.discard(ast.unparse(call.func))
        own = {*names.parameters(helper), *_bound(helper)} - {"self"}
        inner = {text for s in helper.body for text, _ in names.chains(s)}
        found |= {text for text in inner if text.split(".")[0] not in own}
    return found - {"self", "torch", "zip", "range", "len", "enumerate"}


def _bound(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _passes(source: Source, statement: ast.stmt, touched: set[str], bound: set[str]) -> bool:
    """True where a statement may run before the write as well: it runs no module, and names nothing of the write's."""
    actions = of_statement(source, statement, source.scope(statement))
    if any(action.kind not in ("zero", "backward") for action in actions):
        return False
    harmless = {id(action.call) for action in actions}
    for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if id(call) in harmless:
            continue
        if helper_of(source, call) is not None or (class_of(source, call) and ast.unparse(call.func) == "self"):
            return False
        if name not in _HARMLESS and not ast.unparse(call.func).startswith(("torch.", "F.", "math.", "np.")):
            return False
    if _bound(statement) & (bound | {text.split(".")[0] for text in touched}):
        return False
    read = {text for text, node in names.chains(statement) if not _resets(source, node)}
    return not any(related(text, other) for text in read for other in touched if other.split(".")[0] != "torch")


def _resets(source: Source, node: ast.expr) -> bool:
    """The name stands in front of `zero_grad()`, alone or as a part of what is called."""
    return ast.unparse(node).endswith(".zero_grad") and isinstance(source.parents.get(node), ast.Call)
