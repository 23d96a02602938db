"""Every case of every rule, as it stands and as other people's files have it."""

from __future__ import annotations

import ast
import codecs

import pytest

from deinplace.analysis.source import Source
from deinplace.model import Edit, Rewrite
from deinplace.rewrite.apply import apply, check
from deinplace.rules import all_rules, rule, static_candidates
from deinplace.rules.base import Case, Project, Rule

PATH = "/tree/program.py"
ROUNDS = 8

RULES = [r for r in all_rules() if r.code in {f"DIP10{n}" for n in range(1, 8)}]
EVERY = [pytest.param(r, c, id=f"{r.code}-{c.id}") for r in RULES for c in r.cases]
SILENT = [p for p in EVERY if p.values[1].after is None]
FIRING = [p for p in EVERY if p.values[1].after is not None]


def source_of(text: str, encoding: str = "utf-8", bom: bool = False) -> Source:
    """A file in memory."""
    data = text.encode(encoding)
    return Source.parse(PATH, codecs.BOM_UTF8 + data if bom else data)


def first(rule: Rule, source: Source) -> tuple[Rewrite, ...]:
    """The cheapest rewrite of each site that the rule finds, as far as they do not meet."""
    project = Project({source.path: source})
    chosen: list[Rewrite] = []
    for site in rule.find(source):
        for _, rewrite in static_candidates(site, project)[:1]:
            spans = [(e.start, e.end) for r in chosen for e in r.edits]
            if not any(e.start <= high and low <= e.end for e in rewrite.edits for low, high in spans):
                chosen.append(rewrite)
    return tuple(chosen)


def settled(rule: Rule, source: Source) -> Source:
    """The file after the rule's first rewrite of each site, applied once."""
    edits = [e for rewrite in first(rule, source) for e in rewrite.edits]
    return check(source, apply(source, edits), edits)


@pytest.mark.parametrize(("rule", "case"), SILENT)
def test_stays_silent(rule: Rule, case: Case) -> None:
    assert list(rule.find(source_of(case.before))) == []


@pytest.mark.parametrize(("rule", "case"), FIRING)
def test_before_becomes_after(rule: Rule, case: Case) -> None:
    assert settled(rule, source_of(case.before)).text == case.after


@pytest.mark.parametrize(("rule", "case"), FIRING)
def test_every_alternative_parses_and_leaves_the_rest_alone(rule: Rule, case: Case) -> None:
    source = source_of(case.before)
    project = Project({source.path: source})
    for site in rule.find(source):
        for _, rewrite in static_candidates(site, project):
            after = apply(source, rewrite.edits)
            check(source, after, rewrite.edits)
            low, high = min(e.start for e in rewrite.edits), max(e.end for e in rewrite.edits)
            assert after.startswith(source.text[:low])
            assert after.endswith(source.text[high:])
            assert rewrite.touches
            assert rewrite.line > 0


VARIANTS = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "tabs": lambda text: text.replace("    ", "\t"),
    "no-final-newline": lambda text: text.removesuffix("\n"),
    "latin-1": lambda text: "# -*- coding: latin-1 -*-\n# Stra\u00dfe\n" + text,
    "bom": lambda text: text,
    "two-spaces": lambda text: text.replace("    ", "  "),
    "under-a-class": lambda text: (
        "class Holder:\n    note = '''\nkept'''\n"
        + "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("rule", "case"), FIRING)
def test_other_peoples_files(rule: Rule, case: Case, variant: str) -> None:
    change = VARIANTS[variant]
    assert case.after is not None
    encoding = "latin-1" if variant == "latin-1" else "utf-8"
    before = source_of(change(case.before), encoding, bom=variant == "bom")
    after = source_of(change(case.after), encoding, bom=variant == "bom")
    assert settled(rule, before).data == after.data


@pytest.mark.parametrize(("rule", "case"), FIRING)
def test_converges(rule: Rule, case: Case) -> None:
    """Rules that replace a write find nothing afterwards; those that clone before it still find it, once cloned."""
    assert case.after is not None
    after = source_of(case.after)
    for site in rule.find(after):
        if site.method in ("[]=",) or f"{site.target.split('[')[0]}.clone()" in case.after:
            continue
        pytest.fail(f"{rule.code} still finds {site.target} {site.method}")


def test_codes_and_names_are_unique() -> None:
    rules = all_rules()
    assert len({r.code for r in rules}) == len({r.name for r in rules}) == len(rules)
    for each in rules:
        assert rule(each.code) is rule(each.name) is each


@pytest.mark.parametrize("each", RULES, ids=lambda r: r.code)
def test_page_has_its_sections(each: Rule) -> None:
    sections = [line.strip() for line in (each.__doc__ or "").splitlines() if line.strip().startswith("## ")]
    assert sections == [
        "## What it does",
        "## Why is this bad",
        "## Example",
        "## Use instead",
        "## Fix safety",
        "## References",
    ]


def test_noops_come_first() -> None:
    for each in RULES:
        states = [c.after is not None for c in each.cases]
        assert states == sorted(states), each.code


def test_edits_are_within_the_file() -> None:
    for each in RULES:
        for case in each.cases:
            source = source_of(case.before)
            ast.parse(case.before)
            for rewrite in first(each, source):
                assert all(isinstance(e, Edit) and 0 <= e.start <= e.end <= len(source.text) for e in rewrite.edits)
