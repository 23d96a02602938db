"""Every operation of torch that has an in-place form: is the program that the rules rewrite equal to the original?

Each operation stands in a small program, once for each form in which it writes. The rules rewrite the program, and
both are run on every sample: those of torch's own op_db in each dtype that it supports, and calls made up from schemas.
Values and gradients (of everything that requires one) have to be equal. Exits 1 where one differs.

    python benchmarks/every_operation.py [--quick] [--only NAME ...] [--show REASON]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

import torch
from operations import DTYPES, Operation, Sample, calls, operations, program, samples, written_schemas

from deinplace.analysis.source import Source
from deinplace.rewrite.apply import CheckError, apply, check
from deinplace.rules import sites, static_candidates
from deinplace.rules.base import Project

PATH = "/tree/program.py"
QUICK = (torch.float64, torch.int64)


@dataclass(frozen=True)
class Rewritten:
    """A program's rewrites: what each does and its code; where there is none, `reason` says why."""

    plain: CodeType
    codes: tuple[tuple[str, CodeType], ...]
    reason: str = ""


@dataclass(frozen=True)
class Seen:
    """What a call came to: its results and gradients, or what it raised."""

    error: str = ""
    results: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()
    backward_error: str = ""


@dataclass
class Row:
    """What became of one form."""

    operations: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


@cache
def rewritten(text: str) -> Rewritten:
    """What the rules make of a program: the first rewrite that they call safe, and the first that clones.

    Those after the first are for programs in which others see the tensor: a run, or the analysis, has to choose.
    """
    source = Source.parse(PATH, text.encode())
    project = Project({PATH: source})
    plain = compile(text, PATH, "exec")
    found = sites(source)
    if not found:
        return Rewritten(plain, (), "no site")
    offers = [rewrite for site in found for _, rewrite in static_candidates(site, project)]
    safe = [rewrite for rewrite in offers if rewrite.applicability == "safe"]
    if not safe:
        return Rewritten(plain, (), "no safe rewrite" if offers else "no rewrite")
    codes: dict[str, str] = {}
    cloning = [rewrite for rewrite in safe if "clone" in rewrite.title]
    for rewrite in [*safe[:1], *cloning[:1]]:
        after = apply(source, rewrite.edits)
        try:
            check(source, after, rewrite.edits)
        except CheckError as error:
            return Rewritten(plain, (), f"checked and refused: {error}: {after}")
        codes.setdefault(after, rewrite.title)
    return Rewritten(plain, tuple((title, compile(after, PATH, "exec")) for after, title in codes.items()))


def run(code: CodeType, sample: Sample, given: dict[str, Any], out: Any = None) -> Seen:
    """Make one call with fresh tensors, then backward; the same random numbers every time."""
    leaves: list[torch.Tensor] = []
    marked = calls._marked((sample.args[0], given)) or sample.origin.startswith("aten::")
    whole = marked and not sample.origin.startswith("op_db")
    x = _fresh(sample.args[0], leaves if out is None and marked else None, whole)
    more = {name: _fresh(value, leaves if out is None and marked else None, whole) for name, value in given.items()}
    if out is not None:
        more["out"] = out.clone()
    names: dict[str, Any] = {}
    exec(code, names)
    calls.seed()
    try:
        result = names["program"](x, **more)
    except calls.REFUSALS as error:
        return Seen(f"{type(error).__name__}: {error}")
    results = result if isinstance(result, tuple) else (result,)
    return Seen("", tuple(_kept(r) for r in results), *_backward(results, leaves))


def _backward(results: tuple[Any, ...], leaves: list[torch.Tensor]) -> tuple[tuple[Any, ...], str]:
    roots = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad and calls.differentiable(r)]
    if not roots:
        return (), ""
    calls.seed(1)
    seeds = [torch.randn(r.shape, dtype=torch.complex128 if r.is_complex() else torch.float64).to(r) for r in roots]
    try:
        torch.autograd.backward(roots, seeds)
    except calls.REFUSALS as error:
        return (), f"{type(error).__name__}: {error}"
    return tuple(leaf.grad for leaf in leaves), ""


def _kept(value: Any) -> Any:
    return (value.detach().clone(), value.requires_grad) if isinstance(value, torch.Tensor) else value


def _fresh(value: Any, leaves: list[torch.Tensor] | None, whole: bool) -> Any:
    """A copy that shares no memory; where gradients are asked for, made from leaves that are noted."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone()
        if leaves is None or not calls.differentiable(value) or not (whole or value.requires_grad):
            return copy
        leaves.append(copy.requires_grad_())
        return copy.clone()
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_fresh(v, leaves, whole) for v in value)
    if isinstance(value, dict):
        return {key: _fresh(v, leaves, whole) for key, v in value.items()}
    return value


def difference(wanted: Seen, got: Seen) -> str:
    """What the rewritten program does otherwise; empty where nothing is."""
    if got.error or (got.backward_error and not wanted.backward_error):
        return f"raises {got.error or got.backward_error}"
    for (a, b), what in [
        *((pair, "value") for pair in zip(wanted.results, got.results, strict=True)),
        *((pair, "gradient") for pair in zip(wanted.gradients, got.gradients, strict=False)),
    ]:
        if not _same(a, b):
            return f"{what} {a} became {b}"
    return ""


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) == 2:
        return bool(a[1] == b[1]) and _same(a[0], b[0])
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return a is b or bool(a == b)
    if (a.shape, a.dtype, a.layout) != (b.shape, b.dtype, b.layout):
        return False
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if torch.equal(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return False
    close = 8 * torch.finfo(a.dtype).eps
    return torch.allclose(a, b, rtol=close, atol=close, equal_nan=True)


def judged(operation: Operation, sample: Sample) -> Iterator[tuple[str, str]]:
    """What each rewrite of one call came to, and what there is to say of it."""
    text, given = program(operation, sample)
    after = rewritten(text)
    out = _out(operation, sample) if operation.out is not None else None
    if operation.out is not None and out is None:
        yield "original raises", ""
        return
    wanted = run(after.plain, sample, given, out)
    if wanted.error:
        yield "original raises", ""
    elif not after.codes:
        yield "declined", after.reason
    else:
        for title, code in after.codes:
            got = run(code, sample, given, out)
            detail = difference(wanted, got)
            if not detail:
                yield ("equal, by clone" if "clone" in title else "equal, by twin"), ""
            elif why := _incomparable(operation, sample, after, wanted, got):
                yield "not comparable", why
            else:
                yield "different", f"{title}: {detail}"


def _incomparable(operation: Operation, sample: Sample, after: Rewritten, wanted: Seen, got: Seen) -> str:
    """Why a difference is none of the rewrite's; empty where it is."""
    _, given = program(operation, sample)
    if operation.out is not None:
        if not _same(wanted.results[0][0], _result(operation, sample)):
            return "torch leaves out= as it was and returns the result"
    elif difference(wanted, run(after.plain, sample, given)):
        return "the original differs from itself: memory that nobody wrote"
    if "does not support automatic differentiation" in got.error:
        return "torch refuses the twin where it takes the operation in place"
    # No program shows which kinds come together; the rules' pages say so, and a run refutes such a rewrite.
    tensors = [t for t in sample.args if isinstance(t, torch.Tensor)]
    kinds = [[_kind(v[0]) for v in seen.results if isinstance(v, tuple)] for seen in (wanted, got)]
    if len({_kind(t) for t in tensors}) > 1 and not got.error and kinds[0] != kinds[1]:
        return "an argument of another dtype or layout decides those of the twin's result"
    return ""


def _kind(value: torch.Tensor) -> tuple[torch.dtype, torch.layout]:
    return value.dtype, value.layout


def _result(operation: Operation, sample: Sample) -> Any:
    """What an operation with `out=` returns where it gets none."""
    assert operation.out is not None
    calls.seed()
    return operation.out(*_fresh(sample.args, None, False), **_fresh(sample.kwargs, None, False))


def _out(operation: Operation, sample: Sample) -> torch.Tensor | None:
    """A tensor full of ones that the result fits into; None where the call fails or gives no single tensor."""
    try:
        result = _result(operation, sample)
        return torch.ones_like(result) if isinstance(result, torch.Tensor) else None
    except calls.REFUSALS:
        return None


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two dtypes, few samples")
    parser.add_argument("--only", nargs="*", help="operations by torch's name, such as add_")
    parser.add_argument("--show", help="list the operations declined for this reason")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dtypes, most = (QUICK, 1) if options.quick else (DTYPES, None)
    rows: dict[str, Row] = defaultdict(Row)
    declined: dict[str, set[str]] = defaultdict(set)
    different: dict[str, list[str]] = defaultdict(list)
    ran: set[str] = set()
    for operation in operations():
        if options.only and operation.name not in options.only:
            continue
        row = rows[operation.form]
        for sample in samples(operation, dtypes, most):
            found = list(judged(operation, sample))
            row.counts["samples"] += 1
            for kind, detail in found:
                row.counts[kind] += 1
                if kind != "original raises":
                    row.operations.add(operation.name)
                    ran.add(sample.origin)
                if kind in ("declined", "not comparable"):
                    declined[f"{kind}, {operation.form}: {detail}"].add(operation.name)
                if kind == "different":
                    different[f"{operation.form} {operation.name}"].append(f"{sample.origin}: {detail}")
    _print(rows, declined, different, ran, options.show)
    return 1 if different else 0


def _print(
    rows: dict[str, Row],
    declined: dict[str, set[str]],
    different: dict[str, list[str]],
    ran: set[str],
    show: str | None,
) -> None:
    columns = (
        "samples",
        "original raises",
        "declined",
        "equal, by twin",
        "equal, by clone",
        "not comparable",
        "different",
    )
    print(f"torch {torch.__version__}")
    print(f"{'form':24}{'operations':>12}" + "".join(f"{c:>16}" for c in columns))
    for form, row in sorted(rows.items()):
        print(f"{form:24}{len(row.operations):12}" + "".join(f"{row.counts[c]:16}" for c in columns))
    print("\ndeclined, or not comparable")
    for reason, names in sorted(declined.items()):
        shown = ", ".join(sorted(names)) if show is None or show in reason else ""
        print(f"  {reason}: {len(names)} operations {shown}")
    whole = written_schemas()
    overloads = {o for found in whole.values() for o in found}
    public = {o for name, found in whole.items() if hasattr(torch.Tensor, name) and name[0] != "_" for o in found}
    print(f"\nschemas that write their first argument and have a twin: {len(overloads)}, ")
    print(f"  of a public name {len(public)}, of those with a call that ran {len(public & ran)}")
    for name, lines in sorted(different.items()):
        print(f"\nDIFFERENT {name} ({len(lines)})\n  {lines[0][:600]}")


if __name__ == "__main__":
    sys.exit(main())
