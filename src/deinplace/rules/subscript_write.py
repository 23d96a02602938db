"""DIP105: `x[i] = v`, `x[i] += v` and `x[..., 0].imag = v` write into the tensor `x`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from deinplace.analysis.source import Source
from deinplace.catalog import load
from deinplace.model import Rewrite, Site
from deinplace.rewrite.expression import path_of, same
from deinplace.rewrite.statement import trimmed
from deinplace.rules import _clone, _locate, _names
from deinplace.rules._callers import caller_clones
from deinplace.rules.base import Case, Incident, Project, Rule

_PUTS = ("aten::index_put_", "aten::_index_put_impl_")
_MASKS = (ast.Compare, ast.UnaryOp, ast.BinOp)


class SubscriptWrite(Rule):
    """A subscript assignment writes into a tensor that backward needs.

    ## What it does
    Finds assignments to an element, a slice or a mask of a tensor, and to its `real` or `imag` part.

    ## Why is this bad
    `x[i] = v` overwrites part of the storage of `x`. If any of it was saved for backward, `backward()` raises "one of
    the variables needed for gradient computation has been modified by an inplace operation"; PyTorch counts versions
    by storage, so it raises even where the saved elements are others than the written ones.

    ## Example
    ```python
    y = torch.sigmoid(x)
    y[:, 0] = 1 - y[:, 0]
    ```

    ## Use instead
    ```python
    y = torch.sigmoid(x)
    y = y.clone()
    y[:, 0] = 1 - y[:, 0]
    ```

    ## Fix safety
    The clone leaves the old tensor as it was: other names of it no longer see the write. One clone before a loop is
    tried before one clone in every round. A mask that compares the tensor with a scalar becomes `masked_fill`, an index
    that is a tensor `index_put`, which treats duplicate indices as the write did.

    Often said, and wrong: that a masked write may always become `torch.where`. `torch.where(x > 0, x.sqrt(), 0)` runs
    both branches, and the one that is not taken turns an infinite derivative times zero into a gradient of NaN.

    ## References
    - [torch.Tensor.masked_fill](https://pytorch.org/docs/stable/generated/torch.Tensor.masked_fill.html)
    """

    code = "DIP105"
    name = "subscript-write"
    cases = (
        Case("dict-string-key", "def program():\n    d = {}\n    d['a'] = 1\n    return d\n"),
        Case(
            "column",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, 2, requires_grad=True)\n    y = torch.sigmoid(a)\n"
            "    y[:, 0] = 1 - y[:, 0]\n    return y.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, 2, requires_grad=True)\n    y = torch.sigmoid(a)\n"
            "    y = y.clone()\n    y[:, 0] = 1 - y[:, 0]\n    return y.sum()\n",
        ),
        Case(
            "mask",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    y = a.pow(-0.5)\n"
            "    y[y == float('inf')] = 0\n    return y.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, requires_grad=True)\n    y = a.pow(-0.5)\n"
            "    y = y.masked_fill(y == float('inf'), 0)\n    return y.sum()\n",
        ),
        Case(
            "loop",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, 2, requires_grad=True)\n    y = torch.sigmoid(a)\n"
            "    for i in range(2):\n        y[:, i] = 0\n    return y.sum()\n",
            "import torch\n\n\ndef program():\n    a = torch.ones(3, 2, requires_grad=True)\n    y = torch.sigmoid(a)\n"
            "    y = y.clone()\n    for i in range(2):\n        y[:, i] = 0\n    return y.sum()\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Sites of this kind in a file."""
        for node in source.of(ast.Assign):
            target = _written(node)
            if isinstance(target, ast.Attribute) or (target is not None and _names.indexes_tensor(target)):
                yield _locate.site(self.code, source, node, source.segment(target), "[]=")

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that a run's write points at."""
        found = _locate.writer(incident, project)
        if found is None:
            return None
        source, place = found
        node = _locate.statement_at(source, place.span)
        if not isinstance(node, ast.Assign):
            return None
        target = _written(node)
        inner = _locate.covering(source, place.span, (ast.Call, ast.Subscript, ast.Attribute, ast.Assign))
        if target is None or (isinstance(inner, ast.Call) and _inside(source, inner, node.value)):
            return None
        return _locate.site(self.code, source, node, source.segment(target), "[]=")

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        source = project.sources.get(site.path)
        node = _locate.node_of(site, source, (ast.Assign, ast.AugAssign)) if source else None
        if source is None or not isinstance(node, ast.Assign | ast.AugAssign):
            return
        target = _written(node) if isinstance(node, ast.Assign) else node.target
        if target is None:
            return
        if isinstance(node, ast.Assign):
            yield from self._masked(source, node, target)
            yield from self._indexed(source, node, target, incident)
        yield from _clone.clones_before(self.code, source, node, target)
        yield from _clone.alias_clones(self.code, source, node, target)
        yield from caller_clones(self.code, source, node, target, project, incident)

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        return (
            f"Clone the tensor that `{site.target}` writes into before the write, or build it with cat, stack or where."
        )

    def _indexed(
        self, source: Source, node: ast.Assign, target: ast.expr, incident: Incident | None
    ) -> Iterator[Rewrite]:
        """`x[index] = v` as `x = x.index_put((index,), v)`, once a run has shown that the index is a tensor."""
        conflict = incident.conflict if incident is not None else None
        if conflict is None or not conflict.write.op.startswith(_PUTS) or _clone.in_loop(source, node):
            return
        if not (isinstance(target, ast.Subscript) and path_of(target.value) and path_of(target.slice)):
            return
        if _is_number(node.value) or not isinstance(target.value, ast.Name):
            return
        owner, index, value = (source.segment(n) for n in (target.value, target.slice, node.value))
        if "#" in value or isinstance(node.value, ast.Tuple | ast.GeneratorExp | ast.NamedExpr | ast.Yield | ast.Await):
            return
        start, end = source.bounds(node)
        edit = trimmed(source, start, end, f"{owner} = {owner}.index_put(({index},), {value})")
        yield _clone.rewrite(self.code, source, f"put the values into a new `{owner}`", [edit], node)

    def _masked(self, source: Source, node: ast.Assign, target: ast.expr) -> Iterator[Rewrite]:
        if not (isinstance(target, ast.Subscript) and path_of(target.value) and _is_scalar(node.value)):
            return
        if not (isinstance(target.slice, _MASKS) and masks(target.slice, target.value)):
            return
        owner, mask, value = (source.segment(n) for n in (target.value, target.slice, node.value))
        start, end = source.bounds(node)
        edit = trimmed(source, start, end, f"{owner} = {owner}.masked_fill({mask}, {value})")
        yield _clone.rewrite(self.code, source, f"fill the masked elements of a new `{owner}`", [edit], node)


def _written(node: ast.Assign) -> ast.Attribute | ast.Subscript | None:
    """The one tensor element, or complex part, that an assignment writes; None where there are several targets."""
    if len(node.targets) != 1:
        return None
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        return target
    if isinstance(target, ast.Attribute) and target.attr in ("real", "imag"):
        return target
    return None


def _inside(source: Source, node: ast.AST, outer: ast.AST) -> bool:
    (start, end), (low, high) = source.bounds(node), source.bounds(outer)
    return low <= start and end <= high


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and isinstance(value.func, ast.Name))


def _is_scalar(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "float"
    return path_of(value) or (isinstance(value, ast.Constant) and isinstance(value.value, int | float))


def masks(mask: ast.expr, owner: ast.expr) -> bool:
    """True where `mask` has the shape of `owner` for sure: comparisons of its elements, joined with `&`, `|`, `~`."""
    if isinstance(mask, ast.UnaryOp):
        return isinstance(mask.op, ast.Invert) and masks(mask.operand, owner)
    if isinstance(mask, ast.BinOp):
        both = masks(mask.left, owner) and masks(mask.right, owner)
        return isinstance(mask.op, ast.BitAnd | ast.BitOr | ast.BitXor) and both
    if not (isinstance(mask, ast.Compare) and len(mask.ops) == 1):
        return False
    return any(_elementwise(side, owner) for side in (mask.left, *mask.comparators))


def _elementwise(node: ast.expr, owner: ast.expr) -> bool:
    if same(node, owner):
        return True
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args):
        return False
    method = load().method(f"{node.func.attr}_")
    return method is not None and bool(method.twin_exact) and same(node.func.value, owner)
