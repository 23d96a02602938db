"""Reads the documentation: its code blocks, and the commands that it tells people to type."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(deinplace [^`]+|pytest --deinplace[^`]*)`")
_PLACEHOLDER = re.compile(
    r"\b(RULE|CMD|LIST|NAME|FILE|PATCH|COMMIT)\b|\.\.\.|\[|^deinplace (run|fix|verify|explain|ci-apply)$"
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: the line of its first line of text, its language, and the text."""

    path: str
    line: int
    language: str
    text: str


def pages() -> list[Path]:
    """The READMEs and every page of the documentation."""
    return [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text("utf-8")
    return [
        Block(
            page.relative_to(ROOT).as_posix(),
            text.count("\n", 0, found.start()) + 2,
            found["language"],
            textwrap.dedent(found["body"]),
        )
        for found in _FENCE.finditer(text)
    ]


def commands(page: Path) -> list[str]:
    """What a page tells people to type, without prompts, output and comments; what holds a placeholder is left out."""
    text = page.read_text("utf-8")
    typed = re.findall(r"^ *\$ (.+)$", text, re.MULTILINE)
    for block in blocks(page):
        if block.language == "sh":
            typed += block.text.splitlines()
    typed += [inline for inline in _INLINE.findall(_FENCE.sub("", text)) if not _PLACEHOLDER.search(inline)]
    found = [re.sub(r"\s+#.*$", "", line).strip() for line in typed]
    return list(dict.fromkeys(line for line in found if line))
