"""Whether two programs are the same to their caller: values, gradients, arguments, aliases, exceptions."""

from __future__ import annotations

import contextlib
import functools
import re
import traceback
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


def run(code: CodeType, clone_saved: bool = False, grad: bool = True) -> Seen:
    """Run a program; with `clone_saved` backward sees every tensor as it was when it was saved."""
    saved = torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)
    names: dict[str, Any] = {"__name__": "program"}
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(), saved if clone_saved else contextlib.nullcontext():
            warnings.simplefilter("ignore")
            exec(code, names)
            with torch.set_grad_enabled(grad):
                result = names["main"]()
    except (RuntimeError, ValueError, TypeError, NameError, AttributeError, IndexError, AssertionError) as error:
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
    """Pairs of results that are one object (`is`), or lie in the same memory (`shares`)."""
    tensors = [(k, v) for k, v in flat.items() if isinstance(v, torch.Tensor)]
    pairs = [(a, b, x, y) for i, (a, x) in enumerate(tensors) for b, y in tensors[i + 1 :]]
    same = {(f"{a} is", b) for a, b, x, y in pairs if x is y}
    return frozenset(same | {(f"{a} shares", b) for a, b, x, y in pairs if _storage(x) == _storage(y)})


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


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


def _other_values(wanted: Seen, got: Seen) -> str:
    """What a caller's values are otherwise, gradients aside."""
    for key, value in wanted.values.items():
        if key.startswith((".outs", ".args")) and isinstance(value, tuple):
            other = got.values.get(key)
            if other is None or not _same((value[0], False), (other[0], False)):
                return f"{key}: {value} became {other}"
    return ""


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        x, y = a[0], b[0]
        close = (
            x.shape == y.shape and x.dtype == y.dtype and torch.allclose(x, y, rtol=1e-9, atol=1e-11, equal_nan=True)
        )
        return close and a[1] == b[1]
    return bool(a == b)


@dataclass(frozen=True)
class Judged:
    """What came of a program in one mode."""

    mode: str
    verdict: str
    detail: str
    after: str
    rules: tuple[tuple[str, str], ...] = ()
    """Rule and title of each rewrite."""


def judged(text: str, all_sites: bool) -> tuple[str, str, str]:
    """Rewrite a program without a driver; what came of it, why, and the text afterwards."""
    found = next(j for j in both_modes(text) if j.mode == ("all" if all_sites else "default"))
    return found.verdict, found.detail, found.after


def both_modes(text: str) -> list[Judged]:
    """A program rewritten as `fix` and `fix --all` do it without a driver, the faults of both looked for once."""
    from deinplace.analysis.source import Source
    from deinplace.rewrite.apply import patched
    from deinplace.verify.everywhere import settled
    from deinplace.verify.static import choices, everywhere

    source = Source.parse("/tree/program.py", text.encode())
    sources = {source.path: source}
    original = Original(text)
    try:
        taken = [c.rewrite for c in choices(sources) if c.rewrite is not None]
        now = patched(sources, taken)
        out = [_judged("default", original, now[source.path].text, taken)]
        more = [rewrite for _, rewrite, _ in everywhere(sources, taken)]
        freed = settled(patched(sources, [*taken, *more]), sources, None, None)
    except Exception as error:  # noqa: BLE001  whatever it is, it is what is looked for
        crash = "".join(traceback.format_exception(error)[-3:])
        return [Judged(mode, "crashed", crash, "") for mode in ("default", "all")]
    return [*out, _judged("all", original, freed[source.path].text, [*taken, *more])]


def _judged(mode: str, original: Original, after: str, rewrites: list[Any]) -> Judged:
    verdict, detail = original.beside(after)
    rules = tuple((r.rule, re.sub(r"`[^`]*`", "`...`", re.sub(r"\d+", "N", r.title))) for r in rewrites)
    return Judged(mode, verdict, detail or ", ".join(sorted({rule for rule, _ in rules})), after, rules)


def compared(before: str, after: str) -> tuple[str, str]:
    """What a rewrite of one text into another came to, and why."""
    return Original(before).beside(after)


class Original:
    """A program as it is, run when it is first asked for."""

    def __init__(self, text: str) -> None:
        self.text, self.code = text, compile(text, "before.py", "exec")

    @functools.cached_property
    def plain(self) -> Seen:
        """What its caller sees."""
        return run(self.code)

    @functools.cached_property
    def exact(self) -> Seen:
        """What its caller would see if nothing that backward needs was overwritten."""
        return run(self.code, clone_saved=True)

    @functools.cached_property
    def dry(self) -> Seen:
        """What its caller sees while autograd is off and refuses nothing."""
        return run(self.code, grad=False)

    def beside(self, after: str) -> tuple[str, str]:
        """What a rewrite of it came to, and why."""
        if self.text == after:
            return "left alone", ""
        plain, got = self.plain, run(compile(after, "after.py", "exec"))
        if plain.error and not plain.fault:
            return (
                ("refused for another reason", "") if got.error else ("miscompiled", f"{plain.error} became no error")
            )
        if got.error and plain.error:
            # what is refused with autograd off, too, tells nothing of what comes behind it
            expected = got.fault or (self.exact.fault and (self.dry.fault or self.dry.error == got.error))
            return ("still refused", "") if expected else ("miscompiled", f"{plain.error} became {got.error}")
        if self.exact.fault:  # refused at once: its values, with autograd off, are all that is known
            detail = "" if self.dry.error or "for step in" in self.text else _other_values(self.dry, got)
            return ("miscompiled", detail) if detail else ("refused at once, now runs", "")
        detail = difference(plain, got) if not plain.error else "fails"
        if not detail:
            return "rewritten, equal", ""
        hidden = difference(self.exact, got)
        if not hidden:
            return "rewritten, equal" if plain.error else "hidden write, now as meant", ""
        return "miscompiled", hidden if plain.error else detail
