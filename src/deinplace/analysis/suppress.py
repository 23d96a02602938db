"""Comments that silence findings: `# deinplace: ignore[rule] reason`, `file-ignore[rule]`, `off`/`on`, `# noqa`.

Blanket forms are refused: they hide what nobody has looked at.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from deinplace.analysis.source import Source
from deinplace.model import Finding, Span

_COMMENT = re.compile(r"#\s*deinplace:\s*(file-ignore|ignore|off|on)\b(?:\[([^\]]*)\])?\s*(.*)")
_MAY = re.compile(r"deinplace:|noqa[^\n]*dip\d")
_NOQA = re.compile(r"#\s*noqa:\s*([A-Z]+\d+(?:[\s,]+[A-Z]+\d+)*)", re.IGNORECASE)
BAD, UNUSED = ("DIP900", "bad-suppression"), ("DIP901", "unused-suppression")
PAGES = {
    BAD: """A comment that silences deinplace names no rule, or one that does not exist.

It would hide what nobody has looked at, so it silences nothing. Name the rules, and say why:

    x += 1  # deinplace: ignore[DIP102] read before the write, see #12""",
    UNUSED: """A comment that silences a rule stands where nothing looks like that rule's.

`deinplace check PATH --remove-unused-ignores` takes such comments out. A name counts as unused only where nothing on
the line looks like its rule's at all, since a fault may need a run to show.""",
}
"""What is to be said of each of the two."""


@dataclass(frozen=True)
class Suppression:
    """One comment: which rules it silences, and from which line to which."""

    rules: frozenset[str]
    first: int
    last: int
    span: Span
    text: str
    end: Span | None = None
    """Where the `on` stands that ends an `off`."""

    def covers(self, finding: Finding) -> bool:
        """True where it silences a finding."""
        return self.silences(finding.rule, finding.name, finding.span)

    def silences(self, code: str, name: str, span: Span) -> bool:
        """True where it silences a rule on one of a span's lines."""
        named = not self.rules or bool({code.lower(), name.lower()} & self.rules)
        return named and self.first <= span.end_line and span.line <= self.last


@dataclass(frozen=True)
class Unused:
    """A comment that silences less than it says: the names in it that silence nothing; all of them for `off`."""

    comment: Suppression
    rules: frozenset[str]

    @property
    def whole(self) -> bool:
        """True where nothing of the comment is of use."""
        return self.rules == self.comment.rules

    @property
    def message(self) -> str:
        """What is said of it."""
        what = f"`{self.comment.text}`"
        return f"{what if self.whole else f'{_listed(self.rules)} in {what}'} silences nothing"


def apply(source: Source, findings: Iterable[Finding]) -> list[Finding]:
    """A file's findings, the silenced ones marked so, and findings about the comments themselves."""
    found = [by_settings(source, finding) for finding in findings]
    if not _may_hold_any(source):
        return found
    comments, bad = read(source)
    out: list[Finding] = []
    for finding in found:
        covering = next((c for c in comments if c.covers(finding)), None)
        if covering is not None and finding.state != "suppressed":
            finding = replace(finding, state="suppressed", reason="comment", advice=covering.text)
        out.append(finding)
    spare = [_about(source, UNUSED, u.comment.span, u.message) for u in unused(source, found)]
    return [*out, *(by_settings(source, finding) for finding in (*spare, *bad))]


def _may_hold_any(source: Source) -> bool:
    """False for most files: their comments are not looked for."""
    text = source.text.lower()
    return ("deinplace:" in text or "dip" in text) and _MAY.search(text) is not None


def by_settings(source: Source, finding: Finding) -> Finding:
    """A finding, marked as suppressed where the settings silence its rule in this file."""
    if finding.rule not in source.silent:
        return finding
    return replace(finding, state="suppressed", reason="per-file-ignores")


def unused(source: Source, findings: Iterable[Finding]) -> list[Unused]:
    """Comments, or names in them, that silence none of a file's findings."""
    comments, found, out = read(source)[0], list(findings), []
    for comment in comments:
        covered = [finding for finding in found if comment.covers(finding)]
        needed = {name.lower() for finding in covered for name in (finding.rule, finding.name)}
        spare = frozenset(comment.rules - needed)
        if spare if comment.rules else not covered:
            out.append(Unused(comment, spare))
    return out


def silenced(source: Source, code: str, name: str, span: Span) -> bool:
    """True where the settings, or a comment of the file, silence a rule on one of a span's lines."""
    if code in source.silent:
        return True
    if not _may_hold_any(source):
        return False
    return any(comment.silences(code, name, span) for comment in read(source)[0])


def read(source: Source) -> tuple[list[Suppression], list[Finding]]:
    """A file's suppressions, and findings about those that are not well formed."""
    comments: list[Suppression] = []
    bad: list[Finding] = []
    off: tuple[int, Span, str] | None = None
    for text, span, alone in _tokens(source):
        match = _COMMENT.search(text)
        if match is None:
            noqa = _NOQA.search(text)
            codes = frozenset(c.lower() for c in re.findall(r"DIP\d+", noqa[1].upper())) if noqa else frozenset()
            if codes:
                comments.append(Suppression(codes, span.line, span.line, span, text))
            continue
        verb, names = match[1], frozenset(n.strip().lower() for n in (match[2] or "").split(",") if n.strip())
        if verb == "off":
            off = off or (span.line, span, text)
        elif verb == "on":
            if off is not None:
                comments.append(Suppression(frozenset(), off[0], span.line, off[1], off[2], span))
            off = None
        elif not names:
            bad.append(_about(source, BAD, span, f"`{match[0].strip()}` names no rule: write `{verb}[rule]`"))
        elif verb == "file-ignore":
            comments.append(Suppression(names, 1, len(source.line_starts) + 1, span, text))
        else:
            line = span.line + 1 if alone else span.line
            comments.append(Suppression(names, line, line, span, text))
    if off is not None:
        comments.append(Suppression(frozenset(), off[0], len(source.line_starts) + 1, off[1], off[2]))
    return comments, bad


def _tokens(source: Source) -> Iterator[tuple[str, Span, bool]]:
    """Comments with their place, and whether they stand on a line of their own."""
    lines = io.StringIO(source.text, newline=None)
    try:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type == tokenize.COMMENT:
                (line, col), (end_line, _) = token.start, token.end
                before = token.line[:col]
                offset = len(before.encode("utf-8", "surrogatepass"))
                length = len(token.string.encode("utf-8", "surrogatepass"))
                yield token.string, Span(line, offset, end_line, offset + length), not before.strip()
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return


def _listed(rules: Iterable[str]) -> str:
    return ", ".join(rule.upper() if rule.startswith("dip") else rule for rule in sorted(rules))


def _about(source: Source, rule: tuple[str, str], span: Span, message: str) -> Finding:
    return Finding(rule[0], rule[1], source.path, span, message, "advised", "suppression", severity="warning")
