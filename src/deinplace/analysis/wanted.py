"""Which functions of a project get an abstract run of their own."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from deinplace.analysis import prefilter
from deinplace.analysis.index import ClassInfo, FunctionInfo, Index, ModuleInfo
from deinplace.analysis.report import Unit
from deinplace.analysis.scan import Scan, scan
from deinplace.analysis.scout import Looker, suspicious
from deinplace.analysis.triage import Triage
from deinplace.analysis.units import FUNCTION_STEPS

BRIEF = 1_000
"""So many steps a function may take that even a quick look found too large, in a large project: it finds nothing more
with more of them."""
_COMMON = frozenset({*dir(object), *dir(dict), *dir(list), *dir(set), "__call__"})
"""Names that everything has: that one is called says nothing about who answers."""


@dataclass(frozen=True)
class _Candidate:
    """A function that looks as if it wrote something, and what a walk over it collected."""

    module: ModuleInfo
    info: FunctionInfo
    found: Scan


def worth_a_look(index: Index) -> set[Unit]:
    """In a large project what is worth running; else everything, where anything is written at all.

    A caller that holds nothing that looks like a write, and hands what was saved to a helper that writes it, is missed
    in a large project.
    """
    if index.large:
        return worth_running(index)
    if not any(prefilter.may_hold_site(module.source.data) for module in index.modules.values()):
        return set()
    functions = ((path, i.qualname) for path, module in index.modules.items() for i in module.functions.values())
    return {(path, "<module>") for path in index.modules} | {unit for unit in functions if "<locals>" not in unit[1]}


def worth_running(index: Index) -> set[Unit]:
    """Functions whose writes may break backward, callers that hand them something, and top levels with such a write."""
    wanted: set[Unit] = set()
    others: list[_Candidate] = []
    writers: set[str] = set()
    for path, module in index.modules.items():
        if not prefilter.may_hold_site(module.source.data):
            continue
        lines = _places(module)
        if _at_top(module, lines):
            wanted.add((path, "<module>"))
        triage = Triage(module.imports, module.source.text)
        for candidate in _candidates(module, lines):
            info, found = candidate.info, candidate.found
            if _writes(triage, candidate):
                wanted.add((path, info.qualname))
                writers.add(_called(info))
            elif any(prefilter.writes(site) for site in found.sites):
                others.append(candidate)
            if info.name == "__init__" and info.owner is not None and triage.flags(found):
                wanted.add((path, f"{info.owner.qualname}.forward"))
                writers.add(info.owner.name)
            elif triage.flags(found):
                wanted.add((path, info.qualname))  # it may call at once what it builds
    writers -= _COMMON
    wanted.update((c.module.path, c.info.qualname) for c in others if _hands_over(c, writers))
    return wanted


def suspects(index: Index, wanted: set[Unit]) -> dict[Unit, int]:
    """The units of which a quick look cannot tell that the machine would find nothing, and the steps each may take.

    Of a function that only calls what may be at fault by itself, the machine would find the same faults again. That is
    of use where what it hands on makes a fault sure, but in a large project it takes most of the time.
    """
    looker = Looker(index)
    found: dict[Unit, tuple[ast.AST, set[ast.AST] | None]] = {}
    kept = set(wanted)
    for path, name in sorted(wanted):
        info = index.modules[path].named.get(name)
        if info is None:
            continue
        where = suspicious(looker, info)
        if where is None or where:
            found[path, name] = info.node, where
        else:
            kept.discard((path, name))
    steps = dict.fromkeys(sorted(kept), FUNCTION_STEPS)
    if index.large:
        alone = {node for node, where in found.values() if where is not None and node in where}
        for unit, (node, where) in found.items():
            if where is None:
                steps[unit] = BRIEF
            elif node not in where and where <= alone:
                del steps[unit]
    return steps


def _writes(triage: Triage, candidate: _Candidate) -> bool:
    info = candidate.info
    return triage.writes(info.node, candidate.found, _Attributes(info.owner))


def _places(module: ModuleInfo) -> list[int]:
    """The lines on which something looks like a write, in order."""
    text = module.source.text
    found: list[int] = []
    line, seen = 1, 0
    for at in prefilter.places(text):
        line += text.count("\n", seen, at)
        seen = at
        found.append(line)
    return found


def _at_top(module: ModuleInfo, lines: list[int]) -> bool:
    """True where one of these lines is a part of no function."""
    left = set(lines)
    for node in module.functions:
        first, last = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
        left.difference_update(lines[bisect_left(lines, first) : bisect_right(lines, last)])
    return bool(left)


def _candidates(module: ModuleInfo, lines: list[int]) -> list[_Candidate]:
    """Functions on such a line; nested ones run as a part of the outer one."""
    out: list[_Candidate] = []
    for info in module.functions.values():
        if "<locals>" in info.qualname:
            continue
        first, last = info.node.lineno, info.node.end_lineno or info.node.lineno
        at = bisect_left(lines, first)
        if at < len(lines) and lines[at] <= last:
            out.append(_Candidate(module, info, scan(info.node)))
    return out


def _called(info: FunctionInfo) -> str:
    """The name under which a function is called: its class's where it is a module's forward."""
    return info.owner.name if info.owner is not None and info.name in ("forward", "__call__") else info.name


def _hands_over(candidate: _Candidate, writers: set[str]) -> bool:
    """True where a function calls one that writes, or runs a module that its class built."""
    if candidate.found.called & writers:
        return True
    owner = candidate.info.owner
    if owner is None or candidate.info.name != "forward":
        return False
    init = owner.methods.get("__init__")
    return init is not None and bool(scan(init.node).called & writers)


class _Attributes(dict[str, list[ast.expr]]):
    """What a class binds to each attribute of `self`, collected when first asked for."""

    def __init__(self, owner: ClassInfo | None) -> None:
        super().__init__()
        self.owner = owner
        self._read = owner is None

    def get(self, key: str, default: object = None) -> list[ast.expr] | None:  # type: ignore[override]
        """Values of one attribute."""
        if not self._read and self.owner is not None:
            self._read = True
            for method in self.owner.methods.values():
                self._collect(method.node.body)
        return super().get(key)

    def _collect(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
                self._bind(node.target, node.value)
            else:
                for name in ("body", "orelse", "finalbody"):
                    self._collect(getattr(node, name, None) or [])
                for handler in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
                    self._collect(handler.body)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Attribute):
            if isinstance(target.value, ast.Name) and target.value.id == "self":
                self.setdefault(target.attr, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._bind(part, ast.Name("unknown", ast.Load()))
