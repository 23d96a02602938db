"""DIP101: `inplace=True` on a module or a function."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator

from deinplace.analysis.source import Source
from deinplace.model import Edit, ModuleInfo, Place, Rewrite, Site
from deinplace.rewrite.expression import clone, path_of, replace
from deinplace.rewrite.insert import insert_after
from deinplace.rewrite.statement import Refused
from deinplace.rules import _clone, _flag_flow, _flags, _locate
from deinplace.rules.base import Case, Incident, Project, Rule

_HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


class InplaceFlag(Rule):
    """An `inplace=True` flag makes a module or function overwrite an input that backward needs.

    ## What it does
    Finds activations and dropouts that are told to work in place: `nn.ReLU(inplace=True)`, `nn.Dropout(0.5, True)`,
    `F.relu(x, inplace=True)`, `m.inplace = True`, and flags that come from a default or a dict.

    ## Why is this bad
    The operation overwrites its input. If what made the input saved it for backward, `backward()` raises "one of the
    variables needed for gradient computation has been modified by an inplace operation". Full backward hooks and
    views of several outputs refuse in-place modules at once.

    ## Example
    ```python
    nn.Sequential(nn.LeakyReLU(), nn.Dropout(0.5, inplace=True))
    ```

    ## Use instead
    ```python
    nn.Sequential(nn.LeakyReLU(), nn.Dropout(0.5, inplace=False))
    ```

    ## Fix safety
    Later readers of the input see its old values. Bare calls (`self.act(x)` as a statement) that lived on the effect
    are bound to their argument in the same rewrite. Where the flag cannot be edited the input is cloned at the call.
    `inplace=` of functions that are not torch's (pandas, quantization) is never touched.

    Often said, and wrong: that an in-place ReLU behind BatchNorm corrupts `running_mean` in eval mode (the running
    statistics are other tensors); that `F.sigmoid(x, inplace=True)` is accepted and ignored (it raises TypeError);
    that there is an in-place GELU (neither `nn.GELU` nor `F.gelu` takes the flag); that every flag has to go (behind
    Linear, Conv and BatchNorm an in-place ReLU overwrites nothing that backward needs).

    ## References
    - [torch.nn.ReLU](https://pytorch.org/docs/stable/generated/torch.nn.ReLU.html)
    """

    code = "DIP101"
    name = "inplace-flag"
    cases = (
        Case("pandas", "def program(frame):\n    frame.dropna(inplace=True)\n    return frame\n"),
        Case("false", _HEAD + "def program(x):\n    return nn.ReLU(inplace=False)(F.relu(x))\n"),
        Case("positional-bias", _HEAD + "def program():\n    return nn.Linear(2, 2, True)\n"),
        Case(
            "keyword",
            _HEAD + "def program(act=nn.ReLU(inplace=True)):\n    a = torch.ones(2, requires_grad=True)\n"
            "    return act(torch.sigmoid(a)).sum()\n",
            _HEAD + "def program(act=nn.ReLU(inplace=False)):\n    a = torch.ones(2, requires_grad=True)\n"
            "    return act(torch.sigmoid(a)).sum()\n",
        ),
        Case(
            "positional",
            _HEAD + "def program():\n    a = torch.ones(2, requires_grad=True)\n"
            "    net = nn.Sequential(nn.Sigmoid(), nn.Dropout(0.0, True), nn.ReLU(True))\n    return net(a).sum()\n",
            _HEAD + "def program():\n    a = torch.ones(2, requires_grad=True)\n"
            "    net = nn.Sequential(nn.Sigmoid(), nn.Dropout(0.0, False), nn.ReLU(False))\n    return net(a).sum()\n",
        ),
        Case(
            "functional-result-discarded",
            _HEAD + "def program():\n    a = torch.ones(2, requires_grad=True)\n    x = a.exp()\n"
            "    F.relu(x, inplace=True)\n    return x.sum()\n",
            _HEAD + "def program():\n    a = torch.ones(2, requires_grad=True)\n    x = a.exp()\n"
            "    x = F.relu(x, inplace=False)\n    return x.sum()\n",
        ),
        Case(
            "module-result-discarded",
            _HEAD + "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.act = nn.ReLU(inplace=True)\n\n    def forward(self, x):\n        x = x.exp()\n"
            "        self.act(x)\n        return x\n\n\ndef program():\n"
            "    return Net()(torch.ones(2, requires_grad=True)).sum()\n",
            _HEAD + "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.act = nn.ReLU(inplace=False)\n\n    def forward(self, x):\n        x = x.exp()\n"
            "        x = self.act(x)\n        return x\n\n\ndef program():\n"
            "    return Net()(torch.ones(2, requires_grad=True)).sum()\n",
        ),
        Case(
            "default-that-feeds-the-flag",
            _HEAD + "class Net(nn.Module):\n    def __init__(self, inplace=True):\n        super().__init__()\n"
            "        self.act = nn.ReLU(inplace=inplace)\n\n    def forward(self, x):\n"
            "        return self.act(x.exp())\n\n\ndef program():\n"
            "    return Net()(torch.ones(2, requires_grad=True)).sum()\n",
            _HEAD + "class Net(nn.Module):\n    def __init__(self, inplace=False):\n        super().__init__()\n"
            "        self.act = nn.ReLU(inplace=inplace)\n\n    def forward(self, x):\n"
            "        return self.act(x.exp())\n\n\ndef program():\n"
            "    return Net()(torch.ones(2, requires_grad=True)).sum()\n",
        ),
        Case(
            "set-in-a-loop",
            _HEAD + "def program():\n    net = nn.Sequential(nn.Sigmoid(), nn.ReLU())\n    for m in net.modules():\n"
            "        if isinstance(m, nn.ReLU):\n            m.inplace = True\n"
            "    return net(torch.ones(2, requires_grad=True)).sum()\n",
            _HEAD + "def program():\n    net = nn.Sequential(nn.Sigmoid(), nn.ReLU())\n    for m in net.modules():\n"
            "        if isinstance(m, nn.ReLU):\n            m.inplace = False\n"
            "    return net(torch.ones(2, requires_grad=True)).sum()\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Sites of this kind in a file."""
        for node in source.of(ast.Call):
            held = _flags.flags(source, node) if _flags.position(source, node) is not None else ()
            if any(_flags.is_true(flag.node) for flag in held):
                yield self._site(source, node)
        yield from (self._site(source, node) for node in source.of(ast.Assign) if _sets_flag(node))

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that a run's write points at."""
        module = _module(incident)
        if module is not None:
            places = [*module.flagged[:1], *module.constructed[:1], *_locate.write_stack(incident)[:1]]
        else:
            places = list(_locate.write_stack(incident)[:1])
        for place in places:
            node = _flagging(place, project, module is not None)
            if node is not None:
                return self._site(project.sources[place.path], node)
        if module is not None:
            literal = next(_flag_flow.literals(module, project), None)
            if literal is not None:
                return self._site(literal[0], literal[1].node)
        stack = _locate.write_stack(incident)
        found = _locate.first_editable(stack, project) if module is not None else None
        call = _locate.covering(found[0], found[1].span, ast.Call) if found else None
        return self._site(found[0], call) if found and isinstance(call, ast.Call) else None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidates, the cheapest first."""
        source = project.sources.get(site.path)
        node = _locate.node_of(site, source, (ast.Call, ast.Assign, ast.Constant)) if source else None
        module = _module(incident) if incident is not None else None
        if incident is None or module is None:
            if source is not None and node is not None:
                yield from self._at(source, node)
                if isinstance(node, ast.Call) and node.args and path_of(node.args[0]):
                    yield from _clone.clones_before(self.code, source, source.statement(node), node.args[0])
            return
        nodes = [(source, node)] if source is not None and node is not None else []
        for place in dict.fromkeys([*module.flagged, *module.constructed]):
            other = _flagging(place, project, True)
            if other is not None and other is not node:
                nodes.append((project.sources[place.path], other))
        for where, each in nodes:
            yield from self._at(where, each, spelled=True)
        for where, flag in _flag_flow.literals(module, project):
            if flag.node is not node:
                yield from self._at(where, flag.node)
        settings = _flag_flow.lines_in_texts(project)
        note = f"the flag is set in {', '.join(settings[:3])}: to switch it off there is the smaller change"
        cut = [r for where, each in nodes for r in self._at(where, each, spelled=False)]
        ways = [self._cloned_at_call(incident, project), self._switched_off(module, project)]
        if _flag_flow.inside_one_call(incident, project):
            ways.reverse()
        for rewrite in (*cut, *ways[0], *ways[1]):
            yield dataclasses.replace(rewrite, note=note) if settings and not rewrite.note else rewrite

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        settings = _flag_flow.lines_in_texts(project)
        if settings and incident is not None and _module(incident) is not None:
            return f"The flag seems to be set in {', '.join(settings[:3])}: set it to false there, or give it a clone."
        return f"Build `{site.target}` with `inplace=False`, or give it a clone of its input."

    def _at(self, source: Source, node: ast.AST, spelled: bool | None = None) -> Iterator[Rewrite]:
        """Rewrites at one place; `spelled` False leaves out literals, True leaves out all but literals."""
        if spelled is False and not isinstance(node, ast.Call):
            return
        if isinstance(node, ast.Constant):
            title = f"switch `inplace` off on line {node.lineno}"
            yield _clone.rewrite(self.code, source, title, [replace(source, node, "False")], node)
            return
        if isinstance(node, ast.Assign):
            edit = replace(source, node.value, "False")
            yield _clone.rewrite(self.code, source, "switch the flag off where it is set", [edit], node)
            return
        if not isinstance(node, ast.Call):
            return
        bound = _flags.discarded(source, node)
        statement = source.statement(node)
        computes = _flags.argument(source, node, lenient=True) is not None
        if isinstance(statement, ast.Expr) and statement.value is node and computes:
            bound = [*bound, *_flags.bind_result(source, statement)]
        for flag in _flags.flags(source, node):
            if spelled not in (None, _flags.is_true(flag.node)):
                continue
            title = f"switch `inplace` off {flag.where}"
            made = _clone.rewrite(self.code, source, title, [flag.edit, *bound], flag.node)
            starts = {e.start for e in bound}
            calls = [n for n in source.nodes if isinstance(n, ast.Expr) and source.bounds(n)[0] in starts]
            touched = dict.fromkeys([*made.touches, *((source.path, source.qualname(n)) for n in calls)])
            yield dataclasses.replace(made, touches=tuple(touched))

    def _cloned_at_call(self, incident: Incident, project: Project) -> Iterator[Rewrite]:
        """`self.act(x)` becomes `self.act(x.clone())`; as a statement, `x = self.act(x.clone())`."""
        found = _locate.first_editable(_locate.write_stack(incident), project)
        call = _locate.covering(found[0], found[1].span, ast.Call) if found else None
        if found is None or not isinstance(call, ast.Call) or not call.args or isinstance(call.args[0], ast.Starred):
            return
        source, argument = found[0], call.args[0]
        statement = source.statement(call)
        bound: list[Edit] = []
        if isinstance(statement, ast.Expr) and statement.value is call:
            bound = _flags.bind_result(source, statement)
        edits = [*bound, *clone(source, argument)]
        yield _clone.rewrite(self.code, source, "give the in-place module a clone of its input", edits, call)
        if path_of(argument):
            yield from _clone.clones_before(self.code, source, statement, argument)

    def _switched_off(self, module: ModuleInfo, project: Project) -> Iterator[Rewrite]:
        """For modules built where nothing may be edited: the flag is cleared after the model was made."""
        found = _locate.first_editable(module.constructed, project)
        if found is None or not module.name:
            return
        if found[1] == module.constructed[0]:
            yield from self._cleared_in_class(module, *found)
            return
        source, place = found
        call = _locate.covering(source, place.span, ast.Call)
        owner = _flags.holder(source, call) if isinstance(call, ast.Call) else None
        if owner is None or call is None:
            return
        name = module.name
        if isinstance(owner, ast.Attribute):
            head, _, rest = name.partition(".")
            if head != owner.attr:
                return
            name = rest
        path = source.segment(owner)
        target = f'{path}.get_submodule("{name}")' if name else path
        try:
            edit = insert_after(source, source.statement(call), f"{target}.inplace = False")
        except Refused:
            return
        yield _clone.rewrite(self.code, source, f"switch `inplace` off after `{path}` was made", [edit], call)

    def _cleared_in_class(self, module: ModuleInfo, source: Source, place: Place) -> Iterator[Rewrite]:
        """For modules built from data: the flag is cleared where the class has put its part together."""
        head, _, rest = (module.name or "").partition(".")
        call = _locate.covering(source, place.span, ast.Call)
        owner = next((n for n in source.ancestors(call) if isinstance(n, ast.ClassDef)), None) if call else None
        for node in ast.walk(owner) if owner is not None and rest else ():
            if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)):
                continue
            if source.segment(node.targets[0]) != f"self.{head}":
                continue
            try:
                edit = insert_after(source, node, f'self.{head}.get_submodule("{rest}").inplace = False')
            except Refused:
                continue
            yield _clone.rewrite(self.code, source, f"switch `inplace` off after `self.{head}` was made", [edit], node)

    def _site(self, source: Source, node: ast.AST) -> Site:
        named = node.func if isinstance(node, ast.Call) else node
        target = "inplace" if isinstance(node, ast.Constant) else source.segment(named)
        return _locate.site(self.code, source, node, target, "inplace")


def _module(incident: Incident) -> ModuleInfo | None:
    event = _locate.write_event(incident)
    if incident.conflict is not None and incident.conflict.write.optimizer:
        return None
    return event.module if event is not None and event.module is not None and event.module.inplace else None


def _sets_flag(node: ast.Assign) -> bool:
    targets = node.targets
    return _flags.is_true(node.value) and all(isinstance(t, ast.Attribute) and t.attr == _flags.FLAG for t in targets)


def _flagging(place: Place, project: Project, proven: bool) -> ast.Call | ast.Assign | None:
    """The call or assignment at a place that sets an `inplace` flag. `proven`: a run has shown that one is set."""
    if not project.editable(place.path):
        return None
    source = project.sources[place.path]
    statement = _locate.statement_at(source, place.span)
    if isinstance(statement, ast.Assign) and _sets_flag(statement):
        return statement
    node = _locate.covering(source, place.span, ast.Call)
    if not isinstance(node, ast.Call):
        return None
    if not proven and _flags.argument(source, node) is None:
        return None
    # A frame may point at the call around the one that sets the flag: `layers.append(nn.ReLU(True))`.
    inner = [n for n in ast.walk(node) if isinstance(n, ast.Call)] if proven else [node]
    flagged = [n for n in inner if any(True for _ in _flags.flags(source, n))]
    return node if node in flagged else flagged[0] if len(flagged) == 1 else None
