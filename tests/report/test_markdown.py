"""The pull request's body, read by a real Markdown parser."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from deinplace.model import FileChange, Outcome
from deinplace.report import markdown, render
from deinplace.report.view import View


def html(text: str) -> str:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)


def test_the_table_lists_rewrites_with_their_verdicts(outcome: Outcome, view: View) -> None:
    page = html(render("markdown", outcome, view))
    cells = re.findall(r"<td>(.*?)</td>", page, re.DOTALL)
    assert cells[:3] == ["<code>unet.py:5</code>", "DIP102 augmented", "write <code>y = y + residual</code>"]
    assert cells[3].startswith("fixed: confirmed on cpu (gradients of 38 parameters, 2 steps, max |error| 0)")
    assert cells[7] == "taken back: refuted: gradient of w differs in forward"
    assert len(cells) == 8
    assert "-    y += residual\n+    y = y + residual" in page
    assert "<details><summary>Changes to unet.py</summary>" in page
    assert "clone x first" in page


def test_text_from_elsewhere_is_no_markup(hostile: Outcome, view: View) -> None:
    page = html(render("markdown", hostile, view))
    tags = set(re.findall(r"<\s*/?\s*([a-zA-Z][\w-]*)", page))
    assert tags <= {
        "h2", "h3", "p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul",
        "li", "pre", "blockquote",
    }  # fmt: skip
    visible = re.sub(r"<code.*?</code>", "", page, flags=re.DOTALL)
    assert not re.search(r"@\w", visible)


@pytest.mark.parametrize(
    "text",
    ["@team", "#12", "a|b", "**x**", "[l](http://x.example)", "<b>x</b>", "![i](http://x)", "a ` b", "www.x.example",
     "~~x~~", "\\*x\\*", "# x", "&lt;", "$x$"],
)  # fmt: skip
def test_prose_is_shown_letter_by_letter(text: str) -> None:
    page = MarkdownIt("gfm-like", {"linkify": False}).render(f"x {markdown.escape(text)}")
    plain = re.sub(r"<[^>]*>", "", page).replace("\u200b", "")
    plain = plain.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    assert plain.strip() == f"x {text}"
    assert not re.search(r"<(a|img|b|em|strong|s|code|h1)\b", page)


@pytest.mark.parametrize("text", ["x", "`", "``x`", "a | b", "x ` y", ""])
def test_code_spans_hold_anything(text: str) -> None:
    page = html(f"|a|\n|---|\n|{markdown.code(text, cell=True)}|")
    inside = re.search(r"<td><code>(.*)</code></td>", page)
    assert inside is not None
    assert inside[1].strip() == text.strip()


def test_a_fence_in_the_source_does_not_end_the_diff(outcome: Outcome, view: View) -> None:
    change = FileChange("/x.py", '"""\n```\n"""\nx += 1\n', '"""\n```\n"""\nx = x + 1\n')
    page = html(render("markdown", replace(outcome, changes=(change,)), view))
    assert page.count("<pre>") == 1
    assert " ```\n" in page


def test_a_long_diff_is_left_out_and_said_to_be(outcome: Outcome, view: View) -> None:
    changes = (FileChange("/x.py", "", "x\n" * 50_000), *outcome.changes)
    text = render("markdown", replace(outcome, changes=changes), view)
    assert len(text) < 65_536
    assert "too long to be shown" in text
    assert "+    y = y + residual" in text
