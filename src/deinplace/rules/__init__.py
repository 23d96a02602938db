"""The rules: one file each, found by looking; the registry, and the candidates that all of them offer together."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from functools import cache

from deinplace.analysis import suppress
from deinplace.analysis.source import Source
from deinplace.model import Rewrite, Site
from deinplace.rules._lost import loses_the_write
from deinplace.rules.base import Incident, Project, Rule

Candidate = tuple[Site, Rewrite]


@cache
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule in this package, by code."""
    found: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("_") or info.name == "base":
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            own = inspect.isclass(value) and value.__module__ == module.__name__
            if own and issubclass(value, Rule) and not inspect.isabstract(value):
                found[value.code] = value()
    return tuple(found[code] for code in sorted(found))


def rule(code_or_name: str) -> Rule:
    """The rule of a code or a kebab name.

    Raises:
        KeyError: there is none.
    """
    for each in all_rules():
        if code_or_name in (each.code, each.name):
            return each
    raise KeyError(code_or_name)


def candidates(incident: Incident, project: Project) -> tuple[Candidate, ...]:
    """Sites and rewrites that may mend what a run showed, in the order in which to try them.

    Rules are asked by code, the fallbacks (`fallback = True`) last; rewrites with the same edits appear once. Where
    autograd refused a write on the spot, or an optimizer made it, the rules that judge intent (DIP2xx) come first.
    Where a comment silences a rule at its site, nothing is offered: whoever wrote it wants the fault left alone.
    """
    pairs: list[Candidate] = []
    write = incident.conflict.write if incident.conflict is not None else None
    intent = write is None or bool(write.optimizer)
    for each in sorted(all_rules(), key=lambda r: _rank(r, intent)):
        site = each.claim(incident, project)
        if site is not None:
            if _silenced(each, site, project):
                return ()
            offered = each.rewrites(site, project, incident)
            pairs += [(site, rewrite) for rewrite in offered if not loses_the_write(site, rewrite, project)]
            if incident.raised is not None and incident.raised.category in each.owns:
                break
    return _distinct(pairs)


def _rank(rule: Rule, intent: bool) -> tuple[bool, bool, str]:
    return rule.fallback, intent and not rule.code.startswith("DIP2"), rule.code


def on_purpose(rewrite: Rewrite) -> bool:
    """True for a rewrite that is meant to change gradients: nobody takes it unasked."""
    return rewrite.applicability == "unsafe" and rule(rewrite.rule).changes_gradients


def meant(rewrites: Iterable[Rewrite]) -> tuple[Rewrite, ...]:
    """The rewrites, less clones at the saves where another one changes gradients on purpose.

    The clones would prove the literal program right, which goes on with the graph of every earlier round.
    """
    every = tuple(rewrites)
    return tuple(r for r in every if not rule(r.rule).fallback) if any(map(on_purpose, every)) else every


def static_candidates(site: Site, project: Project) -> tuple[Candidate, ...]:
    """Rewrites for a site that no run has spoken of."""
    if _silenced(rule(site.rule), site, project):
        return ()
    offered = rule(site.rule).rewrites(site, project)
    return _distinct((site, rewrite) for rewrite in offered if not loses_the_write(site, rewrite, project))


def _silenced(each: Rule, site: Site, project: Project) -> bool:
    source = project.get(site.path)
    return source is not None and suppress.silenced(source, each.code, each.name, site.span)


def sites(source: Source, rules: Iterable[Rule] | None = None) -> list[Site]:
    """Every site that the rules find in a file, in order."""
    chosen = all_rules() if rules is None else rules
    return sorted((s for each in chosen for s in each.find(source)), key=lambda s: (s.span, s.rule))


def _distinct(pairs: Iterable[Candidate]) -> tuple[Candidate, ...]:
    seen: set[tuple[object, ...]] = set()
    kept: list[Candidate] = []
    for site, rewrite in pairs:
        key = tuple(sorted((e.path, e.start, e.end, e.new) for e in rewrite.edits))
        if rewrite.edits and key not in seen:
            seen.add(key)
            kept.append((site, rewrite))
    return tuple(sorted(kept, key=lambda pair: pair[1].costly))
