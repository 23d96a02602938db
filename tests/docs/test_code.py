"""Every block of Python in the documentation runs against the installed torch, and does what its comments say."""

from __future__ import annotations

import re
import traceback
import warnings

import pytest
import torch
from docs.markdown import Block, blocks, pages
from torch import nn
from torch.nn import functional

BLOCKS = [
    block for page in pages() for block in blocks(page) if block.language == "python" and "rules/" not in block.path
]
_RAISES = re.compile(r"^.*# raises (\w+): (.+)$", re.MULTILINE)


def test_there_is_something_to_run() -> None:
    assert sum(block.path == "docs/truth.md" for block in BLOCKS) > 35


@pytest.mark.parametrize("block", BLOCKS, ids=[f"{block.path}:{block.line}" for block in BLOCKS])
def test_a_block_does_what_it_says(block: Block) -> None:
    names = {"__name__": "block", "torch": torch, "nn": nn, "F": functional}
    code = compile(block.text, "block", "exec")
    raises = _RAISES.search(block.text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what the blocks do on purpose
        if raises is None:
            assert re.search(r"^\s*assert[ _]", block.text, re.MULTILINE), "a block that shows nothing"
            exec(code, names)
            return
        with pytest.raises((RuntimeError, TypeError), match=re.escape(raises[2])) as caught:
            exec(code, names)
    lines = [frame.lineno for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == "block"]
    assert type(caught.value).__name__ == raises[1]
    assert lines[0] == block.text.count("\n", 0, raises.start()) + 1
