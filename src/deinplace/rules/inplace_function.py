"""DIP104: `torch.relu_(x)`, `F.leaky_relu_(x)` and the other functions whose name ends in one underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Edit, Rewrite, Site
from deinplace.rewrite.expression import attribute_name
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _locate, _names
from deinplace.rules._callers import caller_clones
from deinplace.rules._calls import InplaceCall, forms, others_of
from deinplace.rules.base import Case, Incident, Project, Rule


class InplaceFunction(Rule):
    """A function that ends in an underscore writes into a tensor that backward needs.

    ## What it does
    Finds calls of torch's in-place functions, such as `torch.relu_(x)` and `F.leaky_relu_(x)`, under whatever name
    they were imported.

    ## Why is this bad
    The function overwrites the storage of its first argument. If an operation saved it for backward, `backward()`
    raises "one of the variables needed for gradient computation has been modified by an inplace operation".

    ## Example
    ```python
    y = torch.sigmoid(x)
    F.relu_(y)
    ```

    ## Use instead
    ```python
    y = torch.sigmoid(x)
    y = F.relu(y)
    ```

    ## Fix safety
    A discarded result is bound to the name that was written. Other names of the tensor no longer see the change.
    `nn.init` functions are never touched.

    ## References
    - [torch.nn.functional](https://pytorch.org/docs/stable/nn.functional.html)
    """

    code = "DIP104"
    name = "inplace-function"
    cases = (
        Case(
            "initialisation", "from torch import nn\n\n\ndef program(m):\n    nn.init.zeros_(m.weight)\n    return m\n"
        ),
        Case("function-of-ones-own", "def relu_(x):\n    return x\n\n\ndef program(x):\n    relu_(x)\n    return x\n"),
        Case(
            "statement",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = torch.sigmoid(a)\n"
            "    torch.relu_(x)\n    return x.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    x = torch.sigmoid(a)\n"
            "    x = torch.relu(x)\n    return x.sum()\n",
        ),
        Case(
            "imported-under-another-name",
            "import torch\nimport torch.nn.functional as F\n\n\ndef program():\n"
            "    a = torch.ones(3, requires_grad=True)\n    x = torch.sigmoid(a)\n"
            "    return F.leaky_relu_(x, 0.2).sum()\n",
            "import torch\nimport torch.nn.functional as F\n\n\ndef program():\n"
            "    a = torch.ones(3, requires_grad=True)\n    x = torch.sigmoid(a)\n"
            "    return F.leaky_relu(x, 0.2).sum()\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Sites of this kind in a file."""
        known = _names.imports(source)
        for node in source.of(ast.Call):
            if _written(node, known) is not None:
                yield self._site(source, node, known)

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that a run's write points at."""
        found = _locate.writer(incident, project)
        if found is None:
            return None
        source, place = found
        known = _names.imports(source)
        node = _locate.covering(source, place.span, ast.Call)
        if not isinstance(node, ast.Call) or _written(node, known) is None:
            return None
        return self._site(source, node, known)

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        source = project.sources.get(site.path)
        node = _locate.node_of(site, source, ast.Call) if source else None
        if source is None or not isinstance(node, ast.Call):
            return
        receiver = _written(node, _names.imports(source))
        if receiver is None:
            return
        rename = _rename(source, node)
        if rename is not None:
            found = InplaceCall(node, receiver, (rename,), (node,))
            yield from forms(self.code, source, found, others_of(source, found, incident))
        statement = source.statement(node)
        yield from _clone.clones_before(self.code, source, statement, receiver)
        yield from _clone.alias_clones(self.code, source, statement, receiver)
        yield from caller_clones(self.code, source, node, receiver, project, incident)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        return f"Use `{site.method.removesuffix('_')}` and bind its result wherever `{site.target}` is read later."

    def _site(self, source: Source, node: ast.Call, known: dict[str, str]) -> Site:
        receiver = _written(node, known)
        assert receiver is not None
        name = (_names.dotted(node.func, known) or "").rpartition(".")[2]
        return _locate.site(self.code, source, node, source.segment(receiver), name)


def _written(node: ast.Call, known: dict[str, str]) -> ast.expr | None:
    """The argument that an in-place torch function writes; None for any other call."""
    name = _names.dotted(node.func, known)
    if name is None or not name.startswith("torch.") or not name.endswith("_") or name.endswith("__"):
        return None
    function = load().function(name)
    if name.startswith("torch.nn.init.") or function is None or not function.in_place:
        return None
    if node.args and not isinstance(node.args[0], ast.Starred):
        return node.args[0]
    return next((k.value for k in node.keywords if k.arg in ("input", "self")), None)


def _rename(source: Source, node: ast.Call) -> Edit | None:
    """The edit that names the functional twin; None where there is none that the same prefix reaches."""
    name = _names.dotted(node.func, _names.imports(source)) or ""
    entry = load().function(name)
    if entry is None or not entry.twin_exact or entry.twin is None or not isinstance(node.func, ast.Attribute):
        return None
    if entry.twin.rpartition(".")[0] != name.rpartition(".")[0]:
        return None
    try:
        return attribute_name(source, node.func, entry.twin.rpartition(".")[2])
    except Refused:
        return None
