"""Comments that silence findings: puts them beside the code, or takes out those that silence nothing.

The code itself stays as it was.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Mapping

from deinplace.analysis import suppress
from deinplace.analysis.source import Source, SourceError
from deinplace.model import FileChange, Finding, Problem

_OWN = re.compile(r"(#\s*deinplace:\s*ignore\[)([^\]]*)(\])")
_ANY = re.compile(
    r"#\s*deinplace:\s*(?P<verb>file-ignore|ignore|off|on)\b(?:\[(?P<names>[^\]]*)\])?[^#]*"
    r"|#\s*noqa:\s*(?P<codes>[A-Za-z]+\d+(?:[\s,]+[A-Za-z]+\d+)*)[^#]*",
    re.IGNORECASE,
)
_ABOUT_COMMENTS = (suppress.BAD[0], suppress.UNUSED[0])


def add(
    sources: Mapping[str, Source], findings: Iterable[Finding]
) -> tuple[tuple[FileChange, ...], tuple[Problem, ...]]:
    """Changes that silence these findings, and a problem for each that no comment can stand beside."""
    wanted: dict[str, dict[int, set[str]]] = {}
    problems: list[Problem] = []
    ends = {path: _line_ends(source) for path, source in sources.items()}
    for finding in findings:
        if finding.state == "suppressed" or finding.rule in _ABOUT_COMMENTS or finding.path not in sources:
            continue
        span = finding.span
        line = next((n for n in range(span.line, span.end_line + 1) if n in ends[finding.path]), None)
        if line is None:
            where = "no comment can stand on its lines: join them, or use file-ignore"
            problems.append(Problem(finding.path, f"{finding.rule} is not silenced: {where}", span.line, "no-comment"))
        else:
            wanted.setdefault(finding.path, {}).setdefault(line, set()).add(finding.rule)
    changes = []
    for path, lines in wanted.items():
        after = _commented(sources[path], lines, ends[path])
        if not _same_code(sources[path], after):
            problems.append(
                Problem(path, "comments would change what the file means; left as it is", code="no-comment")
            )
        else:
            changes.append(FileChange(path, sources[path].text, after))
    return tuple(changes), tuple(problems)


def provably_unused(sources: Mapping[str, Source], findings: Iterable[Finding]) -> list[Finding]:
    """The findings, less those about comments that may silence what only a run can show.

    A name is surely of no use where nothing on the comment's lines looks like its rule's, whatever the types; that of a
    rule which judges whole programs (DIP107, DIP2xx), only where no code stands on these lines.
    """
    return [f for f in findings if f.rule != suppress.UNUSED[0] or _spare(sources[f.path], f) is not None]


def remove_unused(sources: Mapping[str, Source], findings: Iterable[Finding]) -> tuple[FileChange, ...]:
    """Changes that take out what the findings about unused comments speak of; the code stays as it is."""
    changes = []
    by_path: dict[str, list[suppress.Unused]] = {}
    for finding in findings:
        if finding.rule == suppress.UNUSED[0] and finding.state != "suppressed":
            spare = _spare(sources[finding.path], finding)
            if spare is not None:
                by_path.setdefault(finding.path, []).append(spare)
    for path, spares in by_path.items():
        source, text = sources[path], sources[path].text
        cuts = [cut for spare in spares for cut in _cuts(source, spare)]
        for start, end, new in sorted(cuts, reverse=True):
            text = text[:start] + new + text[end:]
        if _same_code(source, text):
            changes.append(FileChange(path, source.text, text))
    return tuple(changes)


def _spare(source: Source, finding: Finding) -> suppress.Unused | None:
    """What of the comment that a finding speaks of is surely of no use; None where all of it may be."""
    from deinplace.rules import all_rules, sites

    comment = next(c for c in suppress.read(source)[0] if c.span == finding.span)
    near = [s for s in sites(source) if comment.first <= s.span.end_line and s.span.line <= comment.last]
    code = any(
        isinstance(node, ast.stmt) and comment.first <= (node.end_lineno or 0) and node.lineno <= comment.last
        for node in source.nodes
    )
    if not comment.rules:
        return None if near or code else suppress.Unused(comment, frozenset())
    needed = set()
    for each in all_rules():
        judges_programs = each.fallback or each.code.startswith("DIP2")
        if code if judges_programs else any(site.rule == each.code for site in near):
            needed |= {each.code.lower(), each.name}
    rules = comment.rules - needed
    return suppress.Unused(comment, frozenset(rules)) if rules else None


def _cuts(source: Source, spare: suppress.Unused) -> Iterable[tuple[int, int, str]]:
    """Start, end and new text of what has to change for a comment to lose what is of no use in it."""
    comment = spare.comment
    for span in (comment.span, comment.end):
        if span is None:
            continue
        start, end = source.bounds(span)
        left = _without(source.text[start:end], spare)
        if left:
            yield start, end, left
            continue
        before = source.text[source.line_starts[span.line - 1] : start]
        if before.strip():
            yield start - (len(before) - len(before.rstrip())), end, ""
        else:
            first = source.line_starts[span.line - 1]
            yield first, first + len(source.line(span.line)), ""


def _without(comment: str, spare: suppress.Unused) -> str:
    """A comment's text once what silences nothing is out; other comments on its line stay."""
    own = _ANY.search(comment)
    if own is None:
        return ""
    names = own["names"] or own["codes"] or ""
    kept = [name for name in re.split(r"[,\s]+", names.strip()) if name.lower() not in spare.rules]
    if not kept or not spare.rules:
        return (comment[: own.start()].rstrip() + "  " + comment[own.end() :].lstrip()).strip()
    start = own.start("names" if own["names"] else "codes")
    return comment[:start] + ", ".join(kept) + comment[start + len(names) :]


def _line_ends(source: Source) -> dict[int, tuple[int, str]]:
    """For each line that a comment may end: the column where its code ends, and the comment that it has."""
    ends: dict[int, tuple[int, str]] = {}
    comment = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text, newline=None).readline):
            if token.type == tokenize.COMMENT:
                comment = token.string
            elif token.type in (tokenize.NEWLINE, tokenize.NL):
                ends[token.start[0]] = (token.start[1], comment)
                comment = ""
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return {}
    return ends


def _commented(source: Source, lines: Mapping[int, set[str]], ends: Mapping[int, tuple[int, str]]) -> str:
    text = source.text
    for line in sorted(lines, reverse=True):
        column, comment = ends[line]
        at = source.line_starts[line - 1] + column
        rules = lines[line]
        if own := _OWN.search(comment):
            rules = rules | {name.strip() for name in own[2].split(",") if name.strip()}
            new = comment[: own.start(2)] + ", ".join(sorted(rules)) + comment[own.end(2) :]
            text = text[: at - len(comment)] + new + text[at:]
        else:
            text = f"{text[:at]}  # deinplace: ignore[{', '.join(sorted(rules))}]{text[at:]}"
    return text


def _same_code(source: Source, after: str) -> bool:
    try:
        tree = Source.parse(source.path, source.encode(after)).tree
    except (SourceError, UnicodeEncodeError):
        return False
    return ast.dump(tree) == ast.dump(source.tree)
