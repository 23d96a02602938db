"""DIP103: `x.add_(r)` and every other method whose name ends in one underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Rewrite, Site
from deinplace.rules import _clone, _locate
from deinplace.rules._callers import caller_clones
from deinplace.rules._calls import forms, others_of
from deinplace.rules._twins import is_write, method_of, variants
from deinplace.rules._views import first, single_views
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

    Often said, and wrong: that `.data` mends the error. `x.data.mul_(2)` only hides the write from the version counter:
    backward runs, and multiplies by the new values. A conflict of this kind is reported as hidden.

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
        for node in source.of(ast.Call):
            if is_write(source, node):
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
        while not (is_write(source, node) and (not named or method_of(node) == named)):
            inner = _locate_receiver(node)
            if inner is None:
                node = _locate.covering(source, place.span, ast.Call)
                break
            node = inner
        return self._site(source, node) if isinstance(node, ast.Call) and is_write(source, node) else None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        source = project.sources.get(site.path)
        node = _call_of(site, source) if source else None
        if source is None or node is None or not isinstance(node.func, ast.Attribute):
            return
        statement = source.statement(node)
        if first(incident):
            yield from single_views(self.code, source, statement, node.func.value)
        for found in variants(source, node):
            others = others_of(source, found, incident)
            yield from forms(self.code, source, found, others)
        receiver = node.func.value
        yield from single_views(self.code, source, statement, receiver)
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
        return _locate.site(self.code, source, node, source.segment(receiver), method_of(node))


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
    calls = [n for n in source.by_span.get(site.span, []) if isinstance(n, ast.Call)]
    return next((n for n in calls if method_of(n) == site.method), None)
