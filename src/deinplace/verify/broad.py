"""`fix --all` with a driver: what analysis proposes everywhere, kept as far as the run confirms it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from deinplace.analysis.source import Source
from deinplace.model import Place, Rewrite, Site, Status, Trial, Verdict
from deinplace.verify import account
from deinplace.verify.cost import memory
from deinplace.verify.drivers import Run
from deinplace.verify.groups import Group
from deinplace.verify.incidents import by_path
from deinplace.verify.search import Choice
from deinplace.verify.static import plan
from deinplace.verify.trial import Bench, Result

Planned = tuple[Site, Rewrite]


@dataclass(frozen=True)
class Broad:
    """Rewrites of sites that no conflict comes from, tried together and halved where they fail."""

    bench: Bench
    ran: frozenset[tuple[str, int]]
    progress: Callable[[str], None]

    def choose(self, allowed: frozenset[str] | None) -> tuple[list[Choice], Result | None]:
        """One choice for each proposed rewrite, and the result of the last run that held."""
        offers = [
            (site, rewrite)
            for site, rewrite, _ in plan(self.bench.current, all_sites=True)
            if allowed is None or rewrite.rule in allowed
        ]
        return self.confirm(offers)

    def confirm(self, offers: Sequence[Planned], watch: bool = False) -> tuple[list[Choice], Result | None]:
        """The same for rewrites at hand; `watch` where the program would not run by itself."""
        if not offers:
            return [], None
        self.progress(f"trying {len(offers)} more rewrites")
        kept: list[Planned] = []
        reasons: dict[int, str] = {}
        self._hold(offers, kept, reasons, watch)
        last = self.bench.run([r for _, r in kept], watch=watch) if kept else None
        cost = memory(self.bench.thrift.before, last.usage, len(kept)) if last is not None else None
        choices = [self._choice(offer, offer in kept, reasons.get(id(offer), "")) for offer in offers]
        return [replace(c, memory=cost) if c.rewrite is not None else c for c in choices], last

    def _hold(self, offers: Sequence[Planned], kept: list[Planned], reasons: dict[int, str], watch: bool) -> None:
        """Add to `kept` those that leave the run as it is."""
        result = self.bench.run([r for _, r in (*kept, *offers)], watch=watch)
        if result.equal:
            kept.extend(offers)
        elif len(offers) == 1:
            reasons[id(offers[0])] = result.reason
        else:
            middle = len(offers) // 2
            self._hold(offers[:middle], kept, reasons, watch)
            self._hold(offers[middle:], kept, reasons, watch)

    def _choice(self, offer: Planned, held: bool, reason: str) -> Choice:
        site, rewrite = offer
        group = Group((), site, (rewrite,))
        if not held:
            status: Status = "unconfirmed" if reason.startswith("not tried") else "refuted"
            return Choice(group, None, (Trial(rewrite, Verdict(status, reason)),), status)
        if self._has_run(site, rewrite):
            return Choice(group, rewrite, (Trial(rewrite, Verdict("confirmed", "the run saw what the oracle saw")),))
        verdict = Verdict("unconfirmed", "its lines never ran; analysis proves that nobody else sees the write")
        return Choice(group, rewrite, (Trial(rewrite, verdict),))

    def _has_run(self, site: Site, rewrite: Rewrite) -> bool:
        lines = {(site.path, n) for n in range(site.statement.line, site.statement.end_line + 1)}
        return bool(self.ran & (lines | {(rewrite.path, rewrite.line)}))


def lines_that_wrote(run: Run) -> frozenset[tuple[str, int]]:
    """Lines at which the run changed a tensor in place, or set the flag of a layer that did."""
    places: list[Place] = []
    for entry in run.gather("written"):
        places += account.places(entry)
    return frozenset((p.path, line) for p in places for line in range(p.span.line, p.span.end_line + 1))


def with_functions_at(
    functions: Mapping[str, tuple[str, ...]], lines: frozenset[tuple[str, int]], sources: Mapping[str, Source]
) -> dict[str, tuple[str, ...]]:
    """Add the functions that hold one of `lines`."""
    found = [(path, name) for path, names in functions.items() for name in names]
    for path, source in sources.items():
        wanted = {line for where, line in lines if where == path}
        for node in source.nodes if wanted else ():
            if isinstance(node, ast.stmt) and node.lineno in wanted:
                found.append((path, source.qualname(node)))
    return by_path(found)
