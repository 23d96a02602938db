"""Where an `inplace` flag comes from when the call that builds the layer does not spell it: dicts, defaults, names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from deinplace.analysis.source import Function, Source
from deinplace.model import ModuleInfo, Place
from deinplace.rewrite.expression import replace
from deinplace.rules import _flags, _locate, _names
from deinplace.rules._flags import FLAG, Flag, default_of, is_true
from deinplace.rules.base import Incident, Project

LIMIT = 6
"""Literals offered that no call leads to."""
_DEPTH = 6
_LINE = re.compile(rf"""["']?\b{FLAG}\b["']?\s*[:=]\s*(?:true|yes|on)\b""", re.IGNORECASE)
Found = tuple[Source, Flag]


def literals(module: ModuleInfo, project: Project) -> Iterator[Found]:
    """Literals that set the flag far from the call that builds the layer: what the calls lead to, then any others."""
    places = tuple(dict.fromkeys([*module.flagged, *module.constructed]))
    found = list(along(places, project))
    yield from found
    known = {id(flag.node) for _, flag in found}
    yield from (pair for pair in elsewhere(places, project) if id(pair[1].node) not in known)


def inside_one_call(incident: Incident, project: Project) -> bool:
    """The user's call that writes is the one that saved: a clone of its input is no help for what it made itself."""
    conflict = incident.conflict
    if conflict is None:
        return False
    save, write = (_locate.first_editable(e.stack, project) for e in (conflict.save, conflict.write))
    if save is None or write is None or save[1] != write[1]:
        return False
    return conflict.node.lower().split("backward")[0] not in conflict.write.op.replace("_", "")


def along(places: tuple[Place, ...], project: Project) -> Iterator[Found]:
    """Literals that the arguments of the calls on a stack lead to, innermost call first."""
    seen: set[int] = set()
    for place in places:
        if not project.editable(place.path):
            continue
        source = project.sources[place.path]
        for part in _given(source, place):
            for where, node in _reached(source, part, project, _DEPTH, set()):
                if id(node) not in seen:
                    seen.add(id(node))
                    yield where, _flag(where, node)


def _given(source: Source, place: Place) -> list[ast.expr]:
    """What the call at a place is given, or the value that is set there."""
    statement = _locate.statement_at(source, place.span)
    if isinstance(statement, ast.Assign) and any(_called_so(t) for t in statement.targets):
        return [statement.value]
    call = _locate.covering(source, place.span, ast.Call)
    if not isinstance(call, ast.Call):
        return []
    return [*call.args, *(k.value for k in call.keywords), call.func]


def elsewhere(places: tuple[Place, ...], project: Project) -> list[Found]:
    """Every literal of the project that sets something called `inplace`, those in the files of the stack first."""
    files = [p.path for p in places if project.editable(p.path)]
    order = sorted(project.sources.values(), key=lambda s: files.index(s.path) if s.path in files else len(files))
    found = [(source, _flag(source, node)) for source in order for node in source.nodes if _sets(source, node)]
    return found if len(found) <= LIMIT else []


def lines_in_texts(project: Project) -> list[str]:
    """`config.yaml:3` for each line of a settings file that switches such a flag on."""
    found = []
    for path, text in project.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if _LINE.search(line):
                found.append(f"{path.rsplit('/', 1)[-1]}:{number}")
    return found


def _flag(source: Source, node: ast.AST) -> Flag:
    return Flag(node, replace(source, node, "False"), f"on line {getattr(node, 'lineno', 1)}")


def _reached(
    source: Source, node: ast.expr, project: Project, depth: int, visited: set[int]
) -> Iterator[tuple[Source, ast.AST]]:
    """Literal flags inside an expression, and inside what its names stand for."""
    if depth == 0 or id(node) in visited:
        return
    visited.add(id(node))
    for part in ast.walk(node):
        if _sets(source, part):
            yield source, part
        elif isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load):
            for where, value in _bound(source, part, project):
                yield from _reached(where, value, project, depth - 1, visited)


def _bound(source: Source, name: ast.Name | ast.Attribute, project: Project) -> Iterator[tuple[Source, ast.expr]]:
    """What a name or an attribute may have been given: a default, an assignment, a constant of another module."""
    if isinstance(name, ast.Attribute):
        for where in project.sources.values() if _imported(source, name) else (source,):
            for node in where.nodes:
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        last = getattr(target, "attr", getattr(target, "id", ""))
                        if last == name.attr:
                            yield where, node.value
        return
    scope: ast.AST = _names.function_of(source, name)
    while True:
        default = default_of(scope, name.id) if isinstance(scope, Function) else None
        if default is not None:
            yield source, default
        for node in _names.own_nodes(scope):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.For) and _binds(node, name.id):
                value = node.iter if isinstance(node, ast.For) else node.value
                if value is not None:
                    yield source, value
        if isinstance(scope, ast.Module):
            break
        scope = _names.function_of(source, scope)
    origin = _names.imports(source).get(name.id, "")
    for other in project.sources.values() if "." in origin or _relative(source, name.id) else ():
        if other is source:
            continue
        for statement in other.tree.body:
            if isinstance(statement, ast.Assign) and _binds(statement, origin.rpartition(".")[2] or name.id):
                yield other, statement.value


def _imported(source: Source, path: ast.Attribute) -> bool:
    root = _names.root_of(path)
    return isinstance(root, ast.Name) and (root.id in _names.imports(source) or _relative(source, root.id))


def _relative(source: Source, name: str) -> bool:
    return any(
        (alias.asname or alias.name) == name
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    )


def _binds(node: ast.Assign | ast.AnnAssign | ast.For, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(n, ast.Name) and n.id == name for target in targets for n in ast.walk(target))


def _sets(source: Source, node: ast.AST) -> bool:
    """True for a literal `True` that is the value of something called `inplace`, other than a layer's own argument."""
    if not is_true(node):
        return False
    parent = source.parents.get(node)
    if isinstance(parent, ast.keyword):
        call = source.parents.get(parent)
        if isinstance(call, ast.Call) and _names_flag(call):
            return parent.arg == "default"
        return parent.arg == FLAG and isinstance(call, ast.Call) and _flags.position(source, call) is None
    if isinstance(parent, ast.Dict):
        return any(v is node and isinstance(k, ast.Constant) and k.value == FLAG for k, v in _items(parent))
    if isinstance(parent, ast.Assign | ast.AnnAssign):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return any(_called_so(t) for t in targets)
    if isinstance(parent, ast.arguments):
        holder = source.parents.get(parent)
        if isinstance(holder, Function):
            named = [*parent.posonlyargs, *parent.args, *parent.kwonlyargs]
            return any(FLAG in a.arg.lower() and default_of(holder, a.arg) is node for a in named)
    if isinstance(parent, ast.Call) and len(parent.args) == 3 and parent.args[2] is node:
        second = parent.args[1]
        return isinstance(second, ast.Constant) and second.value == FLAG
    return False


def _items(node: ast.Dict) -> list[tuple[ast.expr | None, ast.expr]]:
    return list(zip(node.keys, node.values, strict=True))


def _names_flag(call: ast.Call) -> bool:
    """`parser.add_argument("--inplace", ...)`"""
    first = call.args[0] if call.args else None
    named = isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith("-")
    return named and FLAG in str(getattr(first, "value", "")).lower().replace("-", "").replace("_", "")


def _called_so(target: ast.expr) -> bool:
    if isinstance(target, ast.Subscript):
        return isinstance(target.slice, ast.Constant) and target.slice.value == FLAG
    name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
    return FLAG in name.lower().replace("_", "")
