"""Rewrites around a write to a leaf: no_grad, a later flag, a loop of its own, a cast."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from deinplace.analysis.source import Function, Source
from deinplace.model import Edit, Rewrite, Site
from deinplace.rewrite import block
from deinplace.rewrite.statement import Refused
from deinplace.rules import _bindings as names
from deinplace.rules import _intent as intent
from deinplace.rules import _lines as lines
from deinplace.rules import _runs

_FACTORY_FLAG = "requires_grad"


def _rewrite(source: Source, site: Site, title: str, edits: Iterable[Edit], note: str = "", **more: str) -> Rewrite:
    applicability = more.get("applicability", "safe")
    return Rewrite(
        "DIP203",
        title,
        tuple(edits),
        "safe" if applicability == "safe" else "unsafe" if applicability == "unsafe" else "display",
        site.span.line,
        site.path,
        ((source.path, site.function),),
        note,
    )


def own_gradient(statement: ast.stmt, target: ast.expr) -> bool:
    text = f"{ast.unparse(names.root(target))}.grad"
    return any(isinstance(n, ast.Attribute) and ast.unparse(n) == text for n in ast.walk(statement)) and (
        not isinstance(target, ast.Attribute) or target.attr != "grad"
    )


def no_grad(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    first, last = _runs.unit(source, statement)
    title = f"write `{site.target}` under no_grad"
    try:
        header, imports = block.no_grad(source, first)
        edits = block.wrap(source, _runs.siblings(source, first, last), header)
    except Refused:
        hidden = _on_one_line(source, statement)
        if hidden:
            yield _rewrite(source, site, title, hidden)
        return
    yield _rewrite(source, site, title, (*imports, *edits))


def _on_one_line(source: Source, statement: ast.stmt) -> list[Edit]:
    """`with torch.no_grad(): w -= g` where the statement shares its line with others that follow none of its kind."""
    parent = source.parents.get(statement)
    if isinstance(parent, ast.stmt) and parent.lineno == statement.lineno:
        return []
    if lines.lines_of(source, statement) is None:
        return []
    try:
        header, imports = block.no_grad(source, statement)
    except Refused:
        return []
    start, _ = source.bounds(statement)
    return [*imports, Edit(source.path, start, start, f"{header} ")]


def flagged_buffer(source: Source, statement: ast.stmt) -> ast.Call | None:
    """The factory call with `requires_grad=True` that made the written name, where its gradient is not wanted."""
    target = names.written(statement)
    if target is None:
        return None
    text = ast.unparse(names.root(target))
    scope = source.scope(statement)
    before = [a for a in names.assignments(scope, text) if a.lineno < statement.lineno]
    value = before[-1].value if before else None
    if not isinstance(value, ast.Call) or intent.updates_by_gradient(statement, scope) or intent.trained(scope, text):
        return None
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr) or "Parameter" in ast.unparse(value.func):
        return None
    flag = next((k for k in value.keywords if k.arg == _FACTORY_FLAG), None)
    if flag is not None and isinstance(flag.value, ast.Constant) and flag.value.value is True:
        return value
    if isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_" and not value.keywords:
        return value
    return None


def drop_flag(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    call = flagged_buffer(source, statement)
    if call is None:
        return
    edit = lines.remove_keyword(source, call, _FACTORY_FLAG)
    if edit is None and isinstance(call.func, ast.Attribute):
        edit = Edit(source.path, source.bounds(call.func.value)[1], source.bounds(call)[1], "")
    if edit is not None:
        title = f"allocate `{ast.unparse(names.root(names.written(statement) or call))}` without requires_grad"
        yield _rewrite(source, site, title, (edit,))


def container(source: Source, statement: ast.stmt) -> tuple[ast.For, str, str] | None:
    """Loop, container's name, and how the loop reads it (`values`, `items` or nothing), for an inner-loop update."""
    target = names.written(statement)
    if not isinstance(target, ast.Name) or not intent.updates_by_gradient(statement, source.scope(statement)):
        return None
    loop = names.loop_over(source, statement, target.id)
    over = names.iterated(loop, target.id) if loop is not None else None
    if loop is None or "create_graph=True" not in ast.unparse(source.scope(statement)):
        return None
    if isinstance(over, ast.Name):
        return loop, over.id, ""
    called = over.func if isinstance(over, ast.Call) else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.attr in ("values", "items"):
        return loop, called.value.id, called.attr
    return None


def inner_loop(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    found = container(source, statement)
    if found is None:
        return
    loop, name, how = found
    code = f"{name} = {{k: v.clone() for k, v in {name}.items()}}" if how else f"{name} = [v.clone() for v in {name}]"
    edit = lines.insert_before(source, loop, [code])
    scope = source.scope(statement)
    handed_back = any(
        isinstance(n, ast.Return) and n.value is not None and names.mentions(n.value, name) for n in ast.walk(scope)
    )
    if edit is None:
        return
    private = handed_back or name not in names.parameters(scope)
    yield _rewrite(
        source,
        site,
        f"update clones of `{name}`, so that its graph keeps the values it saved",
        (edit,),
        "" if private else f"the caller's `{name}` is no longer updated: it has to take the new container",
        applicability="safe" if private else "unsafe",
    )


def casts(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    """An integer tensor times a fraction: floor division where that is exact for a whole divisor."""
    if not isinstance(statement, ast.AugAssign):
        return
    divisor = _divisor(statement)
    if divisor:
        start, end = source.bounds(statement)
        target = source.segment(statement.target)
        edit = Edit(source.path, start, end, f"{target} //= {divisor}")
        yield _rewrite(
            source,
            site,
            f"halve `{target}` in whole numbers" if divisor == 2 else f"divide `{target}` in whole numbers",
            (edit,),
            "rounds down; the dtype and every holder of the tensor stay as they are",
        )
        return
    start, end = source.bounds(statement)
    operator = (
        source.text[source.bounds(statement.target)[1] : source.bounds(statement.value)[0]].replace("=", "", 1).strip()
    )
    target, value = source.segment(statement.target), source.segment(statement.value)
    if operator in ("+", "-", "*", "/", "//", "%", "**") and isinstance(statement.target, ast.Name):
        edit = Edit(source.path, start, end, f"{target}.copy_({target} {operator} ({value}))")
        yield _rewrite(
            source,
            site,
            f"cast the result back to the dtype of `{target}`",
            (edit,),
            "drops the fraction of each element",
            applicability="display",
        )


def _divisor(statement: ast.AugAssign) -> int:
    value = statement.value
    if not isinstance(value, ast.Constant) or not isinstance(value.value, int | float) or not value.value:
        return 0
    if isinstance(statement.op, ast.Div) and float(value.value).is_integer() and value.value > 0:
        return int(value.value)
    inverse = 1 / value.value
    if (
        isinstance(statement.op, ast.Mult)
        and inverse > 1
        and inverse.is_integer()
        and not int(inverse) & (int(inverse) - 1)
    ):
        return int(inverse)
    return 0


def inference(source: Source, statement: ast.stmt, site: Site) -> Iterator[Rewrite]:
    torch = block.torch_name(source, statement)
    try:
        edits = block.wrap(source, [statement], f"with {torch}.inference_mode():") if torch else []
    except Refused:
        edits = []
    if edits:
        yield _rewrite(source, site, f"write `{site.target}` in inference mode, where it was made", edits)
    target = names.written(statement)
    base = names.root(target) if target is not None else None
    if not isinstance(base, ast.Name):
        return
    before = [a for a in names.assignments(source.scope(statement), base.id) if a.lineno < statement.lineno]
    if not before:
        return
    made: ast.stmt = before[-1]
    for parent in source.ancestors(made):
        if isinstance(parent, ast.With) and "inference_mode" in ast.unparse(parent.items[0]):
            made = parent
        if isinstance(parent, Function):
            break
    after = lines.insert_after(source, made, [f"{base.id} = {base.id}.clone()"])
    if after is not None:
        yield _rewrite(source, site, f"turn `{base.id}` into an ordinary tensor where it was made", (after,))
