"""Small programs for the analysis, in our own words, and a way to parse them."""

from __future__ import annotations

import textwrap

from deinplace.analysis.source import Source

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


def parse(*texts: str, **files: str) -> dict[str, Source]:
    """Sources by path: the first text is `/p/main.py`, keywords name further files."""
    named = {"main": HEAD + textwrap.dedent(texts[0])} if texts else {}
    named.update({name: HEAD + textwrap.dedent(text) for name, text in files.items()})
    return {f"/p/{name}.py": Source.parse(f"/p/{name}.py", text.encode()) for name, text in named.items()}


def function(body: str, parameters: str = "x: torch.Tensor") -> str:
    """A function around a body."""
    return f"def f({parameters}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
