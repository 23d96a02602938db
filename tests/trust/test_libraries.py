"""The benchmark of whole libraries: what is equal, what differs, and what failed before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "libraries"
PLACE = "tinynets.blocks:"
NAMES = [PLACE + n for n in ("Residual", "Gate", "Normalised", "Squared")]


def run(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "libraries.py"), "tinynets", "--work", str(work), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FIXTURES), str(ROOT / "src")])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


def test_a_model_that_changed_is_told_from_those_that_did_not(tmp_path: Path) -> None:
    first = run(tmp_path, "--rewrite-only")
    assert first.returncode == 0, first.stderr
    assert "rewrites in 1 of 2 files" in first.stdout
    (copy,) = tmp_path.glob("tinynets-*/after-*/tinynets/blocks.py")
    text = copy.read_text()
    assert "y = y * 2" in text and "y = y.mul(3)" in text and "x -= x.mean()" in text
    assert (FIXTURES / "tinynets" / "blocks.py").read_text() != text
    copy.write_text(text.replace("y = y.mul(3)", "y = y.mul(3.5)"))
    result = run(tmp_path, "--json", str(tmp_path / "states.json"), "--only", *NAMES)
    assert result.returncode == 1, result.stderr
    states = json.loads((tmp_path / "states.json").read_text())["states"]
    assert states == dict(zip(NAMES, ("equal", "different", "equal", "mended"), strict=True))
    assert "models equal bit for bit: 2 / 3" in result.stdout
    assert (
        f"mended: {PLACE}Squared: RuntimeError: one of the variables needed for gradient computation" in result.stdout
    )
