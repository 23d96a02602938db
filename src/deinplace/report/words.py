"""The sentences that reports share: what happened to a tensor, how well a rewrite is proved, what was found in all."""

from __future__ import annotations

import re
from collections import Counter

from deinplace.model import (
    Conflict,
    Event,
    Finding,
    Memory,
    ModeVerdict,
    ModuleInfo,
    Outcome,
    Raised,
    TensorInfo,
    Verdict,
)
from deinplace.report.view import View

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_AGREEMENT = {
    "confirmed": "The head computes what the base computes",
    "refuted": "The head does not compute what the base computes",
    "unconfirmed": "Whether the head computes what the base computes is not known",
}
DIAGNOSED = "diagnosed"
"""The reason code of a finding that nobody tried to mend, since only a diagnosis was asked for."""
ABOUT_COMMENTS = "suppression"
"""The reason code of a finding about a comment that silences findings."""
PROBE_DIFFERS = "probe-differs"
"""The code of the problem that a program behaves otherwise while it is watched."""


def operation(op: str) -> str:
    """`relu` for `ReluBackward0`, `add_` for `aten::add_.Tensor`; a user's autograd Function keeps its name."""
    if "::" in op:
        return op.split("::", 1)[1].split(".")[0]
    if match := re.fullmatch(r"(\w+?)Backward\d+", op):
        return _CAMEL.sub("_", match[1]).lower()
    return op.removesuffix("Backward") or op


def refusal(raised: Raised) -> str:
    """What happened where PyTorch raised an error."""
    return "PyTorch stops here" if raised.category == "second-backward" else "PyTorch refuses this write"


def message(finding: Finding, view: View) -> str:
    """The finding in one sentence."""
    return sentence(finding.conflict, view) if finding.conflict else finding.message


def sentence(conflict: Conflict, view: View) -> str:
    """Which tensor backward needs, where it was saved, and what overwrote it."""
    kept = f"{_kept(conflict)}{_where(conflict.save, view)}"
    wrote = written(conflict.write, view)
    if conflict.kind == "hidden":
        return f"backward uses {kept} after {wrote} overwrote it unseen: no error, but wrong gradients"
    if conflict.disjoint:
        return f"backward needs {kept}, but {wrote} wrote beside it, to memory that shares its version counter"
    return f"backward needs {kept}, but {wrote} overwrote it"


def written(event: Event, view: View) -> str:
    """`unet.py:25 `x += residual``, with the module or optimizer that did it."""
    if event.place is None and event.op.startswith("foreign::"):
        return "code that torch does not see"
    if event.place is None:
        return f"{operation(event.op)} inside torch"
    code = view.code(event.place)
    text = view.at(event.place) + (f" `{code}`" if code else "")
    by = module(event.module) if event.module else event.optimizer or ""
    return f"{text} ({by})" if by else text


def module(info: ModuleInfo) -> str:
    """`ReLU body.2, inplace=True`."""
    name = f" {info.name}" if info.name else ""
    return f"{info.cls}{name}" + (", inplace=True" if info.inplace else "")


def tensor(info: TensorInfo | None) -> str:
    """`float32 (2, 8, 16, 16)`, with the device where that is not the CPU."""
    if info is None:
        return ""
    shape = f"({', '.join(map(str, info.shape))}{',' if len(info.shape) == 1 else ''})"
    return f"{info.dtype.removeprefix('torch.')} {shape}" + (f" on {info.device}" if info.device != "cpu" else "")


def verdict_line(outcome: Outcome) -> str:
    """`1 rewrite, confirmed on cpu (gradients of 38 parameters, 2 steps, max |error| 0), oracle: copy-on-write`."""
    if outcome.command == "verify":
        return verdict(outcome.verdict) if outcome.verdict else ""
    done = {f.rewrite for f in outcome.findings if f.rewrite and f.state in ("fixed", "fixable")}
    if not done or outcome.verdict is None:
        return ""
    return f"{_count(len(done), 'rewrite')}, {verdict(outcome.verdict)}"


def verdict(found: Verdict) -> str:
    """How far a rewrite is proved, or why not."""
    if found.status != "confirmed":
        return f"{found.status}: {found.reason}" if found.reason else found.status
    facts = []
    if found.parameters:
        facts.append(f"gradients of {_count(found.parameters, 'parameter')}")
    elif found.reason:
        facts.append(found.reason)
    elif found.compared:
        facts.append(f"{_count(found.compared, 'value')} compared")
    if found.steps and (found.parameters or not found.reason):
        facts.append(_count(found.steps, "step"))
    if found.max_abs_error is not None:
        facts.append(f"max |error| {found.max_abs_error:.2g}")
    text = "confirmed" + (f" on {found.device}" if found.device else "")
    text += f" ({', '.join(facts)})" if facts else ""
    text += f", oracle: {found.oracle}" if found.oracle else ""
    return text + "".join(f"; {mode(each)}" for each in found.modes)


def mode(found: ModeVerdict) -> str:
    """`confirmed under checkpoint`, or why not."""
    where = found.name if found.name.startswith("on ") else f"under {found.name}"
    return f"{found.status} {where}" + (f" ({found.reason})" if found.status != "confirmed" else "")


def cost(memory: Memory) -> str:
    """`2.0 MiB more at the peak (was 24.0 MiB), 2.0 MiB more kept for backward`."""
    parts = [f"{_more(memory.bytes_before, memory.bytes_after)} at the peak (was {size(memory.bytes_before)})"]
    if memory.kept_before is not None and memory.kept_after is not None:
        parts.append(f"{_more(memory.kept_before, memory.kept_after)} kept for backward")
    if memory.seconds_before and memory.seconds_after:
        change = 100 * (memory.seconds_after / memory.seconds_before - 1)
        parts.append(f"a step takes {change:+.0f} % time under the probe")
    together = f"; {memory.rewrites} rewrites together" if memory.rewrites > 1 else ""
    return ", ".join(parts) + together


def size(number: int) -> str:
    """`1.5 MiB`."""
    value, unit = float(number), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _more(before: int, after: int) -> str:
    if before == after:
        return "no more memory"
    return f"{size(abs(after - before))} {'more' if after > before else 'less'}"


def summary(outcome: Outcome) -> str:
    """`Found 12 in-place faults (7 fixed: 6 confirmed, 1 unconfirmed; 3 unsafe: --unsafe; 2 rolled back)`."""
    if outcome.command == "verify":
        return _AGREEMENT[outcome.verdict.status if outcome.verdict else "unconfirmed"]
    shown = [f for f in outcome.findings if f.state != "suppressed" and f.severity != "note"]
    findings = [f for f in shown if f.reason != ABOUT_COMMENTS]
    comments = _comments([f for f in shown if f.reason == ABOUT_COMMENTS])
    if outcome.command == "check" and (listed := sum(f.severity == "note" for f in outcome.findings)):
        comments += f"; {_count(listed, 'write')} that break{'s' if listed == 1 else ''} nothing listed"
    if not findings and any(p.code == PROBE_DIFFERS for p in outcome.problems):
        return "Nothing can be said of in-place faults"
    if not findings:
        looked = f" in {_count(outcome.files, 'file')}" if outcome.files and outcome.command == "check" else ""
        return f"Found no in-place faults{looked}{comments}"
    if all(f.reason == DIAGNOSED for f in findings):
        return f"Found {_count(len(findings), 'in-place fault')}"
    states: Counter[str] = Counter(f.state for f in findings)
    parts = []
    for state, label in (("fixed", "fixed"), ("fixable", "fixable")):
        if states[state]:
            parts.append(f"{states[state]} {label}{_proofs([f for f in findings if f.state == state])}")
    if states["unsafe"]:
        parts.append(f"{states['unsafe']} unsafe: --unsafe")
    if states["rolled-back"]:
        parts.append(f"{states['rolled-back']} rolled back")
    if states["advised"]:
        parts.append(f"{states['advised']} advised")
    return f"Found {_count(len(findings), 'in-place fault')} ({'; '.join(parts)}){comments}"


def _comments(findings: list[Finding]) -> str:
    """What is said of comments that silence nothing, or are not well formed."""
    removed = sum(f.state == "fixed" for f in findings)
    left = len(findings) - removed
    parts = [f"removed {_count(removed, 'unused suppression')}" if removed else ""]
    parts.append(f"{_count(left, 'suppression comment')} to look at" if left else "")
    return "".join(f"; {part}" for part in parts if part)


def statistics(outcome: Outcome) -> str:
    """A line for each rule: how many findings it has, the largest count first."""
    counts = Counter((f.rule, f.name) for f in outcome.findings if f.state != "suppressed")
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    width = max((len(str(number)) for number in counts.values()), default=0)
    return "".join(f"{number:>{width}} {code} {name}\n" for (code, name), number in rows)


def _proofs(findings: list[Finding]) -> str:
    """`: 6 confirmed, 1 unconfirmed`."""
    counts = Counter(f.verdict.status for f in findings if f.verdict)
    text = ", ".join(f"{counts[s]} {s}" for s in ("confirmed", "unconfirmed", "refuted") if counts[s])
    return f": {text}" if text else ""


def _kept(conflict: Conflict) -> str:
    save = conflict.save
    name = operation(save.op or conflict.node)
    if save.module:
        name += f" in {module(save.module)}"
    return {"output": f"the output of {name}", "input": f"an input of {name}"}.get(save.role, f"what {name} saved")


def _where(event: Event, view: View) -> str:
    return f" ({view.at(event.place)})" if event.place else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
