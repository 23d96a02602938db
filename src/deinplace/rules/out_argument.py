"""DIP106: `torch.add(a, b, out=c)` writes its result into `c`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from deinplace.analysis.source import Source
from deinplace.model import Edit, Rewrite, Site
from deinplace.rewrite.expression import drop_keyword, flat, path_of
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _locate, _names
from deinplace.rules._callers import caller_clones
from deinplace.rules.base import Case, Incident, Project, Rule


class OutArgument(Rule):
    """An `out=` argument makes an operation write into a tensor that backward needs.

    ## What it does
    Finds torch calls with an `out=` argument.

    ## Why is this bad
    The result overwrites the storage of the tensor given. Autograd refuses it where gradients are needed ("functions
    with out=... arguments don't support automatic differentiation"), and where an earlier operation saved the tensor,
    `backward()` raises "... has been modified by an inplace operation".

    ## Example
    ```python
    torch.add(a, b, out=total)
    ```

    ## Use instead
    ```python
    total = torch.add(a, b)
    ```

    ## Fix safety
    Other names of the tensor given no longer see the result, and the result's dtype and layout are the operation's own.

    ## References
    - [torch.add](https://pytorch.org/docs/stable/generated/torch.add.html)
    """

    code = "DIP106"
    name = "out-argument"
    cases = (
        Case("not-torch", "import json\n\n\ndef program(f):\n    json.dump({}, out=f)\n    return f\n"),
        Case("none", "import torch\n\n\ndef program(a):\n    return torch.add(a, a, out=None)\n"),
        Case(
            "statement",
            "import torch\n\n\ndef program():\n    a = torch.ones(3)\n    c = torch.zeros(3)\n"
            "    torch.add(a, 1, out=c)\n    return c\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3)\n    c = torch.zeros(3)\n"
            "    c = torch.add(a, 1)\n    return c\n",
        ),
        Case(
            "first-argument",
            "import torch\n\n\ndef program():\n    a = torch.ones(3)\n    c = torch.zeros(3)\n"
            "    torch.mul(out=c, input=a, other=2)\n    return c\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3)\n    c = torch.zeros(3)\n"
            "    c = torch.mul(input=a, other=2)\n    return c\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Sites of this kind in a file."""
        known = _names.imports(source)
        for node in source.of(ast.Call):
            if _out(node) is None:
                continue
            if (_names.dotted(node.func, known) or "").startswith("torch."):
                yield self._site(source, node)

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that a run's write points at."""
        found = _locate.writer(incident, project)
        if found is None:
            return None
        source, place = found
        node = _locate.covering(source, place.span, ast.Call)
        return self._site(source, node) if isinstance(node, ast.Call) and _out(node) is not None else None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        source = project.sources.get(site.path)
        node = _locate.node_of(site, source, ast.Call) if source else None
        target = _out(node) if isinstance(node, ast.Call) else None
        if source is None or target is None or not isinstance(node, ast.Call):
            return
        statement = source.statement(node)
        name = flat(source, target)
        if path_of(target) and isinstance(statement, ast.Expr | ast.Assign) and statement.value is node:
            start = source.bounds(node)[0]
            same_target = isinstance(statement, ast.Assign) and name in [source.segment(t) for t in statement.targets]
            try:
                edits = [drop_keyword(source, node, "out")]
            except Refused:
                edits = []
            if edits:
                prefix = [] if same_target else [Edit(source.path, start, start, f"{name} = ")]
                yield _clone.rewrite(self.code, source, f"make `{name}` a new tensor", [*prefix, *edits], statement)
        yield from _clone.clones_before(self.code, source, statement, target)
        yield from _clone.alias_clones(self.code, source, statement, target)
        yield from caller_clones(self.code, source, node, target, project, incident)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        return f"Call the operation without `out=` and bind its result to `{site.target}`."

    def _site(self, source: Source, node: ast.Call) -> Site:
        target = _out(node)
        assert target is not None
        return _locate.site(self.code, source, node, source.segment(target), "out")


def _out(node: ast.Call) -> ast.expr | None:
    """The value of a call's `out=` argument, where it is one tensor."""
    value = next((k.value for k in node.keywords if k.arg == "out"), None)
    if value is None or isinstance(value, ast.Tuple | ast.List):
        return None
    return None if isinstance(value, ast.Constant) else value
