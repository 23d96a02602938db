"""Writes to outputs of operations that return several views: the views are taken one by one, or put back together."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Edit, Rewrite
from deinplace.rewrite.augment import assignment
from deinplace.rewrite.block import torch_name
from deinplace.rewrite.expression import fresh_name, path_of, replace, same
from deinplace.rewrite.insert import insert_after, insert_before
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _names
from deinplace.rules._twins import chain_edits
from deinplace.rules.base import Incident


def first(incident: Incident | None) -> bool:
    """True where views are to be looked into before anything else: autograd refused to write one of several."""
    return incident is None or (incident.raised is not None and incident.raised.category == "multi-view")


def single_views(rule: str, source: Source, statement: ast.stmt, receiver: ast.expr) -> Iterator[Rewrite]:
    """`for row in x: row.mul_(s)`: iterate over `x[i]`, each a plain view that may be written, rather than over `x`."""
    for owner in _clone.bases(source, receiver):
        if not isinstance(owner, ast.Name):
            continue
        for loop in _names.loops_around(source, statement):
            if isinstance(loop, ast.For):
                for container, kind in _clone.walked(loop, owner.id, views=True):
                    if kind == "list":
                        yield from _by_index(rule, source, loop, container, statement)
                if _names.binds(loop.target, owner):
                    break
        yield from put_back(rule, source, statement, owner)


def _by_index(rule: str, source: Source, loop: ast.For, container: ast.expr, statement: ast.stmt) -> Iterator[Rewrite]:
    index = fresh_name(source, "index", set())
    base, dim = _unbound(container)
    if base is None:
        return
    name = source.segment(base)
    row = f"{name}[{index}]" if dim is None else f"{name}.select({dim}, {index})"
    count = f"len({name})" if dim is None else f"{name}.size({dim})"
    rows = replace(source, container, f"[{row} for {index} in range({count})]")
    note = "Iterating over a tensor gives views that autograd does not allow to be written; one view at a time may be."
    yield _clone.rewrite(rule, source, f"take the rows of `{name}` one by one", [rows], statement, note)
    try:
        clone = insert_before(source, loop, f"{name} = {name}.clone()")
    except Refused:
        return
    yield _clone.rewrite(rule, source, f"clone `{name}` and take its rows one by one", [clone, rows], statement, note)


def _unbound(container: ast.expr) -> tuple[ast.expr | None, str | None]:
    """The tensor that is walked, and the dimension where it is not the first."""
    if path_of(container):
        return container, None
    if isinstance(container, ast.Call) and isinstance(container.func, ast.Attribute) and path_of(container.func.value):
        values = [*container.args, *(k.value for k in container.keywords if k.arg == "dim")]
        if container.func.attr == "unbind" and len(values) <= 1:
            return container.func.value, ast.unparse(values[0]) if values else "0"
    return None, None


def put_back(rule: str, source: Source, statement: ast.stmt, owner: ast.Name) -> Iterator[Rewrite]:
    """`a, b = x.chunk(2)`, written one by one and `x` read later: new tensors, then `x = torch.cat((a, b))`."""
    found = _split_of(source, statement, owner)
    torch = torch_name(source, statement)
    if found is None or torch is None:
        return
    made, names, base, dim, joined = found
    if not _names.read_after(source, made, base):
        return
    block = _block(source, made)
    later = block[block.index(made) + 1 :] if made in block else []
    edits: list[Edit] = []
    last: ast.stmt | None = None
    for each in later:
        own = _out_of_place(source, each, names)
        if own:
            edits += own
            last = each
    if last is None or statement not in later:
        return
    text = source.segment(base)
    parts = ", ".join(names)
    code = f"{text} = {torch}.{joined}(({parts}{',' if len(names) == 1 else ''}){', ' + dim if dim else ''})"
    try:
        edits.append(insert_after(source, last, code))
    except Refused:
        return
    yield _clone.rewrite(rule, source, f"make new parts and put them back into `{text}`", edits, statement)


def _split_of(
    source: Source, statement: ast.stmt, owner: ast.Name
) -> tuple[ast.Assign, list[str], ast.expr, str, str] | None:
    """(assignment, names, split tensor, dimension as an argument, `cat` or `stack`) that gave `owner` its view."""
    made: ast.Assign | None = None
    for node in _names.own_nodes(_names.function_of(source, statement)):
        if isinstance(node, ast.Assign) and source.bounds(node)[0] < source.bounds(statement)[0]:
            elements = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple | ast.List) else []
            made = node if any(same(e, owner) for e in elements) else made
    if made is None or not isinstance(made.targets[0], ast.Tuple | ast.List) or not isinstance(made.value, ast.Call):
        return None
    names = [e.id for e in made.targets[0].elts if isinstance(e, ast.Name)]
    call = made.value
    if not isinstance(call.func, ast.Attribute) or len(names) != len(made.targets[0].elts):
        return None
    dotted = _names.dotted(call.func, _names.imports(source)) or ""
    function = dotted.startswith("torch.")
    entry = load().function(dotted) if function else load().method(call.func.attr)
    arguments = call.args if function else [call.func.value, *call.args]
    if entry is None or entry.returns != "views" or not arguments or not path_of(arguments[0]):
        return None
    values = [source.segment(k.value) for k in call.keywords if k.arg == "dim"]
    at = entry.parameters.index("dim") if "dim" in entry.parameters else len(arguments)
    values += [source.segment(a) for a in arguments[at : at + 1]]
    joined = "stack" if call.func.attr == "unbind" else "cat"
    return made, names, arguments[0], f"dim={values[0]}" if values else "", joined


def _block(source: Source, statement: ast.stmt) -> Sequence[ast.stmt]:
    for _, block in ast.iter_fields(source.parents[statement]):
        if isinstance(block, list) and any(s is statement for s in block):
            return block
    return []


def _out_of_place(source: Source, statement: ast.stmt, names: Sequence[str]) -> list[Edit]:
    """Edits that make a statement which writes one of `names` in place bind it instead."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        if statement.target.id not in names:
            return []
        try:
            return assignment(source, statement)
        except Refused:
            return []
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return chain_edits(source, statement, names)
    return []
