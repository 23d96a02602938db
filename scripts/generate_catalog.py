"""Write the catalog of what torch's operations do from the torch that is installed.

    OMP_NUM_THREADS=1 python scripts/generate_catalog.py [--output DIRECTORY] [--share 0.05 --seed 7]

Needs torch, numpy and expecttest (torch's own operator samples import it). It takes about two minutes; with `--share`
only that part of the methods and functions is run, chosen by the seed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import catalog_entries as entries
import catalog_modules as modules
import catalog_schemas as schemas
import catalog_surface as surface
import torch

Table = dict[str, Any]
DATA = Path(__file__).resolve().parents[1] / "src" / "deinplace" / "catalog"


def quiet() -> None:
    """One thread, no warnings: most calls that are tried are deprecated or odd on purpose."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def head() -> Table:
    """When and from what the catalog was made."""
    return {"generated": datetime.date.today().isoformat(), "torch": torch.__version__}


def described(found: Mapping[str, surface.Public], chooser: random.Random, share: float) -> Table:
    """Entries of methods or functions, of all or of a share of them."""
    names = [name for name in found if share >= 1 or chooser.random() < share]
    return {name: entries.describe(found[name]) for name in names}


def generate(share: float, seed: int) -> dict[str, Table]:
    """File name to content."""
    quiet()
    # Before anything else is imported: some of torch's own modules register further operators.
    operators = schemas.operators()
    chooser = random.Random(seed)
    data = {
        **head(),
        "augmented": entries.augmented(),
        "functions": described(surface.functions(), chooser, share),
        "methods": described(surface.methods(), chooser, share),
        "modules": modules.described(),
    }
    return {"data.json": data, "operators.json": {**head(), "operators": operators}}


def dump(content: Table) -> str:
    """JSON with sorted keys and one entry a line."""
    parts = []
    for key in sorted(content):
        value = content[key]
        if isinstance(value, dict):
            lines = (f"{json.dumps(k)}:{_compact(value[k])}" for k in sorted(value))
            parts.append(f"{json.dumps(key)}:{{\n" + ",\n".join(lines) + "\n}")
        else:
            parts.append(f"{json.dumps(key)}:{json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    for name, content in generate(options.share, options.seed).items():
        (output / name).write_text(dump(content), encoding="utf-8")


if __name__ == "__main__":
    main()
