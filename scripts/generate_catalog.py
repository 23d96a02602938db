"""Write the catalog of what torch's operations do from the torch that is installed.

    OMP_NUM_THREADS=1 python scripts/generate_catalog.py [--output DIRECTORY]

Needs torch, numpy and expecttest (torch's own operator samples import it).
"""

from __future__ import annotations

import argparse
import datetime
import json
import warnings
from collections.abc import Iterable, Mapping
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


def described(found: Mapping[str, surface.Public], only: Iterable[str] | None = None) -> Table:
    """Entries of methods or functions, of all or of some."""
    names = found if only is None else only
    return {name: entries.describe(found[name]) for name in names}


def generate() -> dict[str, Table]:
    """File name to content."""
    quiet()
    return {
        "data.json": {
            **head(),
            "augmented": entries.augmented(),
            "functions": described(surface.functions()),
            "methods": described(surface.methods()),
            "modules": modules.described(),
        },
        "operators.json": {**head(), "operators": schemas.operators()},
    }


def dump(content: Table) -> str:
    """JSON with sorted keys and one entry a line."""
    parts = []
    for key in sorted(content):
        value = content[key]
        if isinstance(value, dict):
            lines = (f"{json.dumps(k)}:{json.dumps(value[k], sort_keys=True, separators=(',', ':'))}" for k in sorted(value))
            parts.append(f"{json.dumps(key)}:{{\n" + ",\n".join(lines) + "\n}")
        else:
            parts.append(f"{json.dumps(key)}:{json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DATA)
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for name, content in generate().items():
        (output / name).write_text(dump(content), encoding="utf-8")


if __name__ == "__main__":
    main()
