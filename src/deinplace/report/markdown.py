"""Markdown for a pull request or a job summary: a table of the rewrites with their verdicts, and folded diffs.

Text from sources and programs is never markup here: it stands in code spans and fences that it cannot close, or is
escaped, and it mentions nobody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deinplace.model import Finding, Outcome
from deinplace.report import diff, parts, words
from deinplace.report.view import View

_LIMIT = 60_000
"""GitHub takes 65,536 characters; diffs that do not fit are left out, and it is said that they are."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#!|~$])")
_STATES = {"fixed": "fixed", "fixable": "would be fixed", "unsafe": "needs `--unsafe`", "rolled-back": "taken back"}


def render(outcome: Outcome, view: View) -> str:
    """The whole document."""
    blocks = [f"## deinplace: {_lower(words.summary(outcome))}"]
    if proof := words.verdict_line(outcome):
        blocks.append(f"**Verified:** {escape(proof)}")
    if outcome.memory:
        blocks.append(f"**Costs:** {escape(words.cost(outcome.memory))}")
    shown = [f for f in outcome.findings if f.state != "suppressed"]
    changed = [f for f in shown if f.rewrite and f.state in _STATES]
    rest = [f for f in shown if f not in changed]
    if changed:
        blocks += ["### Rewrites", _rewrites(changed, view)]
    if rest:
        title = "### For a person to decide" if outcome.command != "run" else "### Findings"
        blocks += [title, "\n".join(_item(finding, view) for finding in rest)]
    if outcome.problems:
        listed = [f"- {code(view.path(p.path) or 'deinplace')}: {escape(p.message)}" for p in outcome.problems]
        blocks += ["### Not looked at", "\n".join(listed)]
    if outcome.notes:
        blocks.append("\n".join(f"> {escape(note)}" for note in outcome.notes))
    return "\n\n".join([*blocks, *_diffs(outcome, view, _LIMIT - sum(map(len, blocks)))]) + "\n"


def patch(text: str, names: Sequence[str]) -> str:
    """A comment that shows a patch, for where it may not be committed."""
    listed = "\n".join(f"- {code(name)}" for name in names)
    head = "## deinplace: a patch for this pull request\n\nTo apply it: download the artifact and `git apply` it."
    return f"{head}\n\n{listed}\n\n{_folded('The patch', text, _LIMIT - len(listed))}\n"


def escape(text: str, cell: bool = False) -> str:
    """`text` as Markdown shows it letter by letter, on one line; what stands between backticks becomes code."""
    parts_ = re.split("`([^`]+)`", " ".join(text.split()))
    return "".join(code(part, cell) if number % 2 else _plain(part) for number, part in enumerate(parts_))


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(r"\\\1", text)
    # a mention or a reference would notify people: hosts look for them in the text that is left once markup is read,
    # so nothing but a character between helps
    text = re.sub(r"(@|\\#)(?=\w)", r"\1&#8203;", text)
    return re.sub(r"(?i)\b(https?|ftp|mailto|www)(:|\.)", r"\1&#8203;\2", text)


def code(text: str, cell: bool = False) -> str:
    """`text` as a code span that it cannot leave; in a table's `cell`, bars are escaped."""
    flat = " ".join(text.split()) or " "
    ticks = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    flat = flat.replace("|", "\\|") if cell else flat
    return f"{ticks}{pad}{flat}{pad}{ticks}"


def _rewrites(findings: list[Finding], view: View) -> str:
    lines = ["| place | rule | rewrite | verdict |", "|---|---|---|---|"]
    for finding in findings:
        rewrite = finding.rewrite
        assert rewrite is not None
        place = code(f"{view.path(rewrite.path)}:{rewrite.line}", cell=True)
        title = escape(rewrite.title, True) + (f" ({escape(rewrite.note, True)})" if rewrite.note else "")
        state = _STATES[finding.state]
        proof = f"{state}: {escape(words.verdict(finding.verdict), True)}" if finding.verdict else state
        lines.append(f"| {place} | {finding.rule} {escape(finding.name)} | {title} | {proof} |")
    why = [_item(finding, view) for finding in findings]
    return "\n".join([*lines, "", "<details><summary>Why</summary>", "", *why, "", "</details>"])


def _item(finding: Finding, view: View) -> str:
    where = code(f"{view.path(finding.path)}:{finding.span.line}")
    lines = [f"- {where} **{finding.rule}** {escape(words.message(finding, view))}"]
    for label, place in parts.related(finding, view):
        source = view.code(place, 100)
        lines.append(f"  - {escape(label)}: {code(view.at(place))}" + (f" {code(source)}" if source else ""))
    if finding.advice:
        lines.append(f"  - help: {escape(finding.advice)}")
    return "\n".join(lines)


def _diffs(outcome: Outcome, view: View, room: int) -> list[str]:
    blocks = []
    for change in outcome.changes:
        block = _folded(f"Changes to {view.path(change.path)}", diff.unified(change, view), room)
        room -= len(block)
        blocks.append(block)
    return blocks


def _folded(title: str, text: str, room: int) -> str:
    """A diff behind a title, in a fence that it cannot close."""
    text = text.rstrip("\r\n")
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    body = f"{fence}diff\n{text}\n{fence}" if len(text) <= room else "The diff is too long to be shown here."
    return f"<details><summary>{escape(title)}</summary>\n\n{body}\n\n</details>"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
