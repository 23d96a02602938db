"""The shipped catalog is what the installed torch gives: counts derived from torch, and a regeneration."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from deinplace.catalog import load

torch = pytest.importorskip("torch")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "generate_catalog.py"
# The whole takes minutes: DEINPLACE_CATALOG_SHARE=1 compares everything.
SHARE = os.environ.get("DEINPLACE_CATALOG_SHARE", "0.06")
SEED = "20"

pytestmark = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != load().torch_version.partition("+")[0],
    reason=f"the catalog describes torch {load().torch_version}",
)


def shipped(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((files("deinplace.catalog") / name).read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    pytest.importorskip("numpy")
    pytest.importorskip("expecttest")
    output = tmp_path_factory.mktemp("catalog")
    command = [sys.executable, str(SCRIPT), "--output", str(output), "--share", SHARE, "--seed", SEED]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=900)
    return {name: json.loads((output / name).read_text("utf-8")) for name in ("data.json", "operators.json")}


@pytest.mark.parametrize("part", ["methods", "functions"])
def test_regenerated_entries_are_those_shipped(regenerated: dict[str, dict[str, Any]], part: str) -> None:
    old, new = shipped("data.json")[part], regenerated["data.json"][part]
    assert len(new) > 20
    assert {name: old.get(name) for name in new} == new


def test_regenerated_modules_and_operators_are_those_shipped(regenerated: dict[str, dict[str, Any]]) -> None:
    for part in ("modules", "augmented"):
        assert shipped("data.json")[part] == regenerated["data.json"][part]
    assert shipped("operators.json")["operators"] == regenerated["operators.json"]["operators"]


def test_files_hold_one_entry_a_line_in_order() -> None:
    for name in ("data.json", "operators.json"):
        lines = (files("deinplace.catalog") / name).read_text("utf-8").splitlines()
        content = shipped(name)
        tables = [value for value in content.values() if isinstance(value, dict)]
        assert len(lines) == 2 + len(content) + sum(len(t) + 1 for t in tables)
        assert all(list(table) == sorted(table) for table in tables)


def test_every_in_place_method_is_there() -> None:
    names = [n for n in dir(torch.Tensor) if n.endswith("_") and not n.startswith("_")]
    methods = [load().method(name) for name in names]
    assert len(names) == 162
    assert all(m is not None and m.in_place and m.effect != "none" for m in methods)


def test_every_inplace_parameter_is_there() -> None:
    catalog = load()
    classes = {f"torch.nn.{n}": c for n, c in vars(torch.nn).items() if inspect.isclass(c)}
    wanted = {n: c for n, c in classes.items() if "inplace" in inspect.signature(c.__init__).parameters}
    assert len(wanted) == 19
    for name, cls in wanted.items():
        entry = catalog.module(name)
        assert entry is not None
        assert entry.inplace is not None
        position = list(inspect.signature(cls).parameters).index("inplace")
        assert (entry.inplace.position, entry.inplace.default) == (position, False)
    assert sum(m.inplace is not None for m in catalog.modules()) == 19
    takers = [f for f in catalog.functions() if f.inplace is not None]
    assert len(takers) == 19
    for function in takers:
        call = getattr(torch.nn.functional, function.name.rpartition(".")[2])
        names = list(inspect.signature(call).parameters)
        assert function.inplace is not None
        assert names[function.inplace.position] == "inplace"
        assert function.inplace_writes == ("input",)


def test_every_underscore_function_is_there() -> None:
    catalog = load()
    for space, module in (("torch", torch), ("torch.nn.functional", torch.nn.functional)):
        names = [n for n in dir(module) if n.endswith("_") and not n.startswith("_")]
        assert names
        for name in names:
            entry = catalog.function(f"{space}.{name}")
            assert entry is not None, name
            assert entry.in_place, name
    functional = [f for f in catalog.functions() if f.name.startswith("torch.nn.functional.") and f.in_place]
    assert len(functional) == 8
    assert all(f.twin_exact for f in functional)


def test_every_mutable_operator_is_there() -> None:
    catalog = load()
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::") and s.is_mutable]
    about = [s for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)]
    assert len({s.name for s in about}) > 1100
    for schema in about:
        entry = catalog.operator(f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name)
        written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
        assert entry is not None, schema
        assert written <= set(entry.writes), schema
