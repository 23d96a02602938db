"""A part of `benchmarks/every_operation.py`: each operation of torch that writes in place, beside its rewrite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deinplace.catalog import load

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's own samples import it")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "every_operation.py"
FORMS = ("F.op(x, inplace=True)", "torch.op(out=y)", "torch.op_(x)", "x += r", "x.op_()", "y = x.op_()")

pytestmark = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != load().torch_version.partition("+")[0],
    reason=f"the catalog describes torch {load().torch_version}",
)


def test_every_operation_equals_its_rewrite() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = {form: line for line in done.stdout.splitlines() for form in FORMS if line.startswith(f"{form} ")}
    assert set(rows) == set(FORMS)
    numbers = {form: [int(word) for word in line.removeprefix(form).split()] for form, line in rows.items()}
    assert all(row[-1] == 0 for row in numbers.values()), "different"
    assert numbers["x.op_()"][0] >= 140, "operations"
    assert sum(row[-4] + row[-3] for row in numbers.values()) > 2000, "comparisons"
