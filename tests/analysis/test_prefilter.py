"""What is dropped before any work is done on it."""

from __future__ import annotations

import ast

import pytest

from deinplace.analysis.imports import absolute, import_map
from deinplace.analysis.prefilter import holds_site, may_hold_site, places


@pytest.mark.parametrize(
    "text", [b"import torch\nx += y\n", b"import torch\nx.add_(y)\n", b"import torch\nx[0] = y\n", b"torch\ninplace"]
)
def test_lets_through(text: bytes) -> None:
    assert may_hold_site(text)


@pytest.mark.parametrize("text", [b"x += 1\n", b"import torch\nx = y == z\n", b""])
def test_drops(text: bytes) -> None:
    assert not may_hold_site(text)


def test_functions() -> None:
    assert holds_site(ast.parse("def f(x):\n    return x.add_(1)\n"))
    assert not holds_site(ast.parse("def f(x):\n    x.__init_subclass__()\n    return x.__add__(1)\n"))


def test_calls_of_special_methods_are_no_places() -> None:
    assert len(list(places("x.add_(1)\n"))) == 1
    assert not list(places("super().__init__()\nx.__iadd__(1)\n"))


def test_imports() -> None:
    tree = ast.parse("import torch.nn as nn\nimport torch\nfrom .a import b as c\nfrom torch import *\n")
    names = import_map(tree, "pkg.sub")
    assert names["nn"] == "torch.nn" and names["torch"] == "torch" and names["c"] == "pkg.sub.a.b"
    assert "torch" in [v for k, v in names.items() if k.startswith("*")]
    assert absolute("x", 2, "a.b") == "a.x"
