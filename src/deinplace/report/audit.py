"""Reports of an audit: a table for people, the same in Markdown, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import deinplace
from deinplace.report import markdown, words
from deinplace.report.view import View
from deinplace.verify.audit import Audit, Row, Standing

SCHEMA_VERSION = 1
HEADS: tuple[tuple[Standing, str, str], ...] = (
    ("needed", "Needed out of place: backward needs what these write", "`deinplace fix` rewrites them"),
    ("safe", "Safe in place, and what each execution saves", "leave them as they are"),
    (
        "possible",
        "Could be in place, and what that would save",
        "advice: nothing saved, no other reader, in this run",
    ),
)


def render(kind: str, audit: Audit, view: View) -> str:
    """The report in one of the formats of `FORMATS`."""
    return FORMATS[kind](audit, view)


def _full(audit: Audit, view: View) -> str:
    blocks = []
    for standing, title, hint in HEADS:
        rows = audit.of(standing)
        if rows:
            cells = [_cells(row, view) for row in rows]
            widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]) - 1)]
            lines = ["  ".join([c.ljust(w) for c, w in zip(row, widths, strict=False)] + [row[-1]]) for row in cells]
            blocks.append(
                "\n".join([view.paint(f"{title} ({hint})", "bold"), *(f"  {line.rstrip()}" for line in lines)])
            )
    if audit.notes and not view.quiet:
        blocks.append("\n".join(f"note: {text}" for text in audit.notes))
    if not view.quiet:
        blocks.append(view.paint(_summary(audit), "bold"))
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _cells(row: Row, view: View) -> list[str]:
    """Place, operation, bytes, count, and why."""
    size = words.size(row.bytes) if row.standing != "needed" else ""
    why = "" if row.standing == "possible" else row.why
    return [view.at(row.place), _operation(row, view), size, f"{row.count}x", why or view.code(row.place)]


def _operation(row: Row, view: View) -> str:
    """`add_`, or `relu (ReLU body.2)` where a layer does it."""
    name = f"{row.operation} -> {row.operation}_" if row.standing == "possible" else row.operation
    if row.module is None:
        return name
    made = row.module.constructed[:1]
    at = f", made at {view.at(made[0])}" if made else ""
    return f"{name} ({row.module.cls}{f' {row.module.name}' if row.module.name else ''}{at})"


def _summary(audit: Audit) -> str:
    counts = {standing: len(audit.of(standing)) for standing, _, _ in HEADS}
    texts: dict[Standing, str] = {
        "needed": "needed out of place",
        "safe": "safe in place",
        "possible": "could be in place",
    }
    return ", ".join(f"{counts[standing]} {text}" for standing, text in texts.items())


def _markdown(audit: Audit, view: View) -> str:
    blocks = [f"## deinplace audit: {_summary(audit)}"]
    for standing, title, hint in HEADS:
        rows = audit.of(standing)
        if rows:
            lines = [
                f"### {title}",
                "",
                hint,
                "",
                "| place | operation | bytes | times | why |",
                "|---|---|---:|---:|---|",
            ]
            lines += [_line(_cells(row, view)) for row in rows]
            blocks.append("\n".join(lines))
    blocks += [f"> {markdown.escape(text)}" for text in audit.notes]
    return "\n\n".join(blocks) + "\n"


def _line(cells: list[str]) -> str:
    place, *rest = cells
    return "| " + " | ".join([markdown.code(place, cell=True), *(markdown.escape(c, cell=True) for c in rest)]) + " |"


def _json(audit: Audit, view: View) -> str:
    document = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "deinplace", "version": deinplace.__version__},
        "command": "audit",
        "driver": audit.driver,
        "runs": audit.runs,
        "summary": _summary(audit),
        "sites": list(_sites(audit, view)),
        "notes": list(audit.notes),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _sites(audit: Audit, view: View) -> Iterator[dict[str, object]]:
    for standing, _, _ in HEADS:
        for row in audit.of(standing):
            made = row.module.constructed[:1] if row.module is not None else ()
            yield {
                "standing": standing,
                "path": view.path(row.place.path),
                "line": row.place.span.line,
                "column": view.column(row.place.path, row.place.span.line, row.place.span.col),
                "function": row.place.function,
                "operation": row.operation,
                "bytes": row.bytes,
                "count": row.count,
                "why": row.why,
                "module": row.module.cls if row.module is not None else None,
                "made": {"path": view.path(made[0].path), "line": made[0].span.line} if made else None,
            }


FORMATS: dict[str, Callable[[Audit, View], str]] = {"full": _full, "markdown": _markdown, "json": _json}
