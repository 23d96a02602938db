"""DIP102: `x += r` and its twelve sisters write into the tensor that `x` names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Edit, Rewrite, Site
from deinplace.rewrite.augment import assignment
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _locate, _names, _views
from deinplace.rules._callers import caller_clones
from deinplace.rules.base import Case, Incident, Project, Rule


class AugmentedAssignment(Rule):
    """An augmented assignment writes into a tensor that backward needs.

    ## What it does
    Finds `x += r`, `x *= r` and the other augmented assignments whose target is a tensor: a name, an attribute or
    an element.

    ## Why is this bad
    `x += r` calls `x.__iadd__(r)`, which overwrites the storage that `x` names. If an operation saved that tensor for
    backward (a ReLU keeps its output, a product its factors), `backward()` raises "one of the variables needed for
    gradient computation has been modified by an inplace operation".

    ## Example
    ```python
    x = torch.relu(self.conv(x))
    x += residual
    ```

    ## Use instead
    ```python
    x = torch.relu(self.conv(x))
    x = x + residual
    ```

    ## Fix safety
    `x = x + r` makes a new tensor: other names of the old one (an alias, a caller's variable, an element of a list)
    no longer see the change, and the result's dtype follows promotion rather than `x`. Where a run shows other names
    for the tensor they are rebound too (`x = y = x + r`); otherwise `x` is cloned and stays updated in place.

    Often done, and wrong: `x /= a + b` written as `x = x / a + b` (the right side keeps its parentheses here), and
    `w -= lr * w.grad` on a leaf written as `w = w - lr * w.grad`: the new `w` is no leaf, and its `.grad` stays empty.

    ## References
    - [Autograd mechanics: in-place operations](https://pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd)
    """

    code = "DIP102"
    name = "augmented-assignment"
    cases = (
        Case("number-literal-target", "def program():\n    n = 0\n    n += 1\n    return n\n"),
        Case("list-literal-value", "def program():\n    xs = []\n    xs += [1]\n    return xs\n"),
        Case("string-value", "def program(s):\n    s += 'a'\n    s += f'{s}'\n    return s\n"),
        Case("tuple-value", "def program(t):\n    t += 1, 2\n    return t\n"),
        Case("matmul-binds-anew", "def program(x, y):\n    x @= y\n    return x\n"),
        Case(
            "residual",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = torch.sigmoid(a)\n"
            "    x += a  # residual\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = torch.sigmoid(a)\n"
            "    x = x + a  # residual\n    return x.sum()\n",
        ),
        Case(
            "precedence",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x *= a + 1\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x = x * (a + 1)\n    return x.sum()\n",
        ),
        Case(
            "several-lines",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x -= torch.stack([\n        a[0],  # first\n        a[1], a[2],\n    ])\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x = x - torch.stack([\n        a[0],  # first\n        a[1], a[2],\n    ])\n    return x.sum()\n",
        ),
        Case(
            "one-line-suite",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    if x is not a: x /= 2; x **= 2\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    if x is not a: x = x / 2; x = x ** 2\n    return x.sum()\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Sites of this kind in a file."""
        for node in source.of(ast.AugAssign):
            if not _plainly_other(node, source):
                site = self._site(source, node)
                entry = load().augmented.get(site.method)
                # Tensor has no `__imatmul__`: `x @= y` binds a new tensor already.
                if entry is None or entry.method is not None:
                    yield site

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that a run's write points at."""
        found = _locate.writer(incident, project)
        if found is None:
            return None
        source, place = found
        node = _locate.statement_at(source, place.span)
        if not isinstance(node, ast.AugAssign):
            return None
        return self._site(source, node) if _writes_itself(source, node, incident) else None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        source = project.sources.get(site.path)
        node = _locate.node_of(site, source, ast.AugAssign) if source else None
        if source is None or not isinstance(node, ast.AugAssign):
            return
        if _views.first(incident):
            yield from _views.single_views(self.code, source, node, node.target)
        yield from self._stored_back(source, node)
        if not (isinstance(node.target, ast.Subscript) and _names.indexes_tensor(node.target)):
            yield from self._rebound(source, node, incident)
            yield from self._written_back(source, node)
        yield from _views.single_views(self.code, source, node, node.target)
        yield from _clone.clones_before(self.code, source, node, node.target)
        yield from _clone.alias_clones(self.code, source, node, node.target)
        yield from caller_clones(self.code, source, node, node.target, project, incident)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        return (
            f"Write `{site.target}` out of place, or clone it before the update; make sure that every other name "
            "of the tensor still gets the value it should."
        )

    def _site(self, source: Source, node: ast.AugAssign) -> Site:
        between = source.text[source.bounds(node.target)[1] : source.bounds(node.value)[0]]
        operator = between[: between.index("=") + 1].lstrip(") \t\f\\\r\n")
        return _locate.site(self.code, source, node, source.segment(node.target), operator)

    def _rebound(self, source: Source, node: ast.AugAssign, incident: Incident | None) -> Iterator[Rewrite]:
        target = source.segment(node.target)
        others = [n for n in _other_names(incident) if n != target] if isinstance(node.target, ast.Name) else []
        others = [n for n in others if n.isidentifier() and _names.assignable(source, node, n)]
        read = [n for n in others if _names.read_after(source, node, ast.Name(n, ast.Load()))]
        choices = [read, others, []] if read else [[], others]
        for names in choices:
            try:
                edits = assignment(source, node, names)
            except Refused:
                continue
            chain = " = ".join([target, *names])
            yield _clone.rewrite(self.code, source, f"make `{chain}` a new tensor", edits, node)

    def _written_back(self, source: Source, node: ast.AugAssign) -> Iterator[Rewrite]:
        """`x[0] **= y` becomes `x[0] = x[0].clone() ** y`: the result goes where its own input lies."""
        if not isinstance(node.target, ast.Subscript):
            return
        try:
            edits = assignment(source, node, cloned=True)
        except Refused:
            return
        target = source.segment(node.target)
        yield _clone.rewrite(self.code, source, f"compute `{target}` from a clone of it", edits, node)

    def _stored_back(self, source: Source, node: ast.AugAssign) -> Iterator[Rewrite]:
        """`for k, v in d.items(): v /= s` becomes `v = d[k] = v / s`."""
        name = node.target
        for loop in _names.loops_around(source, node):
            if not (isinstance(loop, ast.For) and isinstance(name, ast.Name)):
                continue
            slot, edits = _clone.stored_slot(source, loop, name.id)
            if not slot:
                continue
            try:
                own = assignment(source, node)
            except Refused:
                return
            _, end = source.bounds(node.target)
            yield _clone.rewrite(
                self.code,
                source,
                f"write the new tensor back to `{slot}`",
                [*edits, Edit(source.path, end, end, f" = {slot}"), *own],
                node,
            )
            return


def _other_names(incident: Incident | None) -> tuple[str, ...]:
    event = _locate.write_event(incident) if incident is not None else None
    return event.names if event is not None else ()


def _writes_itself(source: Source, node: ast.AugAssign, incident: Incident) -> bool:
    """False where the write that the event shows is a call's inside the statement rather than the statement's own."""
    stack = _locate.write_stack(incident)
    inner = _locate.covering(source, stack[0].span, (ast.Call, ast.AugAssign))
    event = _locate.write_event(incident)
    if isinstance(inner, ast.Call) and source.statement(inner) is node:
        attr = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
        flagged = any(k.arg in ("inplace", "out") for k in inner.keywords)
        return not (attr.endswith("_") or flagged or (event is not None and event.module is not None))
    return True


def _plainly_other(node: ast.AugAssign, source: Source) -> bool:
    """True where syntax alone says that no tensor is written: a literal right side, or a local counter."""
    value = node.value
    if isinstance(value, ast.Tuple | ast.List | ast.Dict | ast.Set | ast.JoinedStr | ast.ListComp):
        return True
    if isinstance(value, ast.Constant) and isinstance(value.value, str | bytes):
        return True
    if not isinstance(node.target, ast.Name):
        return False
    made = [
        n.value
        for n in _names.own_nodes(_names.function_of(source, node))
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.target.id for t in n.targets)
    ]
    literal = ast.Constant | ast.List | ast.JoinedStr | ast.Dict | ast.Set | ast.ListComp
    return bool(made) and all(isinstance(v, literal) for v in made)
