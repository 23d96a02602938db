"""Puts `# deinplace: ignore[RULE]` beside findings, so that a repository can start clean; the code stays as it was."""

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
