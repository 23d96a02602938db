"""The pages that are made from the program are as they would be made now, and the site builds with every link in it."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from docs.markdown import ROOT

from deinplace.cli.messages import MEANINGS
from deinplace.rules import all_rules


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "docs_pages.py"))


def test_made_pages_are_what_the_program_says(script: dict[str, Any]) -> None:
    made = script["pages"]()
    stale = [path for path, text in made.items() if (ROOT / "docs" / path).read_text("utf-8") != text]
    assert not stale, "run scripts/docs_pages.py"
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "rules").glob("*.md")}
    assert there <= set(made), "a page of a rule that is gone"


def test_the_table_of_the_readme_is_what_the_rules_say(script: dict[str, Any]) -> None:
    assert script["readme"]() == (ROOT / "README.md").read_text("utf-8"), "run scripts/docs_pages.py"


def test_every_rule_and_every_error_has_its_place() -> None:
    for rule in all_rules():
        text = (ROOT / "docs" / "rules" / f"{rule.name}.md").read_text("utf-8")
        assert all(f"## {part}" in text for part in ("What it does", "Why is this bad", "Fix safety", "References"))
    errors = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert re.findall(r"\{ #([\w-]+) \}", errors) == [meaning.key for meaning in MEANINGS]


def test_the_site_builds_strictly_and_asks_nobody_for_anything(tmp_path: Path) -> None:
    builder = Path(sys.executable).with_name("zensical")
    if not builder.exists():
        pytest.skip("zensical is not installed")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    result = subprocess.run([builder, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "No issues found" in result.stderr, result.stdout + result.stderr
    built = sorted((tmp_path / "site").rglob("*.html"))
    pages = list((tmp_path / "docs").rglob("*.md"))
    assert len(built) == len(pages)  # one is 404.html, and configuration.in.md is no page
    for page in built:
        loads = re.findall(
            r"<(?:script|img|iframe)[^>]* src=\"?https?://|<link[^>]*stylesheet[^>]*https?://", page.read_text()
        )
        assert not loads, page
