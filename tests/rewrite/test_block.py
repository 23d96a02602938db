"""Statements under a `with`: comments come along, strings keep their text, torch is called by its name there."""

from __future__ import annotations

import ast

import pytest

from deinplace.analysis.source import Source
from deinplace.rewrite.apply import apply, check
from deinplace.rewrite.block import no_grad, torch_name, wrap
from deinplace.rewrite.statement import Refused

HEADER = "with torch.no_grad():"


def parse(text: str) -> Source:
    return Source.parse("/tree/a.py", text.encode())


def marked(source: Source) -> list[ast.stmt]:
    """The statements that mention `w`, in the block of the first of them."""
    nodes = [n for n in ast.walk(source.tree) if isinstance(n, ast.stmt)]
    first = next(n for n in nodes if not hasattr(n, "body") and "w" in _names(n))
    block = next(
        b for p in [source.parents[first]] for _, b in ast.iter_fields(p) if isinstance(b, list) and first in b
    )
    return [n for n in block if "w" in _names(n)]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


WRAPPED = [
    ("one", "w -= 1\n", f"{HEADER}\n    w -= 1\n"),
    ("two", "a\nw -= 1  # x\n# y\n\nw += 2\nb\n", f"a\n{HEADER}\n    w -= 1  # x\n    # y\n\n    w += 2\nb\n"),
    ("tabs", "if a:\n\tw -= 1\n", f"if a:\n\t{HEADER}\n\t\tw -= 1\n"),
    ("two-spaces", "if a:\n  w -= 1\n  w += 1\n", f"if a:\n  {HEADER}\n    w -= 1\n    w += 1\n"),
    ("crlf", "w -= f(\r\n    1,\r\n)\r\n", f"{HEADER}\r\n    w -= f(\r\n        1,\r\n    )\r\n"),
    ("string", "w[0] = '''a\n b\n'''\nw -= 1\n", f"{HEADER}\n    w[0] = '''a\n b\n'''\n    w -= 1\n"),
    ("backslash-string", "w[0] = 'a\\\nb'\n", f"{HEADER}\n    w[0] = 'a\\\nb'\n"),
    ("no-final-newline", "w -= 1", f"{HEADER}\n    w -= 1"),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in WRAPPED], ids=[c[0] for c in WRAPPED])
def test_wrap(text: str, expected: str) -> None:
    source = parse(text)
    edits = wrap(source, marked(source), HEADER)
    after = apply(source, edits)
    assert after == expected
    inner = check(source, after, edits)
    assert _strings(inner.tree) == _strings(source.tree)


def _strings(tree: ast.AST) -> list[str]:
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def test_wrap_a_loop_with_its_comments() -> None:
    source = parse("for t in ts:\n    # step\n    t -= 1\nb = 1\n")
    after = apply(source, wrap(source, source.tree.body[:1], HEADER))
    assert after == f"{HEADER}\n    for t in ts:\n        # step\n        t -= 1\nb = 1\n"


@pytest.mark.parametrize("text", ["a; w -= 1\n", "if a: w -= 1\n", "w -= 1; b\n"])
def test_shared_lines_are_refused(text: str) -> None:
    source = parse(text)
    with pytest.raises(Refused):
        wrap(source, marked(source), HEADER)


NAMES = [
    ("plain", "import torch\nw\n", "torch"),
    ("renamed", "import torch as th\nw\n", "th"),
    ("submodule", "import torch.nn\nw\n", "torch"),
    ("submodule-renamed", "import torch.nn as nn\nw\n", None),
    ("parameter", "import torch\ndef f(torch):\n    w\n", None),
    ("local", "import torch\ndef f():\n    torch = 1\n    w\n", None),
    ("other-function", "import torch\ndef g(torch):\n    pass\ndef f():\n    w\n", "torch"),
    ("inside-the-function", "def f():\n    import torch\n    w\n", "torch"),
    ("in-another-function", "def g():\n    import torch\ndef f():\n    w\n", None),
    ("guarded", "try:\n    import torch\nexcept ImportError:\n    torch = None\nw\n", None),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in NAMES], ids=[c[0] for c in NAMES])
def test_torch_name(text: str, expected: str | None) -> None:
    source = parse(text)
    assert torch_name(source, marked(source)[0]) == expected


HEADERS = [
    ("imported", "from torch import no_grad\nw\n", "with no_grad():", "from torch import no_grad\nw\n"),
    (
        "missing",
        '"""D."""\nfrom __future__ import a\nw\n',
        HEADER,
        '"""D."""\nfrom __future__ import a\nimport torch\nw\n',
    ),
]


@pytest.mark.parametrize(("text", "header", "expected"), [c[1:] for c in HEADERS], ids=[c[0] for c in HEADERS])
def test_no_grad(text: str, header: str, expected: str) -> None:
    source = parse(text.replace("import a\n", "import annotations\n"))
    found, edits = no_grad(source, marked(source)[0])
    assert found == header
    assert apply(source, edits) == expected.replace("import a\n", "import annotations\n")


def test_no_grad_where_torch_means_something_else() -> None:
    source = parse("def f(torch):\n    w\n")
    with pytest.raises(Refused):
        no_grad(source, marked(source)[0])
