"""Whether two programs are the same to their caller: values, gradients, arguments, aliases, exceptions."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

FAULTS = (
    "modified by an inplace operation", "leaf Variable that requires grad", "is a view and is being modified inplace",
    "single memory location", "a view of a leaf", "backward through the graph a second time",
    "Can't detach views in-place", "is a view and its base or another view",
    "support automatic differentiation", "derivative for set_ is not implemented",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What the caller of `main()` saw, or the exception that it got."""

    error: str
    values: dict[str, Any]
    aliases: frozenset[tuple[str, str]]

    @property
    def fault(self) -> bool:
        """True where autograd refused."""
        return any(text in self.error for text in FAULTS)


def run(code: CodeType, clone_saved: bool = False) -> Seen:
    """Run a program; with `clone_saved` backward sees every tensor as it was when it was saved."""
    saved = torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)
    names: dict[str, Any] = {"__name__": "program"}
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(), saved if clone_saved else contextlib.nullcontext():
            warnings.simplefilter("ignore")
            exec(code, names)
            result = names["main"]()
    except (RuntimeError, ValueError, TypeError, NameError, AttributeError, IndexError) as error:
        return Seen(f"{type(error).__name__}: {error}", {}, frozenset())
    finally:
        torch.set_default_dtype(torch.float32)
    flat = dict(_flat(result, ""))
    return Seen("", {k: _frozen(v) for k, v in flat.items()}, _aliases(flat))


def _flat(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def _frozen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone(), value.requires_grad
    return value


def _aliases(flat: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """Pairs of results that are one object."""
    tensors = [(k, v) for k, v in flat.items() if isinstance(v, torch.Tensor)]
    return frozenset((a, b) for i, (a, x) in enumerate(tensors) for b, y in tensors[i + 1 :] if x is y)


def difference(wanted: Seen, got: Seen) -> str:
    """What the caller sees otherwise; empty where nothing is."""
    if wanted.error or got.error:
        return (
            ""
            if wanted.error == got.error
            else f"{wanted.error or 'no error'!s:.90} became {got.error or 'no error'!s:.90}"
        )
    if wanted.values.keys() != got.values.keys():
        return "other results"
    for key, value in wanted.values.items():
        if not _same(value, got.values[key]):
            return f"{key}: {value} became {got.values[key]}"
    return "" if wanted.aliases == got.aliases else f"objects: {sorted(wanted.aliases)} became {sorted(got.aliases)}"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        x, y = a[0], b[0]
        close = (
            x.shape == y.shape and x.dtype == y.dtype and torch.allclose(x, y, rtol=1e-9, atol=1e-11, equal_nan=True)
        )
        return close and a[1] == b[1]
    return bool(a == b)


def judged(text: str, all_sites: bool) -> tuple[str, str, str]:
    """Rewrite a program without a driver; what came of it, why, and the text afterwards."""
    from deinplace.analysis.source import Source
    from deinplace.rewrite.apply import apply
    from deinplace.verify.static import plan

    source = Source.parse("/tree/program.py", text.encode())
    try:
        planned = plan({source.path: source}, all_sites=all_sites)
    except Exception as error:  # noqa: BLE001  whatever it is, it is what is looked for
        return "crashed", repr(error), ""
    if not planned:
        return "left alone", "", text
    after = apply(source, [edit for _, rewrite, _ in planned for edit in rewrite.edits])
    verdict, detail = compared(text, after)
    rules = ", ".join(sorted({rewrite.rule for _, rewrite, _ in planned}))
    return verdict, detail or rules, after


def compared(before: str, after: str) -> tuple[str, str]:
    """What a rewrite of one text into another came to, and why."""
    if before == after:
        return "left alone", ""
    code = compile(before, "before.py", "exec")
    plain, got = run(code), run(compile(after, "after.py", "exec"))
    if plain.error and not plain.fault:
        return ("refused for another reason", "") if got.error else ("miscompiled", f"{plain.error} became no error")
    if got.error and plain.error:
        return ("still refused", "") if got.fault else ("miscompiled", f"{plain.error} became {got.error}")
    exact = run(code, clone_saved=True)
    if exact.fault:  # refused at once: no run says what it meant
        return "refused at once, now runs", ""
    detail = difference(plain, got) if not plain.error else "fails"
    if not detail:
        return "rewritten, equal", ""
    hidden = difference(exact, got)
    if not hidden:
        return "rewritten, equal" if plain.error else "hidden write, now as meant", ""
    return "miscompiled", hidden if plain.error else detail
