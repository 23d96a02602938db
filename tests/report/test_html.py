"""The page: what it says, that nothing in it comes from elsewhere, and what a real browser makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from deinplace.model import Finding, Memory, Outcome, Span
from deinplace.report import render
from deinplace.report.view import View

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Page(HTMLParser):
    """Tags with their attributes, and whether they nest."""

    void = frozenset({"meta", "link", "br", "img", "line", "path", "circle", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_nothing(outcome: Outcome, hostile: Outcome, view: View) -> None:
    for each in (outcome, hostile, Outcome("check")):
        text = render("html", each, view)
        page = Page(text)
        assert page.open == []
        names = {tag for tag, _ in page.tags}
        assert not names & {"script", "link", "img", "iframe", "object", "form", "base"}
        for _, attributes in page.tags:
            assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset", "action")]
            assert attributes.get("href", "#").startswith("#")
        ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
        assert set(ids.values()) <= {1}
        targets = {a["href"][1:] for _, a in page.tags if a.get("href")}
        named = {word for _, a in page.tags for word in (a.get("aria-labelledby") or "").split()}
        assert targets | named <= set(ids)
        assert "default-src 'none'" in text
        assert "url(" not in text and "@import" not in text


def test_both_ends_are_marked_and_the_timeline_is_drawn(outcome: Outcome, view: View) -> None:
    text = render("html", outcome, view)
    assert '<span class="row save"><span class="no">4</span>    é = <mark>F.relu(x)</mark>; y = é' in text
    assert '<span class="row write"><span class="no">5</span>    <mark>y += residual</mark>' in text
    assert text.count("<svg") == 2
    for kind, number in (("save", 2), ("write", 3), ("backward", 2)):
        assert text.count(f'class="dot-{kind}"') == number
    assert '<span class="row add">+    y = y + residual</span>' in text
    assert "gradient of w differs in forward" in text
    assert "clone x first" in text


def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


SCRIPT = """<script>
const box = [...document.querySelectorAll('.scroll')];
const result = JSON.stringify({
  wide: document.documentElement.scrollWidth, room: innerWidth, boxes: box.length,
  focusable: box.filter(b => (b.focus(), document.activeElement === b)).length,
  ground: getComputedStyle(document.body).backgroundColor,
  drawn: [...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 100),
  spill: [...document.querySelectorAll('svg text')].filter(t =>
    t.getBoundingClientRect().right > t.ownerSVGElement.getBoundingClientRect().right).length});
parent.document.body.dataset.result = result;
</script>"""


def measured(page: str, width: int, tmp_path: Path, *flags: str) -> dict[str, object]:
    """What a browser finds out about the page, `width` pixels wide, by a script that a copy of it carries."""
    program = browser()
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", SCRIPT + "</body>")
    path = tmp_path / "page.html"
    frame = f'<iframe style="width: {width}px; height: 800px; border: 0" srcdoc="{escape(copy)}"></iframe>'
    path.write_text(f"<!DOCTYPE html><body>{frame}</body>", "utf-8")
    own = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
    command = [program, *own, *flags, "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    body = re.search('<body data-result="([^"]*)">', result.stdout)
    assert body is not None, result.stderr
    values: dict[str, object] = json.loads(unescape(body[1]))
    return values


def test_a_browser_shows_it_on_a_phone_in_light_and_dark(outcome: Outcome, view: View, tmp_path: Path) -> None:
    page = render("html", outcome, view)
    phone = measured(page, 360, tmp_path, "--blink-settings=preferredColorScheme=1")
    assert phone["wide"] <= phone["room"] == 360  # a scroll bar takes its part
    assert phone["boxes"] == phone["focusable"] != 0
    assert phone["drawn"] is True
    assert phone["spill"] == 0
    dark = measured(page, 900, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert dark["ground"] != phone["ground"]


def test_memory_is_drawn_where_it_was_measured(outcome: Outcome, view: View) -> None:
    assert "Memory" not in render("html", outcome, view)
    cost = Memory(2_000_000, 2_500_000, 1024, 1024, seconds_before=0.5, seconds_after=0.25)
    first = replace(outcome.findings[0], memory=cost)
    text = render("html", replace(outcome, findings=(first, *outcome.findings[1:]), memory=cost), view)
    assert text.count("<h3>Memory</h3>") == 1  # what all cost is what the only rewrite costs
    assert "all tensors at their peak: +25.0 %" in text and "kept for backward: the same" in text
    assert '<rect class="before" width="80.00" height="8"/>' in text and "1.9 MiB" in text
    assert "time of a step under the probe: -50.0 %" in text
    two = replace(outcome, memory=replace(cost, rewrites=2))
    assert "measured for 2 rewrites together" in render("html", two, view)
    assert Page(text).open == []


def test_blank_lines_do_not_pad_the_source(root: Path) -> None:
    text = "x = 1\n\n\n\ny = 2\n\n\n"
    view = View(str(root), {str(root / "a.py"): text})
    finding = Finding("DIP102", "n", str(root / "a.py"), Span(5, 0, 5, 5), "m", "advised", "static")
    assert re.findall(r'class="no">(\d+)<', render("html", Outcome("check", (finding,)), view)) == ["5"]
