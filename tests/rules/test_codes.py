"""Codes are given once; new rules wait in preview; a retired rule says so."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from deinplace.analysis.suppress import BAD, UNUSED
from deinplace.cli.explain import _page
from deinplace.cli.options import fixable, selected
from deinplace.config import Config
from deinplace.errors import DeinplaceError
from deinplace.rules import _codes, all_rules
from deinplace.rules._codes import Code

ROOT = Path(__file__).parents[2]
PATH = "src/deinplace/rules/codes.json"


def test_the_ledger_names_every_rule() -> None:
    named = {entry.code: entry.name for entry in _codes.ledger() if entry.state != "retired"}
    assert named == {rule.code: rule.name for rule in all_rules()} | dict([BAD, UNUSED])
    assert len({entry.name for entry in _codes.ledger()}) == len(_codes.ledger())


def test_no_code_was_ever_taken_back_or_given_twice() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    now = json.loads((ROOT / PATH).read_text())
    revisions = subprocess.run(
        ["git", "log", "--format=%H", "--", PATH], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for revision in revisions:
        shown = subprocess.run(
            ["git", "show", f"{revision}:{PATH}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        for code, entry in json.loads(shown.stdout or "{}").items():
            assert now[code]["name"] == entry["name"]
            assert not (entry["state"] == "retired" and now[code]["state"] != "retired")


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger in which DIP205 is new, and DIP108 was taken out."""
    held = tuple(
        Code(entry.code, entry.name, "preview" if entry.code == "DIP205" else entry.state, entry.since)
        for entry in _codes.ledger()
    )
    monkeypatch.setattr(_codes, "ledger", lambda: (*held, Code("DIP108", "old-write", "retired", "0.3.0")))


@pytest.mark.usefixtures("changed")
def test_new_rules_are_used_on_request_only() -> None:
    codes = {rule.code for rule in all_rules()} | {BAD[0], UNUSED[0]}
    assert selected(Config()) == fixable(Config()) == codes - {"DIP205"}
    assert selected(Config(preview=True)) is None
    assert selected(Config(select=("DIP2",))) == {"DIP201", "DIP202", "DIP203", "DIP204"}
    assert selected(Config(select=("buffer-loop",), preview=True)) == {"DIP205"}
    assert "DIP205" not in (fixable(Config(fixable=("DIP2",))) or ())
    for naming in (Config(select=("DIP205",)), Config(extend_select=("buffer-loop",))):
        with pytest.raises(DeinplaceError, match="DIP205 buffer-loop is in preview; --preview turns such rules on"):
            selected(naming)


@pytest.mark.usefixtures("changed")
def test_a_retired_rule_says_so() -> None:
    for name in ("DIP108", "old-write"):
        with pytest.raises(DeinplaceError, match=r"DIP108 old-write was retired in 0.3.0; take it out"):
            selected(Config(ignore=(name,)))


def test_every_listed_rule_has_a_page() -> None:
    for entry in _codes.ledger():
        for word in (entry.code, entry.name):
            assert _page(word).startswith(f"{entry.code} {entry.name}\n\n")


def test_where_nothing_is_new_all_rules_are_used() -> None:
    assert [entry.code for entry in _codes.ledger() if entry.state == "preview"] == []
    assert selected(Config()) is None
