"""The Chinese README tells people to type what the English one does, and its errors are those that `explain` knows."""

from __future__ import annotations

import re

from docs.markdown import ROOT, commands

from deinplace.cli.messages import recognise

CHINESE, ENGLISH = ROOT / "README.zh-CN.md", ROOT / "README.md"


def test_the_same_commands() -> None:
    assert commands(CHINESE) == commands(ENGLISH)


def test_the_same_flags_verdicts_and_codes() -> None:
    chinese, english = CHINESE.read_text("utf-8"), ENGLISH.read_text("utf-8")
    assert set(re.findall(r"`(--[a-z-]+)", chinese)) <= set(re.findall(r"`[^`]*?(--[a-z-]+)", english))
    for row in (r"^\| (confirmed|refuted|unconfirmed) \|", r"^\| (\d+) \|"):
        assert re.findall(row, chinese, re.MULTILINE) == re.findall(row, english, re.MULTILINE)


def test_each_readme_names_the_other() -> None:
    assert "(README.md)" in CHINESE.read_text("utf-8")
    assert "(README.zh-CN.md)" in ENGLISH.read_text("utf-8")


def test_its_table_of_errors_holds_errors() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", CHINESE.read_text("utf-8").partition("## 常见报错对照")[2], re.MULTILINE)
    errors = [row for row in rows if not row.startswith("deinplace")]
    found = [meaning.key for row in errors if (meaning := recognise(row)) is not None]
    assert found == ["version", "leaf", "leaf-view", "several-views", "hook", "expanded", "second-backward"]
