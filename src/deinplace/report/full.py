"""The default report: for each conflict both ends in a frame, what was or can be done, the diff, and the verdict."""

from __future__ import annotations

from dataclasses import replace

from deinplace.model import Conflict, Event, Finding, Outcome, Place, Raised, Trial
from deinplace.report import concise, diff, words
from deinplace.report.frame import frame, note, wrapped
from deinplace.report.view import View

_MORE = 3
"""So many later writes to the same tensor are named; the rest are counted."""


def render(outcome: Outcome, view: View) -> str:
    """The whole report."""
    blocks = []
    for finding in outcome.findings:
        if finding.state != "suppressed" or view.verbose:
            blocks.append("\n".join(_finding(finding, outcome, view)))
    blocks += [diff.painted(diff.unified(change, view), view).rstrip("\n") for change in outcome.changes]
    if outcome.problems:
        blocks.append("\n".join(concise.problem(problem, view) for problem in outcome.problems))
    if outcome.notes and not view.quiet:
        blocks.append("\n".join(line for text in outcome.notes for line in note("note", text, view, indent=0)))
    if not view.quiet:
        proof = words.verdict_line(outcome)
        if view.terminal:
            proof = "\n".join(wrapped(proof, view.width))
        lines = [view.paint(words.summary(outcome), "bold")]
        lines += [view.paint(proof, _color(outcome))] if proof else []
        lines += [f"costs: {words.cost(outcome.memory)}"] if outcome.memory and outcome.memory.rewrites > 1 else []
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _finding(finding: Finding, outcome: Outcome, view: View) -> list[str]:
    lines = _headline(finding, outcome, view)
    if finding.conflict:
        lines += _conflict(finding.conflict, view)
    elif finding.raised:
        lines += _raised(finding, finding.raised, view)
    else:
        lines += frame(Place(finding.path, finding.span), "", view)
    return lines + _outcome(finding, view)


def _headline(finding: Finding, outcome: Outcome, view: View) -> list[str]:
    """Place, rule and message: one line, which a terminal gets wrapped."""
    where, text = _head(finding, outcome, view), words.message(finding, view)
    lead = f"{view.paint(where, 'bold')}: {concise.mark(finding, view)} "
    if not view.terminal:
        return [lead + text]
    plain = len(f"{where}: {concise.mark(finding, replace(view, color=False))} ")
    first, *rest = wrapped(" " * plain + text, view.width - 4)
    return [lead + first[plain:], *(f"    {line}" for line in rest)]


def _head(finding: Finding, outcome: Outcome, view: View) -> str:
    """Where a finding is announced: a diagnosed run at the line where PyTorch raises, all else at the site."""
    if outcome.command == "run" and finding.conflict and finding.conflict.backward:
        return view.at(finding.conflict.backward[0])
    column = view.column(finding.path, finding.span.line, finding.span.col)
    return f"{view.path(finding.path)}:{finding.span.line}:{column}"


def _conflict(conflict: Conflict, view: View) -> list[str]:
    save = conflict.save
    saved = f"saved here for {conflict.node}" + (f": {words.tensor(save.tensor)}" if save.tensor else "")
    lines = _end(save, saved, view, "blue")
    backward = f" at {view.at(conflict.backward[0])}" if conflict.backward else ""
    shared = "written here, and backward refuses the whole memory" if conflict.disjoint else "overwritten here"
    lines += _end(conflict.write, f"{shared}; backward{backward} runs later", view, "red")
    more = conflict.writes[1:]
    if more:
        named = ", ".join(view.at(event.place) for event in more[:_MORE] if event.place)
        rest = f" and {len(more) - _MORE} more" if len(more) > _MORE else ""
        lines += note("note", f"overwritten again at {named}{rest}" if named else "overwritten again", view)
    if conflict.count > 1:
        lines += note("note", f"seen {conflict.count} times in this run", view)
    if conflict.disjoint:
        text = "no element that was saved was written: PyTorch counts versions for a tensor and all its views at once"
        lines += note("note", text, view)
    return lines


def _end(event: Event, label: str, view: View, style: str) -> list[str]:
    """The frame of one end of a conflict, and where its module was made."""
    if event.place is None:
        return note("note", f"{label} ({words.operation(event.op)}, inside torch)", view)
    lines = frame(event.place, label, view, style)
    if event.module:
        for word, places in (("made", event.module.constructed), ("inplace set", event.module.flagged)):
            if places:
                lines += note("note", f"{words.module(event.module)} was {word} at {_listed(places[0], view)}", view)
    return lines


def _listed(place: Place, view: View) -> str:
    code = view.code(place)
    return view.at(place) + (f" `{code}`" if code else "")


def _raised(finding: Finding, raised: Raised, view: View) -> list[str]:
    place = raised.stack[0] if raised.stack else Place(finding.path, finding.span)
    label = words.refusal(raised) + (f": {words.tensor(raised.tensor)}" if raised.tensor else "")
    lines = frame(place, label, view)
    if raised.module and raised.module.constructed:
        made = _listed(raised.module.constructed[0], view)
        lines += note("note", f"{words.module(raised.module)} was made at {made}", view)
    return lines + note("PyTorch", raised.message.splitlines()[0] if raised.message else raised.category, view)


def _outcome(finding: Finding, view: View) -> list[str]:
    """What was done about a finding, or what its reader can do."""
    lines: list[str] = []
    rewrite = finding.rewrite
    proof = f" ({words.verdict(finding.verdict)})" if finding.verdict else ""
    if rewrite and finding.state in ("fixed", "fixable"):
        status = f" ({finding.verdict.status})" if finding.verdict else ""
        lines += note(finding.state, rewrite.title + status, view)
        if finding.memory and finding.memory.rewrites == 1:
            lines += note("costs", words.cost(finding.memory), view)
    elif rewrite and finding.state == "unsafe":
        lines += note("unsafe", f"{rewrite.title}{proof}; --unsafe applies it", view)
    elif rewrite and finding.state == "advised" and finding.reason == words.DIAGNOSED:
        lines += note("try", rewrite.title, view)
    elif finding.state == "rolled-back":
        title = rewrite.title if rewrite else "every rewrite"
        lines += note("rolled back", title + proof, view)
    if rewrite and (finding.state == "unsafe" or finding.reason == words.DIAGNOSED):
        lines += [f"    {view.paint(text, 'red' if text[:1] == '-' else 'green')}" for text in _shown(finding, view)]
    if rewrite and rewrite.note:
        lines += note("note", rewrite.note, view)
    if finding.advice:
        lines += note("help", finding.advice, view)
    if finding.reason not in ("", words.DIAGNOSED) and finding.state not in ("fixed", "fixable"):
        lines += note("reason", finding.reason, view)
    if view.verbose:
        for trial in finding.trials:
            lines += note("tried", _tried(trial, view), view)
    return lines


def _shown(finding: Finding, view: View) -> list[str]:
    return diff.suggestion(finding.rewrite, view) if finding.rewrite else []


def _tried(trial: Trial, view: View) -> str:
    at = f"{view.path(trial.rewrite.path)}:{trial.rewrite.line}"
    return f"{trial.rewrite.title} at {at}: {words.verdict(trial.verdict)}"


def _color(outcome: Outcome) -> str:
    status = outcome.verdict.status if outcome.verdict else "unconfirmed"
    return {"confirmed": "green", "refuted": "red"}.get(status, "yellow")
