"""DIP103: `x.add_(r)` and every other method whose name ends in one underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Edit, Rewrite, Site
from deinplace.rewrite.block import torch_name
from deinplace.rewrite.expression import attribute_name, outer_bounds
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _locate, _names
from deinplace.rules._callers import caller_clones
from deinplace.rules._calls import InplaceCall, forms, others_of
from deinplace.rules._views import selected_rows
from deinplace.rules.base import Case, Incident, Project, Rule


class InplaceMethod(Rule):
    """A method that ends in an underscore writes into a tensor that backward needs.

    ## What it does
    Finds calls such as `x.add_(r)`, `x.clamp_(0)` and chains of them, as statements and inside expressions.

    ## Why is this bad
    The method overwrites the storage of `x`. If an operation saved it for backward, `backward()` raises "one of the
    variables needed for gradient computation has been modified by an inplace operation".

    ## Example
    ```python
    scores.sub_(shift).div_(scale)
    ```

    ## Use instead
    ```python
    scores = scores.sub(shift).div(scale)
    ```

    ## Fix safety
    Only methods with an exact functional twin lose their underscore; others (`copy_`, `fill_`, random fills, methods
    whose twin has another dtype or other defaults) stay, and their tensor is cloned before. Other names of the tensor
    no longer see the change. `requires_grad_` is never touched.

    ## References
    - [Tensor methods](https://pytorch.org/docs/stable/tensors.html)
    """

    code = "DIP103"
    name = "inplace-method"
    cases = (
        Case("functional", "def program(x):\n    return x.add(1)\n"),
        Case("not-a-tensor-method", "def program(self):\n    self.update_()\n    return self.__len__()\n"),
        Case("requires-grad", "def program(x):\n    return x.requires_grad_()\n"),
        Case(
            "statement",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x.add_(a, alpha=2)  # twice\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x = x.add(a, alpha=2)  # twice\n    return x.sum()\n",
        ),
        Case(
            "chain",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x.sub_(a).div_(2)\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x = x.sub(a).div(2)\n    return x.sum()\n",
        ),
        Case(
            "chain-reads-receiver",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x.mul_(a).add_(x.flip(0))\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    x = x.mul(a)\n    x = x.add(x.flip(0))\n    return x.sum()\n",
        ),
        Case(
            "result-bound-and-receiver-read",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    y = x.mul_(2)\n    return (x + y).sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    y = x = x.mul(2)\n    return (x + y).sum()\n",
        ),
        Case(
            "returned",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    return x.mul_(torch.tanh(x)).sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    return x.mul(torch.tanh(x)).sum()\n",
        ),
        Case(
            "argument-and-read-later",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    y = torch.sin(x.mul_(2))\n    return (x + y).sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = a.exp()\n"
            "    y = torch.sin((x := x.mul(2)))\n    return (x + y).sum()\n",
        ),
        Case(
            "view-of-a-name",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, 2, requires_grad=True)\n    x = a.exp()\n"
            "    x[:, 0].mul_(2)\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, 2, requires_grad=True)\n    x = a.exp()\n"
            "    x = x.clone()\n    x[:, 0].mul_(2)\n    return x.sum()\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Sites of this kind in a file."""
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and _is_write(source, node):
                yield self._site(source, node)

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that a run's write points at."""
        found = _locate.writer(incident, project)
        if found is None:
            return None
        source, place = found
        node = _locate.covering(source, place.span, ast.Call)
        if not isinstance(node, ast.Call):
            return None
        named = _overload(incident)
        while not (_is_write(source, node) and (not named or _method(node) == named)):
            inner = _locate_receiver(node)
            if inner is None:
                node = _locate.covering(source, place.span, ast.Call)
                break
            node = inner
        return self._site(source, node) if isinstance(node, ast.Call) and _is_write(source, node) else None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        source = project.sources.get(site.path)
        node = _call_of(site, source) if source else None
        if source is None or node is None or not isinstance(node.func, ast.Attribute):
            return
        statement = source.statement(node)
        for found in _variants(source, node):
            others = others_of(source, found, incident)
            yield from forms(self.code, source, found, others)
        receiver = node.func.value
        yield from selected_rows(self.code, source, statement, receiver)
        yield from _clone.clones_before(self.code, source, statement, receiver)
        yield from _clone.alias_clones(self.code, source, statement, receiver)
        yield from caller_clones(self.code, source, node, receiver, project, incident)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        twin = load().method(site.method)
        if twin is not None and twin.twin_exact:
            return f"Use `{site.method.removesuffix('_')}` and bind its result wherever `{site.target}` is read later."
        return f"`{site.method}` has no exact twin: clone `{site.target}` before it, or build the tensor anew."

    def _site(self, source: Source, node: ast.Call) -> Site:
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        return _locate.site(self.code, source, node, source.segment(receiver), _method(node))


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is_write(source: Source, node: ast.Call) -> bool:
    """True for a call of an in-place Tensor method on something that is no imported module."""
    name = _method(node)
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


def _overload(incident: Incident) -> str:
    """`add_` of `aten::add_.Tensor`, where that is a method's name."""
    event = _locate.write_event(incident)
    name = event.op.rpartition("::")[2].partition(".")[0] if event is not None else ""
    return name if load().method(name) is not None else ""


def _locate_receiver(node: ast.Call) -> ast.Call | None:
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    while isinstance(inner, ast.Attribute | ast.Subscript):
        inner = inner.value
    return inner if isinstance(inner, ast.Call) else None


def _call_of(site: Site, source: Source) -> ast.Call | None:
    calls = [n for n in _locate.nodes_at(source, site.span) if isinstance(n, ast.Call)]
    return next((n for n in calls if _method(n) == site.method), None)


def _twin(node: ast.Call) -> str | None:
    """Name of the functional twin. For what only changes a tensor's shape or history the plain view will do."""
    name = _method(node)
    known, plain = load().method(name), load().method(name.removesuffix("_"))
    if known is None:
        return None
    if known.effect in ("metadata", "autograd") and plain is not None and plain.returns == "view":
        return plain.name
    return known.twin if known.twin_exact else None


def _renames(source: Source, node: ast.Call, alone: bool) -> tuple[Edit, ...]:
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


def _variants(source: Source, node: ast.Call) -> list[InplaceCall]:
    """The call by itself, and the chain of in-place calls around it as a whole."""
    links = [node]
    while (inner := _receiver_call(links[0])) is not None and _is_write(source, inner):
        links.insert(0, inner)
    while (outer := _outer_call(source, links[-1])) is not None and _is_write(source, outer):
        links.append(outer)
    root = links[0].func
    if not isinstance(root, ast.Attribute) or not isinstance(node.func, ast.Attribute):
        return []
    statement = source.statement(node)
    alone = not (isinstance(statement, ast.Expr) and statement.value is links[-1])
    found: list[InplaceCall] = []
    try:
        if all(_twin(link) for link in links):
            renames = tuple(edit for link in links for edit in _renames(source, link, len(links) == 1))
            found.append(InplaceCall(links[-1], root.value, renames, tuple(links)))
        if len(links) > 1 and alone and node is links[0] and _twin(node):
            found.insert(0, InplaceCall(node, node.func.value, _renames(source, node, False), (node,)))
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
