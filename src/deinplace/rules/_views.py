"""Writes to outputs of operations that return several views: the views are taken one by one, or put back together."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from deinplace.analysis.source import Source
from deinplace.model import Rewrite
from deinplace.rewrite.expression import fresh_name, replace
from deinplace.rewrite.insert import insert_before
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _names


def selected_rows(rule: str, source: Source, statement: ast.stmt, receiver: ast.expr) -> Iterator[Rewrite]:
    """`for row in x: row.mul_(s)`: iterate over `x[i]`, each a plain view that may be written, rather than over `x`."""
    for owner in _clone.bases(source, receiver):
        if not isinstance(owner, ast.Name):
            continue
        for loop in _names.loops_around(source, statement):
            if not isinstance(loop, ast.For):
                continue
            for container, kind in _clone.walked(loop, owner.id):
                if kind == "list" and isinstance(container, ast.Name | ast.Attribute):
                    yield from _by_index(rule, source, loop, container, statement)
            if _names.binds(loop.target, owner):
                break


def _by_index(rule: str, source: Source, loop: ast.For, container: ast.expr, statement: ast.stmt) -> Iterator[Rewrite]:
    name = source.segment(container)
    index = fresh_name(source, "index", set())
    rows = replace(source, container, f"[{name}[{index}] for {index} in range(len({name}))]")
    note = "Iterating over a tensor gives views that autograd does not allow to be written; `x[i]` may be."
    yield _clone.rewrite(rule, source, f"take the rows of `{name}` one by one", [rows], statement, note)
    try:
        clone = insert_before(source, loop, f"{name} = {name}.clone()")
    except Refused:
        return
    yield _clone.rewrite(rule, source, f"clone `{name}` and take its rows one by one", [clone, rows], statement, note)
