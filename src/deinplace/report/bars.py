"""What rewrites cost, drawn for the HTML page: bars for memory before and after, and the time of a step."""

from __future__ import annotations

from deinplace.model import Memory
from deinplace.report.words import size


def memory(cost: Memory) -> str:
    """Two bars for each kind of memory that was measured, and a line for the time."""
    pairs = [("all tensors at their peak", cost.bytes_before, cost.bytes_after)]
    if cost.kept_before is not None and cost.kept_after is not None:
        pairs.append(("kept for backward", cost.kept_before, cost.kept_after))
    out = [_pair(title, before, after) for title, before, after in pairs]
    if cost.seconds_before and cost.seconds_after:
        change = _change(cost.seconds_before, cost.seconds_after)
        out.append(f'<p class="dim">time of a step under the probe: {change}</p>')
    if cost.rewrites > 1:
        out.append(f'<p class="dim">measured for {cost.rewrites} rewrites together</p>')
    return "\n".join(["<h3>Memory</h3>", *out])


def _pair(title: str, before: int, after: int) -> str:
    whole = max(before, after, 1)
    rows = "".join(_bar(word, number, whole) for word, number in (("before", before), ("after", after)))
    return f'<figure class="bars"><figcaption>{title}: {_change(before, after)}</figcaption>{rows}</figure>'


def _bar(word: str, number: int, whole: int) -> str:
    share = 100 * number / whole
    return (
        f'<div class="bar"><span>{word}</span><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{word}" width="{share:.2f}" height="8"/></svg><span>{size(number)}</span></div>'
    )


def _change(before: float, after: float) -> str:
    if not before:
        return "more" if after else "the same"
    percent = 100 * (after - before) / before
    return "the same" if abs(percent) < 0.05 else f"{percent:+.1f} %"
