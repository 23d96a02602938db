"""The third rung: examples in docstrings and READMEs that use the classes and functions in question."""

from __future__ import annotations

import ast
import builtins
import doctest
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from deinplace.analysis.source import Source
from deinplace.verify.harness.copies import root_of
from deinplace.verify.harness.imports import module_of
from deinplace.verify.harness.model import Harness, Target

MOST = 20
_FENCE = re.compile(
    r"^ {0,3}```+ *(?:python|py|pycon)\b[^\n]*\n(.*?)^ {0,3}```", re.MULTILINE | re.DOTALL | re.IGNORECASE
)
_USUAL = {
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "np": "import numpy as np",
    "numpy": "import numpy",
    "math": "import math",
}
_MADE = ("randn", "rand", "ones", "zeros", "full", "randn_like", "rand_like", "ones_like", "zeros_like")
_ASKS = ("size", "dim", "item", "numel", "tolist")
_PRINTS = ("print", "list", "tuple", "len")
_HELPER = '''

def backward(*values):
    """Runs backward from every tensor in `values` that requires grad, weighted so that no gradient cancels."""
    found, todo = [], list(values)
    while todo:
        value = todo.pop(0)
        if isinstance(value, torch.Tensor):
            if value.requires_grad and value.grad_fn is not None and all(value is not other for other in found):
                found.append(value)
        elif isinstance(value, (list, tuple)):
            todo.extend(value)
        elif isinstance(value, dict):
            todo.extend(value.values())
    if found:
        sum((value * torch.rand_like(value)).sum().abs() for value in found).backward()
'''
_MAIN = """

if __name__ == "__main__":
    torch.manual_seed(0)
    test_example()
"""


def examples(sources: Mapping[str, Source], wanted: Sequence[Target], cwd: str) -> list[Harness]:
    """A harness for each example that names a class or function which is wanted."""
    found: list[Harness] = []
    owners: dict[str, dict[str, list[Target]]] = {}
    for path, function in wanted:
        if path in sources:
            owners.setdefault(path, {}).setdefault(function.split(".")[0], []).append((path, function))
    for path, names in owners.items():
        root = root_of(path, os.path.realpath(cwd))
        for where, code in (*_docstrings(sources[path]), *_readmes(root)):
            used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
            targets = tuple(t for name in names if name in used for t in names[name])
            text = _text(code, sources[path], root, where) if targets else None
            if text is not None:
                top = module_of(path, root)[0]
                found.append(Harness("example", f"example in {where}", top, targets, text))
    return list({harness.text: harness for harness in found}.values())[:MOST]


def _docstrings(source: Source) -> Iterator[tuple[str, ast.Module]]:
    """Where an example stands, and its code."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in source.nodes:
        if not isinstance(node, kinds):
            continue
        text = ast.get_docstring(node)
        if not text:
            continue
        name = getattr(node, "name", "the module")
        for code in (*_sessions(text), *_fences(text)):
            yield f"the docstring of {name}, {Path(source.path).name}", code


def _readmes(root: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(Path(root).glob("[Rr][Ee][Aa][Dd][Mm][Ee]*")):
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for code in _fences(text):
            yield path.name, code


def _sessions(text: str) -> Iterator[ast.Module]:
    """The lines after `>>>` of one docstring, together."""
    try:
        lines = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
        if lines:
            yield ast.parse(lines)
    except (SyntaxError, ValueError):
        return


def _fences(text: str) -> Iterator[ast.Module]:
    for match in _FENCE.finditer(text):
        if ">>>" in match[1]:
            yield from _sessions(match[1])
            continue
        try:
            yield ast.parse(match[1])
        except (SyntaxError, ValueError):
            continue


def _text(code: ast.Module, source: Source, root: str, where: str) -> str | None:
    """The example as a test that runs backward; None where it uses names that nobody knows."""
    bound = _bound(code)
    free = sorted(_read(code) - bound - set(dir(builtins)) - {"backward"})
    own = {n for node in source.tree.body for n in _bound(ast.Module([node], []))}
    mine = [name for name in free if name in own and name not in _USUAL]
    usual = [_USUAL[name] for name in free if name in _USUAL]
    if any(name not in own and name not in _USUAL for name in free):
        return None
    imports = dict.fromkeys(["import torch", *usual])
    if mine:
        imports[f"from {module_of(source.path, root)[1]} import {', '.join(mine)}"] = None
    body, names = _body(code)
    if not any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(code)):
        body.append(f"backward({', '.join(names)})")
    lines = "\n".join("    " + line for part in body for line in part.splitlines())
    head = f'"""The example in {where}, forward and backward."""\n\n' + "\n".join(imports)
    return f"{head}\n{_HELPER}\n\ndef test_example():\n{lines}\n{_MAIN}"


def _body(code: ast.Module) -> tuple[list[str], list[str]]:
    """Statements whose results all have names, and these names; inputs that are made up require grad, as non-leaves."""
    out: list[str] = []
    names: dict[str, None] = {}
    for node in _Inputs().visit(code).body:
        value = _peeled(node.value) if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Call):
            names[f"result{len(names)}"] = None
            out.append(f"{list(names)[-1]} = {ast.unparse(value)}")
            continue
        if isinstance(node, ast.Assign):
            names.update(dict.fromkeys(n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)))
        out.append(ast.unparse(node))
    return out, list(names)


class _Inputs(ast.NodeTransformer):
    """`torch.randn(2, 3)` becomes `torch.randn(2, 3).requires_grad_().clone()`."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Only what is bound to a name: sizes and masks inside calls stay as they are."""
        value = node.value
        plain = isinstance(value, ast.Call) and ast.unparse(value.func) in {f"torch.{name}" for name in _MADE}
        if plain and not any(k.arg in ("dtype", "requires_grad") for k in value.keywords):  # type: ignore[attr-defined]
            node.value = ast.parse(f"({ast.unparse(value)}).requires_grad_().clone()", mode="eval").body
        return node


def _peeled(value: ast.expr) -> ast.expr:
    """What an example asks for a fact: `net(x)` of `net(x).shape`, `print(net(x).size())`."""
    while True:
        if isinstance(value, ast.Attribute) and value.attr in ("shape", "dtype", "ndim", "device", "requires_grad"):
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _ASKS:
            value = value.func.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _PRINTS:
            if len(value.args) != 1:
                return value
            value = value.args[0]
        else:
            return value


def _bound(code: ast.Module) -> set[str]:
    """Names that a text binds."""
    out: set[str] = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            out.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            out |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            out.add(node.name)
        elif isinstance(node, ast.arg):
            out.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            out.add(node.name)
    return out


def _read(code: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(code) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
