"""DIP107: the fallback of all: give the operation that saves the tensor a copy of its own, and let the write be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from deinplace.analysis.source import Source
from deinplace.model import Event, Place, Rewrite, Site, Span
from deinplace.rewrite.expression import clone, pure
from deinplace.rules import _clone, _locate
from deinplace.rules._written_back import statement_write, written_back
from deinplace.rules.base import Incident, Project, Rule


class CloneWhereSaved(Rule):
    """A tensor that backward needs is overwritten somewhere else: the saving operation gets its own copy.

    ## What it does
    For a conflict that a run has shown, clones the tensor at the operation that saved it: `y = torch.sigmoid(x)`
    becomes `y = torch.sigmoid(x).clone()`, `a @ self.w` becomes `a @ self.w.clone()`.

    ## Why is this bad
    The operation keeps a reference to the tensor, not a copy. Whoever overwrites the tensor before `backward()` takes
    away the value that its gradient is made of.

    ## Example
    ```python
    sigma = torch.dot(self.u, self.weight @ v)
    ```

    ## Use instead
    ```python
    sigma = torch.dot(self.u.clone(), self.weight @ v)
    ```

    ## Fix safety
    Values and aliases stay as they are: every name of the written tensor still sees the write. It costs one copy.

    Often said, and wrong: that in-place writes after `clone()` give silently wrong gradients. The clone has storage and
    a version counter of its own, and its gradient flows back unchanged. Silent are only writes that autograd does not
    see: through `.data`, NumPy memory, DLPack or foreign code (`--paranoid` finds those).

    Custom Functions: keep tensors with `ctx.save_for_backward`, not as attributes of `ctx`: an attribute has no version
    check, so a later write gives silently wrong gradients. A forward that writes its input calls `ctx.mark_dirty` and
    returns it; without that the input keeps its old graph, and its gradient ignores the write.

    ## References
    - [Autograd mechanics: saved tensors](https://pytorch.org/docs/stable/notes/autograd.html#saved-tensors)
    """

    code = "DIP107"
    name = "clone-where-saved"
    fallback = True

    def find(self, source: Source) -> Iterable[Site]:
        """Nothing: only a run shows what was saved."""
        return ()

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that a run's write points at."""
        if incident.conflict is None:
            return None
        found = _locate.first_editable(incident.conflict.save.stack, project)
        if found is None:
            return None
        source, place = found
        node = _locate.covering(source, place.span, ast.expr) or _locate.statement_at(source, place.span)
        if node is None:
            return None
        return _locate.site(self.code, source, node, source.segment(node), incident.conflict.save.op)

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        if incident is None or incident.conflict is None:
            return
        save = incident.conflict.save
        for depth, place in enumerate(save.stack):
            if not project.editable(place.path):
                continue
            source = project.sources[place.path]
            if depth == 0 and save.role != "output":
                yield from self._inputs(source, place, save)
            elif depth == 0:
                yield from self._output(source, place, save)
            if depth == 0 and not save.expressions and save.role != "output":
                yield from self._arguments(source, place)
            elif depth > 0 and not project.editable(save.stack[0].path):
                yield from self._arguments(source, place)
                return

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        return f"Give the operation on line {site.span.line} a clone of the tensor that is overwritten later."

    def _output(self, source: Source, place: Place, save: Event) -> Iterator[Rewrite]:
        node = _locate.covering(source, place.span, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Attribute))
        if not isinstance(node, ast.expr) or isinstance(getattr(node, "ctx", None), ast.Store):
            return
        if _chained_write(source, node):
            return
        if (written := statement_write(source, node)) is not None:  # nobody would get the clone
            yield from written_back(self.code, source, written)
            return
        title = f"clone the result of `{_short(source, node)}`, which keeps it for backward"
        yield _clone.rewrite(self.code, source, title, clone(source, node), node)

    def _inputs(self, source: Source, place: Place, save: Event) -> Iterator[Rewrite]:
        nodes = _outermost([n for span in save.expressions if (n := _expression(source, span)) is not None])
        if not nodes:
            return
        for written in filter(None, [statement_write(source, node) for node in nodes]):
            yield from written_back(self.code, source, written)
            nodes = [node for node in nodes if statement_write(source, node) is None]
        if len(nodes) > 1:
            edits = [edit for node in nodes for edit in clone(source, node)]
            yield _clone.rewrite(self.code, source, _title(source, nodes), edits, nodes[0])
        for node in nodes:
            yield _clone.rewrite(self.code, source, _title(source, [node]), clone(source, node), node)

    def _arguments(self, source: Source, place: Place) -> Iterator[Rewrite]:
        """Without word from the probe: the operation's plain arguments and operands, one by one."""
        node = _locate.covering(source, place.span, (ast.Call, ast.BinOp, ast.AugAssign))
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            parts = [*node.args, *(k.value for k in node.keywords)]
            if isinstance(node.func, ast.Attribute) and not node.func.attr.endswith("_"):
                parts.insert(0, node.func.value)
        elif isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.AugAssign):
            parts = [node.value]
        for part in parts:
            if not isinstance(part, ast.Name | ast.Attribute | ast.Subscript) or _receiver_only(source, part):
                continue
            if pure(part):
                title = _title(source, [part])
                yield _clone.rewrite(self.code, source, title, clone(source, part), part)


def _receiver_only(source: Source, node: ast.expr) -> bool:
    """True for a method's own object, whatever its name: it is no tensor."""
    if not isinstance(node, ast.Name):
        return False
    for scope in source.ancestors(node):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = isinstance(source.parents.get(scope), ast.ClassDef)
            first = next(iter((*scope.args.posonlyargs, *scope.args.args)), None)
            if inside and first is not None and first.arg == node.id:
                return True
    return False


def _chained_write(source: Source, node: ast.expr) -> bool:
    """True where the result's identity matters at once: it is deleted or written on the spot."""
    parent = source.parents.get(node)
    return isinstance(parent, ast.Delete)


def _expression(source: Source, span: Span) -> ast.expr | None:
    exact = [n for n in source.by_span.get(span, []) if isinstance(n, ast.expr)]
    node = exact[-1] if exact else _locate.covering(source, span, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    if not isinstance(node, ast.expr) or isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return None
    return node


def _outermost(nodes: list[ast.expr]) -> list[ast.expr]:
    """Distinct nodes without those that stand inside another one."""
    kept: list[ast.expr] = []
    for node in nodes:
        inside = any(node is not other and any(n is node for n in ast.walk(other)) for other in nodes)
        if not inside and not any(node is other for other in kept):
            kept.append(node)
    return kept


def _short(source: Source, node: ast.expr) -> str:
    text = " ".join(source.segment(node).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def _title(source: Source, nodes: list[ast.expr]) -> str:
    names = ", ".join(f"`{_short(source, n)}`" for n in nodes)
    return f"give the operation a clone of {names}"
