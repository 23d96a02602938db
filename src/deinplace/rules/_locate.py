"""From the span an event carries to the node it means; spans are matched leniently."""

from __future__ import annotations

import ast

from deinplace.analysis.source import Source, span_of
from deinplace.model import Event, Place, Raised, Site, Span
from deinplace.rules.base import Incident, Project

Key = tuple[int, int]


def write_stack(incident: Incident) -> tuple[Place, ...]:
    """User frames, innermost first, of the write that an incident is about; none for an optimizer's step."""
    if incident.conflict is not None:
        event = incident.conflict.write
        return () if event.optimizer else event.stack
    return incident.raised.stack if incident.raised is not None else ()


def write_event(incident: Incident) -> Event | Raised | None:
    """The write, or the error it raised at once."""
    return incident.conflict.write if incident.conflict is not None else incident.raised


def writer(incident: Incident, project: Project) -> tuple[Source, Place] | None:
    """The innermost frame of the write, where its file may be edited."""
    stack = write_stack(incident)
    if not stack or not project.editable(stack[0].path):
        return None
    return project.sources[stack[0].path], stack[0]


def first_editable(stack: tuple[Place, ...], project: Project) -> tuple[Source, Place] | None:
    """The innermost frame whose file may be edited."""
    for place in stack:
        if project.editable(place.path):
            return project.sources[place.path], place
    return None


def ends(span: Span) -> tuple[Key, Key]:
    return (span.line, span.col), (span.end_line, span.end_col)


def covering(source: Source, span: Span, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> ast.AST | None:
    """The node of `kinds` that a span means: the same span, else the same end, else the smallest around it, else
    the largest inside it."""
    start, end = ends(span)
    around: list[tuple[int, ast.AST]] = []
    inside: list[tuple[int, ast.AST]] = []
    for node in source.nodes:
        if not isinstance(node, kinds) or not hasattr(node, "lineno"):
            continue
        low, high = ends(span_of(node))
        if (low, high) == (start, end):
            return node
        length = source.bounds(node)[1] - source.bounds(node)[0] if low <= end and start <= high else 0
        if low <= start and end <= high:
            around.append((length - (1 << 30) * (end == high), node))
        elif start <= low and high <= end:
            inside.append((-length, node))
    ranked = around or inside
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def statement_at(source: Source, span: Span) -> ast.stmt | None:
    """The innermost statement around a span."""
    node = covering(source, span, ast.stmt)
    return node if isinstance(node, ast.stmt) else None


def site(rule: str, source: Source, node: ast.AST, target: str, method: str) -> Site:
    """A site's record."""
    statement = source.statement(node)
    return Site(rule, source.path, span_of(node), span_of(statement), target, source.qualname(node), method)


def node_of(site: Site, source: Source, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> ast.AST | None:
    """The node of `kinds` that a site was made from."""
    return next((n for n in source.by_span.get(site.span, []) if isinstance(n, kinds)), None)
