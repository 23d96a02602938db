"""An in-place call and its out-of-place twin, in whatever place of a statement the call stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deinplace.analysis.source import Source
from deinplace.model import Applicability, Edit, Rewrite
from deinplace.rewrite.expression import flat, outer_bounds, path_of, pure, same
from deinplace.rewrite.insert import indent_of, insert_before, newline
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _locate, _names
from deinplace.rules.base import Incident

_UNSURE = (
    ast.Lambda,
    ast.IfExp,
    ast.BoolOp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.JoinedStr,
)
"""Expressions that may run a part of theirs never, often, or in another scope."""


@dataclass(frozen=True)
class InplaceCall:
    """A call that writes `receiver` and returns it; `renames` make it return a new tensor instead."""

    call: ast.Call
    receiver: ast.expr
    renames: tuple[Edit, ...]
    links: tuple[ast.Call, ...] = ()
    """For a chain of in-place methods, its calls from the first to the last."""


def forms(rule: str, source: Source, found: InplaceCall, others: Sequence[str]) -> Iterator[Rewrite]:
    """Out-of-place forms of a call where it stands, the cheapest first."""
    statement = source.statement(found.call)
    if _reads_receiver_late(source, found):
        yield from _split(rule, source, statement, found)
        return
    if not storable(found.receiver):
        if not _root_read_after(source, found):
            yield from _dropped(rule, source, statement, found)
        return
    if isinstance(statement, ast.Expr) and statement.value is found.call:
        yield from _stored(rule, source, statement, found, others)
    elif isinstance(statement, ast.Assign) and statement.value is found.call:
        yield from _assigned(rule, source, statement, found, others)
    else:
        yield from _nested(rule, source, statement, found)


def storable(receiver: ast.expr) -> bool:
    """True where `receiver = new` puts a new tensor in the place that `receiver` names."""
    if isinstance(receiver, ast.Subscript):
        return (
            pure(receiver)
            and not _names.indexes_tensor(receiver)
            and not isinstance(receiver.value, ast.List | ast.Tuple)
        )
    return path_of(receiver)


def _stored(
    rule: str, source: Source, statement: ast.Expr, found: InplaceCall, others: Sequence[str]
) -> Iterator[Rewrite]:
    """`x.add_(r)` becomes `x = x.add(r)`."""
    name = flat(source, found.receiver)
    yield from _stored_back(rule, source, statement, found)
    read = [n for n in others if _names.read_after(source, found.call, ast.Name(n, ast.Load()))]
    start = source.bounds(statement)[0]
    for names in [read, list(others), []] if read else [[], list(others)]:
        chain = "".join(f"{n} = " for n in (name, *names))
        edits = [Edit(source.path, start, start, chain), *found.renames]
        yield _clone.rewrite(rule, source, f"make `{' = '.join([name, *names])}` a new tensor", edits, statement)


def _stored_back(rule: str, source: Source, statement: ast.Expr, found: InplaceCall) -> Iterator[Rewrite]:
    """`for k, v in d.items(): v.mul_(s)` becomes `v = d[k] = v.mul(s)`."""
    if not isinstance(found.receiver, ast.Name):
        return
    start = source.bounds(statement)[0]
    for loop in _names.loops_around(source, statement):
        slot = ""
        edits: list[Edit] = []
        if isinstance(loop, ast.For):
            slot, edits = _clone.stored_slot(source, loop, found.receiver.id)
        if slot:
            bound = Edit(source.path, start, start, f"{found.receiver.id} = {slot} = ")
            title = f"write the new tensor back to `{slot}`"
            yield _clone.rewrite(rule, source, title, [*edits, bound, *found.renames], statement)
            return


def _assigned(
    rule: str, source: Source, statement: ast.Assign, found: InplaceCall, others: Sequence[str]
) -> Iterator[Rewrite]:
    """`y = x.exp_()` becomes `y = x.exp()`, or `y = x = x.exp()` where `x` is read later."""
    targets = [source.segment(t) for t in statement.targets]
    name = flat(source, found.receiver)
    start = outer_bounds(source, found.call)[0]
    extra = [n for n in dict.fromkeys([name, *others]) if n not in targets]
    read = [n for n in extra if _names.read_after(source, found.call, _parse(n))]
    for names in [read, extra, []] if read else [[], extra]:
        chain = "".join(f"{n} = " for n in names)
        edits = [*([Edit(source.path, start, start, chain)] if chain else []), *found.renames]
        yield _clone.rewrite(rule, source, f"make `{' = '.join([*targets, *names])}` a new tensor", edits, statement)


def _nested(rule: str, source: Source, statement: ast.stmt, found: InplaceCall) -> Iterator[Rewrite]:
    """Inside an expression: without the underscore, or bound again by `:=` where the receiver is read later."""
    if not _names.read_after(source, found.call, found.receiver):
        yield from _dropped(rule, source, statement, found)
    if _simple_place(source, found.call, statement) and isinstance(found.receiver, ast.Name):
        name = found.receiver.id
        start, end = source.bounds(found.call)
        edits = [
            Edit(source.path, start, start, f"({name} := "),
            *found.renames,
            Edit(source.path, end, end, ")"),
        ]
        yield _clone.rewrite(rule, source, f"bind `{name}` to a new tensor on the spot", edits, statement)
    elif _simple_place(source, found.call, statement):
        yield from _hoisted(rule, source, statement, found)
    if _names.read_after(source, found.call, found.receiver):
        yield from _dropped(rule, source, statement, found)


def _dropped(rule: str, source: Source, statement: ast.stmt, found: InplaceCall) -> Iterator[Rewrite]:
    if isinstance(statement, ast.Expr) and statement.value is found.call:
        return
    name = source.segment(found.receiver)
    sure = _simple_place(source, found.call, statement) and not _names.read_after(source, found.call, found.receiver)
    title, why = (
        f"leave `{name}` as it is and use a new tensor",
        "" if sure else f"Later readers of `{name}` see its old values.",
    )
    applicability: Applicability = "safe" if sure else "unsafe"
    yield _clone.rewrite(rule, source, title, found.renames, statement, why, applicability)


def _hoisted(rule: str, source: Source, statement: ast.stmt, found: InplaceCall) -> Iterator[Rewrite]:
    """`f(self.x.clamp_(0))` becomes `self.x = self.x.clamp(0)` and `f(self.x)`."""
    if not isinstance(statement, ast.Expr | ast.Assign | ast.Return | ast.AugAssign | ast.AnnAssign):
        return
    name, text = flat(source, found.receiver), renamed(source, found)
    if "\n" in text or "\r" in text:
        return
    start, end = source.bounds(found.call)
    try:
        edits = [insert_before(source, statement, f"{name} = {text}"), Edit(source.path, start, end, name)]
    except Refused:
        return
    yield _clone.rewrite(rule, source, f"make `{name}` a new tensor before the statement", edits, statement)


def renamed(source: Source, found: InplaceCall) -> str:
    """The call's text with its renames."""
    start, end = source.bounds(found.call)
    text = source.text[start:end]
    for edit in sorted(found.renames, key=lambda e: e.start, reverse=True):
        text = text[: edit.start - start] + edit.new + text[edit.end - start :]
    return text


def _split(rule: str, source: Source, statement: ast.stmt, found: InplaceCall) -> Iterator[Rewrite]:
    """A chain whose later arguments read the receiver: one statement for each link."""
    whole = isinstance(statement, ast.Expr) and statement.value is found.call
    indent = indent_of(source, statement)
    if not whole or indent is None or not storable(found.receiver) or len(found.renames) != len(found.links):
        return
    name = flat(source, found.receiver)
    start, end = source.bounds(statement)
    begin = outer_bounds(source, found.receiver)[1]
    lines: list[str] = []
    for link in found.links:
        stop = source.bounds(link)[1]
        part = source.text[begin:stop]
        for edit in found.renames:
            if begin <= edit.start < stop:
                part = part[: edit.start - begin] + edit.new + part[edit.end - begin :]
        lines.append(f"{name} = {name}{part.lstrip()}")
        begin = stop
    if any("\n" in part or "\r" in part for part in lines):
        return
    text = f"{newline(source, statement.lineno)}{indent}".join(lines)
    edit = Edit(source.path, start, end, text)
    yield _clone.rewrite(rule, source, f"make `{name}` a new tensor, one statement a step", [edit], statement)


def _reads_receiver_late(source: Source, found: InplaceCall) -> bool:
    """True where a later link's argument reads what an earlier link wrote."""
    later = [*(a for link in found.links[1:] for a in (*link.args, *(k.value for k in link.keywords)))]
    roots = _clone.bases(source, found.receiver)
    return any(same(n, root) for a in later for n in ast.walk(a) for root in roots)


def _root_read_after(source: Source, found: InplaceCall) -> bool:
    """True where what owns a receiver such as `x[:, 0]` is read later: the write was meant for it."""
    if isinstance(found.receiver, ast.Call) and not _clone.bases(source, found.receiver):
        return False
    return any(_names.read_after(source, found.call, owner) for owner in _clone.bases(source, found.receiver))


def _simple_place(source: Source, node: ast.AST, statement: ast.stmt) -> bool:
    """True where an expression runs once, in the statement's own scope."""
    for parent in source.ancestors(node):
        if parent is statement:
            break
        if isinstance(parent, _UNSURE):
            return False
    return not isinstance(statement, ast.While | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def others_of(source: Source, found: InplaceCall, incident: Incident | None) -> list[str]:
    """Other local names of the very tensor that was written, where the receiver is a plain name."""
    event = _locate.write_event(incident) if incident is not None else None
    if event is None or not isinstance(found.receiver, ast.Name):
        return []
    own = found.receiver.id
    if not _names.assignable(source, found.call, own):
        return []
    return [n for n in event.names if n != own and n.isidentifier() and _names.assignable(source, found.call, n)]
