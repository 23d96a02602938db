"""The demonstration works, leaves its example as it is, and prints what the README's first screen shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def transcript() -> list[str]:
    """Lines of the README's first indented block, without the ones that only stand for something left out."""
    lines = (ROOT / "README.md").read_text("utf-8").split("The transcript is cut from")[0].splitlines()
    block = [line[4:] for line in lines if line.startswith("    ")]
    return [line.removesuffix("...").rstrip() for line in block if line.strip() != "..."]


def test_the_demo_prints_what_the_readme_shows(environment: dict[str, str]) -> None:
    example = ROOT / "examples/unet"
    before = {path.name: path.read_bytes() for path in example.iterdir() if path.is_file()}
    command = [ROOT / "examples/demo.sh", Path(sys.executable).parent]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert {path.name: path.read_bytes() for path in example.iterdir() if path.is_file()} == before
    printed = iter(result.stdout.splitlines())
    for line in transcript():
        # each line is looked for after the one before it: the README may leave out, but not make up or reorder
        assert any(real.startswith(line) for real in printed), f"the demo does not print: {line}"
