"""One self-contained HTML page: no script, nothing from the network, readable in light and dark and on a phone.

Every text that comes from sources, programs or file names passes through `html.escape`; the page's own policy forbids
scripts and requests, should one ever slip through.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files

import deinplace
from deinplace.model import Finding, Outcome, Rewrite, Verdict
from deinplace.report import bars, diff, excerpt, timeline, words
from deinplace.report.view import View

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_GOOD, _BAD = ("fixed", "fixable", "confirmed"), ("rolled-back", "refuted", "error")


def render(outcome: Outcome, view: View) -> str:
    """The whole page."""
    shown = [f for f in outcome.findings if f.state != "suppressed" or view.verbose]
    summary = words.summary(outcome)
    style = files("deinplace.report").joinpath("page.css").read_text("utf-8")
    body = [_header(outcome, summary), '<main id="main">']
    if len(shown) > 1:
        body.append(_contents(shown, view))
    body += [_finding(finding, number, view) for number, finding in enumerate(shown, 1)]
    if outcome.memory and len({f.rewrite for f in shown if f.memory}) != 1:  # else it stands with its only rewrite
        body.append(f"<section>{bars.memory(outcome.memory)}</section>")
    body += [_changes(outcome, view), _problems(outcome, view), "</main>"]
    body.append(f'<footer class="dim">deinplace {escape(deinplace.__version__)}</footer>')
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>deinplace: {escape(summary)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _header(outcome: Outcome, summary: str) -> str:
    lines = ['<header><a class="skip" href="#main">Skip to the findings</a>', f"<h1>{escape(summary)}</h1>"]
    if proof := words.verdict_line(outcome):
        status = outcome.verdict.status if outcome.verdict else ""
        lines.append(f"<p>{_badge(status)} {escape(proof)}</p>")
    facts = [f"<code>deinplace {outcome.command}</code>"]
    if outcome.driver:
        ran = f", run {outcome.runs} times" if outcome.runs > 1 else ""
        facts.append(f"program: <code>{escape(outcome.driver)}</code>{ran}")
    if outcome.files:
        facts.append(f"{outcome.files} file{'' if outcome.files == 1 else 's'} read")
    lines.append(f'<p class="dim">{" · ".join(facts)}</p>')
    return "\n".join([*lines, "</header>"])


def _contents(findings: list[Finding], view: View) -> str:
    items = []
    for number, finding in enumerate(findings, 1):
        where = f"{view.path(finding.path)}:{finding.span.line}"
        link = f'<a href="#f{number}">{escape(where)}</a>'
        items.append(
            f"<li>{link} <span>{escape(finding.rule)} {escape(finding.name)}</span> {_badge(_state(finding))}</li>"
        )
    return '<nav aria-label="Findings"><ol>' + "".join(items) + "</ol></nav>"


def _finding(finding: Finding, number: int, view: View) -> str:
    where = f"{view.path(finding.path)}:{finding.span.line}"
    rule = escape(f"{finding.rule} {finding.name}")
    out = [
        f'<article id="f{number}" aria-labelledby="h{number}">',
        f'<p><span class="where">{escape(where)}</span> <span class="dim">{rule}</span> {_badge(_state(finding))}</p>',
        f'<h2 id="h{number}">{_marked(words.message(finding, view))}</h2>',
    ]
    if finding.conflict:
        out.append(timeline.svg(finding.conflict, view, f"t{number}"))
    elif finding.raised:
        out.append(f"<p>PyTorch: <code>{escape(finding.raised.message)}</code></p>")
    out += excerpt.figures(finding, view)
    out += _remedy(finding, view)
    return "\n".join([*out, "</article>"])


def _remedy(finding: Finding, view: View) -> list[str]:
    out = []
    if finding.rewrite:
        title = "Rewrite to try" if finding.reason == words.DIAGNOSED else "Rewrite"
        out += [f"<h3>{title}</h3>", *_rewrite(finding.rewrite, view)]
    if finding.advice:
        out.append(f"<p><strong>Help:</strong> {_marked(finding.advice)}</p>")
    if finding.verdict:
        out += ["<h3>Verification</h3>", _verdict(finding.verdict)]
    elif finding.reason and finding.reason != words.DIAGNOSED:
        out.append(f'<p class="dim">reason: {escape(finding.reason)}</p>')
    if finding.memory:
        out.append(bars.memory(finding.memory))
    tried = [trial for trial in finding.trials if trial.rewrite != finding.rewrite]
    if tried:
        items = "".join(
            f"<li>{_marked(t.rewrite.title)} at <code>{escape(view.path(t.rewrite.path))}:{t.rewrite.line}</code>: "
            f"{_badge(t.verdict.status)} {escape(t.verdict.reason)}</li>"
            for t in tried
        )
        out.append(f"<details><summary>{len(tried)} other rewrites were tried</summary><ul>{items}</ul></details>")
    return out


def _rewrite(rewrite: Rewrite, view: View) -> list[str]:
    out = [f"<p>{_marked(rewrite.title)} <code>{escape(view.path(rewrite.path))}:{rewrite.line}</code></p>"]
    if lines := diff.suggestion(rewrite, view):
        out.append(_diff("\n".join(lines), "Lines of the rewrite"))
    if rewrite.note:
        out.append(f"<p>{_marked(rewrite.note)}</p>")
    return out


def _verdict(verdict: Verdict) -> str:
    facts = {
        "verdict": _badge(verdict.status),
        "what was seen": escape(verdict.reason),
        "oracle": escape(verdict.oracle),
        "program": f"<code>{escape(verdict.driver)}</code>" if verdict.driver else "",
        "device": escape(verdict.device),
        "optimizer steps": str(verdict.steps or ""),
        "values compared": str(verdict.compared or ""),
        "parameters": str(verdict.parameters or ""),
        "largest absolute error": f"{verdict.max_abs_error:.3g}" if verdict.max_abs_error is not None else "",
        "largest relative error": f"{verdict.max_rel_error:.3g}" if verdict.max_rel_error is not None else "",
    }
    rows = "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in facts.items() if value)
    return f"<table>{rows}</table>"


def _changes(outcome: Outcome, view: View) -> str:
    if not outcome.changes:
        return ""
    title = "Changes that were written" if outcome.written else "Changes that fix would write"
    blocks = [_diff(diff.unified(change, view), f"Diff of {view.path(change.path)}") for change in outcome.changes]
    return "\n".join([f"<section><h2>{title}</h2>", *blocks, "</section>"])


def _diff(text: str, label: str) -> str:
    rows = []
    for line in text.splitlines():
        kind = {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")
        kind = "hunk" if line.startswith(("---", "+++")) else kind
        rows.append(f'<span class="row {kind}">{escape(line) or " "}</span>')
    return excerpt.scrolled("".join(rows), label)


def _problems(outcome: Outcome, view: View) -> str:
    items = [
        f"<li><code>{escape(view.path(p.path))}{f':{p.line}' if p.line else ''}</code> {escape(p.message)}</li>"
        for p in outcome.problems
    ]
    items += [f"<li>{_marked(note)}</li>" for note in outcome.notes]
    return f"<section><h2>Notes</h2><ul>{''.join(items)}</ul></section>" if items else ""


def _state(finding: Finding) -> str:
    return finding.reason if finding.reason == words.DIAGNOSED else finding.state


def _badge(word: str) -> str:
    kind = "good" if word in _GOOD else "bad" if word in _BAD else ""
    return f'<span class="badge {kind}">{escape(word)}</span>' if word else ""


def _marked(text: str) -> str:
    """`text` escaped, with what stands between backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a lone backtick: it is text
        return escape(text)
    return "".join(f"<code>{escape(p)}</code>" if number % 2 else escape(p) for number, p in enumerate(pieces))
