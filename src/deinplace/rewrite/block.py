"""Statements put under a `with` of their own, and the name that `torch` has where they stand."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Sequence

from deinplace.analysis.source import Source
from deinplace.model import Edit
from deinplace.rewrite.insert import first_line, indent_of, newline, start_of
from deinplace.rewrite.statement import Refused

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def wrap(source: Source, statements: Sequence[ast.stmt], header: str) -> list[Edit]:
    """Edits that put consecutive sibling statements under `header` (such as `with torch.no_grad():`).

    The contents of strings that run over several lines stay as they are.

    Raises:
        Refused: the statements share a line with other code, are an `elif`, or do not follow each other.
    """
    if not statements or not _consecutive(source, statements):
        raise Refused("the statements do not follow each other in one block")
    first, last = statements[0], statements[-1]
    indent = indent_of(source, first)
    at = start_of(source, first)
    if indent is None or source.text.startswith("elif", at) or _shares_last_line(source, last):
        raise Refused("the statements share a line with other code")
    unit = indent_unit(source, first)
    edits = [Edit(source.path, at, at, f"{header}{newline(source, first_line(first))}{indent}{unit}")]
    inside = _string_lines(source)
    for number in range(first_line(first) + 1, (last.end_lineno or last.lineno) + 1):
        line = source.line(number)
        if number in inside or not line.strip():
            continue
        start = source.line_starts[number - 1]
        shared = start + len(indent) if line.startswith(indent) else start
        edits.append(Edit(source.path, shared, shared, unit))
    return edits


def _consecutive(source: Source, statements: Sequence[ast.stmt]) -> bool:
    parent = source.parents.get(statements[0])
    for _, block in ast.iter_fields(parent) if parent is not None else ():
        if isinstance(block, list) and any(s is statements[0] for s in block):
            at = next(i for i, s in enumerate(block) if s is statements[0])
            return all(a is b for a, b in zip(block[at:], statements, strict=False)) and len(block) - at >= len(
                statements
            )
    return False


def _shares_last_line(source: Source, node: ast.stmt) -> bool:
    line = node.end_lineno or node.lineno
    stop = source.line_starts[line - 1] + len(source.line(line).rstrip("\r\n"))
    rest = source.text[source.bounds(node)[1] : stop].strip()
    return bool(rest) and not rest.startswith("#")


def _string_lines(source: Source) -> set[int]:
    """Lines that begin inside a string."""
    found: set[int] = set()
    opened: list[int] = []
    begin, end = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)
    for token in tokenize.generate_tokens(io.StringIO(source.text, newline="").readline):
        if token.type == tokenize.STRING:
            found.update(range(token.start[0] + 1, token.end[0] + 1))
        elif token.type == begin:
            opened.append(token.start[0])
        elif token.type == end:
            found.update(range(opened.pop() + 1, token.end[0] + 1))
    return found


def indent_unit(source: Source, node: ast.stmt) -> str:
    """One level of indentation as the file around `node` has it."""
    own = indent_of(source, node) or ""
    for parent in source.ancestors(node):
        outer = indent_of(source, parent) if isinstance(parent, ast.stmt) else None
        if outer is not None and own.startswith(outer) and len(own) > len(outer):
            return own[len(outer) :]
    for statement in source.nodes:
        body = getattr(statement, "body", None)
        inner = body[0] if isinstance(body, list) and body and isinstance(statement, ast.stmt) else None
        if isinstance(inner, ast.stmt) and isinstance(statement, ast.stmt):
            outer, deep = indent_of(source, statement), indent_of(source, inner)
            if outer is not None and deep is not None and deep.startswith(outer) and len(deep) > len(outer):
                return deep[len(outer) :]
    return "\t" if "\t" in own else "    "


def torch_name(source: Source, node: ast.AST) -> str | None:
    """The name that means the module `torch` where `node` stands, or None."""
    for name in _imported(source, node, "torch"):
        if not _shadowed(source, node, name):
            return name
    return None


def no_grad(source: Source, node: ast.AST) -> tuple[str, list[Edit]]:
    """A header that switches gradients off where `node` stands, and the import that it needs, if any.

    Raises:
        Refused: the name torch is taken there.
    """
    torch = torch_name(source, node)
    if torch is not None:
        return f"with {torch}.no_grad():", []
    for statement in _reachable_imports(source, node):
        if isinstance(statement, ast.ImportFrom) and statement.module == "torch" and not statement.level:
            for alias in statement.names:
                name = alias.asname or alias.name
                if alias.name == "no_grad" and not _shadowed(source, node, name):
                    return f"with {name}():", []
    if _shadowed(source, node, "torch") or _bound_in_module(source, "torch"):
        raise Refused("the name torch means something else here")
    return "with torch.no_grad():", [add_import(source, "import torch")]


def add_import(source: Source, code: str) -> Edit:
    """An edit that adds an import behind the docstring and the `__future__` imports, before the first statement."""
    body = source.tree.body
    at = 0
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        at = 1 if isinstance(body[0].value.value, str) else 0
    while at < len(body) and isinstance(body[at], ast.ImportFrom) and body[at].module == "__future__":  # type: ignore[attr-defined]
        at += 1
    if at >= len(body):
        raise Refused("the file has nothing to run")
    start = start_of(source, body[at])
    if indent_of(source, body[at]) is None:
        return Edit(source.path, start, start, f"{code}; ")
    return Edit(source.path, start, start, f"{code}{newline(source, body[at].lineno)}")


def _reachable_imports(source: Source, node: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """Imports of the module and of the functions around a node."""
    around = {id(p) for p in source.ancestors(node) if isinstance(p, _FUNCTIONS)}
    found: list[ast.Import | ast.ImportFrom] = []
    for statement in source.nodes:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            scope = source.scope(statement)
            if isinstance(scope, ast.Module) or id(scope) in around:
                found.append(statement)
    return found


def _imported(source: Source, node: ast.AST, module: str) -> list[str]:
    names: list[str] = []
    for statement in _reachable_imports(source, node):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == module or (alias.name.startswith(f"{module}.") and not alias.asname):
                    names.append(alias.asname or module)
    return names


def _shadowed(source: Source, node: ast.AST, name: str) -> bool:
    """True where a function around `node`, or the module itself, binds `name` to something other than an import."""
    scopes: list[ast.AST] = [p for p in source.ancestors(node) if isinstance(p, _FUNCTIONS | ast.Module)]
    own = source.scope(node)
    if isinstance(own, ast.ClassDef):
        scopes.append(own)
    for scope in scopes:
        if isinstance(scope, _FUNCTIONS) and any(
            isinstance(a, ast.arg) and a.arg == name for a in ast.walk(scope.args)
        ):
            return True
        for inner in source.nodes if scope is source.tree else ast.walk(scope):
            bound = isinstance(inner, ast.Name) and inner.id == name and not isinstance(inner.ctx, ast.Load)
            made = isinstance(inner, ast.FunctionDef | ast.ClassDef) and inner.name == name
            if (bound or made) and inner is not scope and source.scope(inner) is scope:
                return True
    return False


def _bound_in_module(source: Source, name: str) -> bool:
    return any(
        (alias.asname or alias.name.split(".")[0]) == name
        for n in source.nodes
        if isinstance(n, ast.Import | ast.ImportFrom)
        for alias in n.names
    )
