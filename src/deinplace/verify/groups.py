"""Gathers what rules offer for each write that has to be mended, as one list of alternatives a write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from deinplace.model import Rewrite, Site
from deinplace.rewrite.apply import OverlapError, ordered
from deinplace.rules import candidates, meant, on_purpose, rule
from deinplace.rules.base import Incident, Project


@dataclass(frozen=True)
class Group:
    """Incidents with one cause, the site to change, and rewrites to try in order."""

    incidents: tuple[Incident, ...]
    site: Site | None
    alternatives: tuple[Rewrite, ...]
    barred: bool = False
    """True where there are rewrites, but the settings allow none of them."""

    @property
    def automatic(self) -> tuple[Rewrite, ...]:
        """Alternatives that may be applied without asking."""
        return tuple(r for r in self.alternatives if r.applicability == "safe")

    def usable(self, unsafe: bool) -> tuple[Rewrite, ...]:
        """Alternatives to try: the run decides on those that syntax alone cannot prove.

        Those that change gradients on purpose are tried with `unsafe` only.
        """
        doubtful = tuple(r for r in self.alternatives if r.applicability == "unsafe")
        held = self.kept_back(unsafe)
        kept = meant(self.alternatives)
        return tuple(r for r in self.automatic if r in kept) + tuple(r for r in doubtful if r not in held)

    def kept_back(self, unsafe: bool) -> tuple[Rewrite, ...]:
        """Alternatives that are not even tried without `unsafe`: they change gradients on purpose."""
        return () if unsafe else tuple(r for r in self.alternatives if on_purpose(r))


def group(found: Iterable[Incident], project: Project, allowed: frozenset[str] | None) -> tuple[Group, ...]:
    """One group for each write, in the order in which the run met them."""
    table: dict[tuple[object, bool], list[tuple[Incident, tuple[tuple[Site, Rewrite], ...]]]] = {}
    for incident in found:
        offers = candidates(incident, project)
        kept = tuple(o for o in offers if allowed is None or o[1].rule in allowed)
        # what the settings leave nothing of is still reported by the rule that knows it
        table.setdefault((_cause(incident, kept or offers), bool(kept)), []).append((incident, kept or offers))
    return tuple(
        group if kept or not group.alternatives else Group(group.incidents, group.site, (), barred=True)
        for (_, kept), members in table.items()
        for group in [_merged(members, project)]
    )


def _cause(incident: Incident, offers: tuple[tuple[Site, Rewrite], ...]) -> object:
    """What two incidents share when one rewrite mends both: the site that writes."""
    for site, _ in offers:
        if not rule(site.rule).fallback:
            return (site.rule, site.path, site.span)
    if incident.conflict is not None:
        write = incident.conflict.write
        return ("write", write.place or write.op, write.optimizer)
    assert incident.raised is not None
    return ("raised", incident.raised.category, incident.raised.stack[:1])


def _merged(members: list[tuple[Incident, tuple[tuple[Site, Rewrite], ...]]], project: Project) -> Group:
    """Rewrites at the write serve all incidents of a group; clones at the saves are joined into one rewrite."""
    primary: dict[object, Rewrite] = {}
    fallback: list[list[Rewrite]] = []
    site: Site | None = None
    for _, offers in members:
        own = []
        for where, rewrite in offers:
            if rule(rewrite.rule).fallback:
                own.append(rewrite)
            else:
                site = site or where
                primary.setdefault(_edits(rewrite), rewrite)
        fallback.append(own)
    if site is None:
        site = next((where for _, offers in members for where, _ in offers), None)
    rewrites = list(primary.values())
    if fallback and all(fallback):
        for index in range(max(map(len, fallback))):
            joined = _joined([own[min(index, len(own) - 1)] for own in fallback])
            if joined is not None and _edits(joined) not in primary:
                rewrites.append(joined)
    rewrites.sort(key=lambda r: r.costly)
    return Group(tuple(incident for incident, _ in members), site, tuple(rewrites))


def _edits(rewrite: Rewrite) -> object:
    return tuple(sorted((e.path, e.start, e.end, e.new) for e in rewrite.edits))


def _joined(parts: list[Rewrite]) -> Rewrite | None:
    """One rewrite with the edits of several, or None where they collide."""
    distinct = list({_edits(p): p for p in parts}.values())
    if len(distinct) == 1:
        return distinct[0]
    edits = tuple(dict.fromkeys(e for p in distinct for e in p.edits))
    try:
        for path in {e.path for e in edits}:
            ordered(e for e in edits if e.path == path)
    except OverlapError:
        return None
    touches = tuple(dict.fromkeys(t for p in distinct for t in p.touches))
    title = f"{distinct[0].title} (at {len(distinct)} places)"
    return replace(distinct[0], edits=edits, touches=touches, costly=any(p.costly for p in distinct), title=title)
