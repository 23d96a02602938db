"""Writes a harness: plain source with one function for each scene, which runs as a test and as a program. No torch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import slicing

DOUBTED = ("cast", "expanded", "out-grad")
"""In-place errors that a tensor of another kind or shape may not have raised: guesses that end in them come last."""
SCALAR = '''
def scalar(value):
    """A number that depends on every differentiable element of an output."""
    if isinstance(value, torch.Tensor):
        if not value.requires_grad:
            return 0.0
        value = torch.view_as_real(value) if value.is_complex() else value
        weights = torch.linspace(0.5, 1.5, value.numel()).reshape(value.shape)
        return (value * weights.to(value)).sum()
    if hasattr(value, "__dict__"):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(scalar, value), 0.0) if isinstance(value, (list, tuple)) else 0.0
'''
_STANDARD = ("functools", "math", "random", "types")


@dataclass(frozen=True)
class Scene:
    """One function of a harness: the imports it needs as (module, name) pairs, and its statements.

    `sliced` are (module, path) pairs of files that are loaded without what they do beside defining; `seconds` is what
    a run takes, `fault` the in-place error that ends it, `lines` are those it reaches of the ones that were asked for.
    """

    name: str
    imports: tuple[tuple[str, str], ...]
    body: tuple[str, ...]
    sliced: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    fault: str = ""
    lines: tuple[int, ...] = ()

    def plain(self) -> dict[str, object]:
        """As data for JSON."""
        return asdict(self)


def scene(data: Mapping[str, Any]) -> Scene:
    """A scene from `plain`'s data."""
    imports, sliced = (tuple((a, b) for a, b in data[key]) for key in ("imports", "sliced"))
    return Scene(
        data["name"], imports, tuple(data["body"]), sliced, data["seconds"], data["fault"], tuple(data["lines"])
    )


def compose(scenes: Sequence[Scene], title: str = "") -> str:
    """The whole module; names of scenes that are alike are numbered."""
    named = _numbered(scenes)
    bodies = "\n".join(line for s in named for line in s.body)
    parts = [f'"""{title or "Exercises code of this project."}"""\n']
    parts.append(_imports(named, bodies))
    if any(s.sliced for s in named):
        parts += [
            f"\n{inspect.getsource(thing)}" for thing in (slicing.keeps, slicing.Definitions, slicing.definitions)
        ]
        parts.append(_sliced(named))
    if "scalar(" in bodies:
        parts.append(SCALAR)
    for s in named:
        parts.append(f"\ndef {s.name}():\n" + "".join(f"    {line}\n" for line in s.body))
    calls = "".join(f"    {s.name}()\n" for s in named)
    parts.append(f'\nif __name__ == "__main__":\n{calls}')
    return "\n".join(parts)


def _numbered(scenes: Sequence[Scene]) -> list[Scene]:
    seen: dict[str, int] = {}
    out = []
    for s in scenes:
        seen[s.name] = seen.get(s.name, 0) + 1
        count = seen[s.name]
        out.append(s if count == 1 else replace(s, name=f"{s.name}_{count}"))
    return out


def _imports(scenes: Iterable[Scene], bodies: str) -> str:
    """Import statements in the usual order: standard library, torch, the project."""
    scenes = list(scenes)
    sliced = {module for s in scenes for module, _ in s.sliced}
    modules: dict[str, set[str]] = {}
    for s in scenes:
        for module, name in s.imports:
            if module not in sliced:
                modules.setdefault(module, set()).add(name)
    standard: list[str] = []
    own: list[str] = []
    if sliced:
        standard += ["import ast", "import importlib.machinery", "import importlib.util", "import os", "import sys"]
        standard.append("from typing import Any")
    for module, names in sorted(modules.items()):
        if not module:
            for name in sorted(names):
                (standard if name in _STANDARD else own).append(f"import {name}")
            continue
        (standard if module in _STANDARD else own).append(f"from {module} import {', '.join(sorted(names))}")
    torch = ["import torch", *(["from torch import nn"] if re.search(r"\bnn\.", bodies) else [])]
    blocks = [standard, torch, own]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _sliced(scenes: Iterable[Scene]) -> str:
    """Statements that load files in slices and bind the names that scenes use."""
    lines: dict[str, None] = {}
    for s in scenes:
        for module, path in s.sliced:
            variable = "_" + re.sub(r"\W", "_", module)
            lines[f"{variable} = definitions({module!r}, {path!r})"] = None
            lines.update({f"{name} = {variable}.{name}": None for m, name in s.imports if m == module})
    return "\n" + "\n".join(lines) + "\n"
