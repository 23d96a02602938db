"""DIP205: a loop fills a preallocated buffer row by row and reads rows back."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from deinplace.analysis.source import Source
from deinplace.model import Rewrite, Site
from deinplace.rules import _clone, _locate
from deinplace.rules._buffer import Buffer, buffer_of, reads_rows, remade
from deinplace.rules._buffer_edits import rewritten
from deinplace.rules.base import Case, Incident, Project, Rule


class BufferLoop(Rule):
    """A loop fills a buffer that backward needs.

    ## What it does
    Finds loops that write a tensor row by row and read earlier rows: `out[:, t] = f(out[:, t - 1])`, tables of dynamic
    programming, forward variables, recurrent states.

    ## Why is this bad
    The rows are views of one storage with one version counter. An operation saves row `t - 1`, the write of row `t`
    bumps the counter, and `backward()` raises although no element of row `t - 1` changed. Where it does not raise, each
    write is a node of the graph whose backward copies the gradient of the whole buffer: quadratic time.

    ## Example
    ```python
    out = torch.zeros(batch, steps, size)
    for t in range(1, steps):
        out[:, t] = torch.tanh(out[:, t - 1] @ w)
    return out
    ```

    ## Use instead
    ```python
    out = list(torch.zeros(batch, steps, size).unbind(1))
    for t in range(1, steps):
        out[t] = torch.tanh(out[t - 1] @ w)
    out = torch.stack(out, dim=1)
    return out
    ```

    ## Fix safety
    Time and memory stay linear. `out = out.clone()` in every round is quadratic: it is offered last, with a note. Rows
    must have their final shape and dtype when they are put into the list: the run shows it. Where a slice of earlier
    rows is read (`out[:, :t]`), these rows are copied in every round.

    ## References
    - [torch.stack](https://pytorch.org/docs/stable/generated/torch.stack.html)
    """

    code: ClassVar[str] = "DIP205"
    name: ClassVar[str] = "buffer-loop"
    cases: ClassVar[tuple[Case, ...]] = (
        Case(
            "noop-rows-are-only-written",
            "import torch\n\n\ndef f(xs):\n    out = torch.zeros(3, 4)\n    for t in range(3):\n"
            "        out[t] = xs[t] * 2\n    return out\n",
        ),
        Case(
            "noop-whole-buffer-is-read",
            "import torch\n\n\ndef f(w):\n    out = torch.zeros(3, 4)\n    for t in range(1, 3):\n"
            "        out[t] = out[t - 1] * w\n        print(out)\n    return out\n",
        ),
        Case(
            "noop-part-of-a-row",
            "import torch\n\n\ndef f(w):\n    out = torch.zeros(3, 4)\n    for t in range(1, 3):\n"
            "        out[t, 1:] = out[t - 1, :3] * w\n    return out\n",
        ),
        Case(
            "recurrence",
            "import torch\n\n\ndef f(w):\n    out = torch.ones(2, 4, 3)\n    for t in range(1, 4):\n"
            "        out[:, t] = torch.tanh(out[:, t - 1] @ w)\n    return out\n",
            "import torch\n\n\ndef f(w):\n    out = list(torch.ones(2, 4, 3).unbind(1))\n    for t in range(1, 4):\n"
            "        out[t] = torch.tanh(out[t - 1] @ w)\n    out = torch.stack(out, dim=1)\n    return out\n",
        ),
        Case(
            "table",
            "import torch\n\n\ndef f(d, n):\n    r = torch.zeros(n, n)\n    for i in range(1, n):\n"
            "        for j in range(1, n):\n            r[i, j] = d[i, j] + torch.exp(r[i - 1, j] * r[i, j - 1])\n"
            "    return r[-1, -1]\n",
            "import torch\n\n\ndef f(d, n):\n    r = [list(row.unbind(0)) for row in torch.zeros(n, n).unbind(0)]\n"
            "    for i in range(1, n):\n        for j in range(1, n):\n"
            "            r[i][j] = d[i, j] + torch.exp(r[i - 1][j] * r[i][j - 1])\n    return r[-1][-1]\n",
        ),
    )

    def find(self, source: Source) -> Iterable[Site]:
        """Writes of rows in loops that read rows of the same buffer."""
        for node in (*source.of(ast.Assign), *source.of(ast.AugAssign)):
            buffer = next(buffer_of(source, node), None)
            if buffer is not None and reads_rows(buffer):
                yield self._site(source, node, buffer)

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The loop around the write that a run's conflict points at."""
        if incident.conflict is None:
            return None
        found = _locate.writer(incident, project)
        statement = _locate.statement_at(found[0], found[1].span) if found else None
        if found is None or statement is None:
            return None
        buffer = next(buffer_of(found[0], statement), None)
        return self._site(found[0], statement, buffer) if buffer is not None else None

    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """A list of rows; the same with each value spread to its row's shape."""
        source = project.sources.get(site.path)
        statement = _locate.node_of(site, source, (ast.Assign, ast.AugAssign)) if source else None
        if source is None or not isinstance(statement, ast.stmt):
            return
        for buffer in buffer_of(source, statement):
            for spread in (False, True):
                done = rewritten(buffer, spread)
                if done is not None:
                    how = ", each value spread to its row" if spread else ""
                    title = f"keep the rows of `{buffer.name.id}` in a list{how}"
                    each = _clone.rewrite(self.code, source, title, done[0], buffer.loop, done[1])
                    yield dataclasses.replace(each, costly=remade(buffer))

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand."""
        return (
            f"`{site.target}` is written in a loop that reads earlier rows: append the rows to a list, read them "
            "there, and torch.stack the list behind the loop; a clone of the whole buffer in every round is quadratic."
        )

    def _site(self, source: Source, statement: ast.stmt, buffer: Buffer) -> Site:
        return _locate.site(self.code, source, statement, buffer.name.id, "[]=")
