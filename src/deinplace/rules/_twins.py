"""In-place methods, their functional twins, and the chains that they stand in."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Edit
from deinplace.rewrite.block import torch_name
from deinplace.rewrite.expression import attribute_name, outer_bounds
from deinplace.rewrite.statement import Refused
from deinplace.rules import _names
from deinplace.rules._calls import InplaceCall


def method_of(node: ast.Call) -> str:
    """Name of the method that a call calls, or an empty string."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def is_write(source: Source, node: ast.Call) -> bool:
    """True for a call of an in-place Tensor method on something that is no imported module."""
    name = method_of(node)
    if not isinstance(node.func, ast.Attribute) or not name.endswith("_") or name.endswith("__"):
        return False
    root = node.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    known = _names.imports(source)
    if isinstance(root, ast.Name) and root.id in known and _names.dotted(node.func, known) != name:
        return False
    method = load().method(name)
    # What only sets requires_grad or hooks overwrites nobody's value; `detach_` at least has a plain form.
    return method is not None and method.in_place and (method.effect != "autograd" or _twin(node) is not None)


def _twin(node: ast.Call) -> str | None:
    """Name of the functional twin. For what only changes a tensor's shape or history the plain view will do, and must:

    what gives no view, such as `resize_as`, gives the same only where nothing is resized.
    """
    name = method_of(node)
    known, plain = load().method(name), load().method(name.removesuffix("_"))
    if known is None:
        return None
    if known.effect in ("metadata", "autograd"):
        return plain.name if plain is not None and plain.returns == "view" else None
    return known.twin if known.twin_exact else None


def renames(source: Source, node: ast.Call, alone: bool) -> tuple[Edit, ...]:
    """Edits that call the twin: `x.add_(r)` as `x.add(r)`, or `x.fill_(0)` as `torch.fill(x, 0)`.

    Raises:
        Refused: the twin is a function and cannot be called here.
    """
    twin = _twin(node)
    if not isinstance(node.func, ast.Attribute) or twin is None:
        raise Refused("the method has no twin")
    module, _, name = twin.rpartition(".")
    if not module:
        return (attribute_name(source, node.func, name),)
    torch = torch_name(source, node)
    if module != "torch" or torch is None or not alone:
        raise Refused("the twin is a function that cannot be called here")
    start, end = outer_bounds(source, node.func.value)
    opened = source.text.index("(", source.bounds(node.func)[1]) + 1
    separator = ", " if node.args or node.keywords else ""
    head = Edit(source.path, start, start, f"{torch}.{name}(")
    return (head, Edit(source.path, end, opened, separator))


def variants(source: Source, node: ast.Call) -> list[InplaceCall]:
    """The call by itself, and the chain of in-place calls around it as a whole."""
    links = [node]
    while (inner := _receiver_call(links[0])) is not None and is_write(source, inner):
        links.insert(0, inner)
    while (outer := _outer_call(source, links[-1])) is not None and is_write(source, outer):
        links.append(outer)
    root = links[0].func
    if not isinstance(root, ast.Attribute) or not isinstance(node.func, ast.Attribute):
        return []
    statement = source.statement(node)
    alone = not (isinstance(statement, ast.Expr) and statement.value is links[-1])
    found: list[InplaceCall] = []
    try:
        if all(_twin(link) for link in links):
            edits = tuple(edit for link in links for edit in renames(source, link, len(links) == 1))
            found.append(InplaceCall(links[-1], root.value, edits, tuple(links)))
        if len(links) > 1 and alone and node is links[0] and _twin(node):
            found.insert(0, InplaceCall(node, node.func.value, renames(source, node, False), (node,)))
    except Refused:
        return []
    return found


def _receiver_call(node: ast.Call) -> ast.Call | None:
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return inner if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) else None


def _outer_call(source: Source, node: ast.Call) -> ast.Call | None:
    attribute = source.parents.get(node)
    outer = source.parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
    return outer if isinstance(outer, ast.Call) and outer.func is attribute else None


def chain_edits(source: Source, statement: ast.Expr, names: Sequence[str]) -> list[Edit]:
    """`a.mul_(2).add_(1)` as a statement: the edits that bind `a`, one of `names`, to new tensors instead."""
    call = statement.value
    if not isinstance(call, ast.Call) or not is_write(source, call):
        return []
    for found in variants(source, call):
        if found.call is call and isinstance(found.receiver, ast.Name) and found.receiver.id in names:
            start = source.bounds(statement)[0]
            return [Edit(source.path, start, start, f"{found.receiver.id} = "), *found.renames]
    return []
