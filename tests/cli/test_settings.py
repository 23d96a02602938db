"""`deinplace config`, and the schema of the settings against what the settings take."""

from __future__ import annotations

import json
import runpy
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deinplace.config import Config, load
from deinplace.errors import DeinplaceError

SCHEMA = json.loads(files("deinplace").joinpath("settings.schema.json").read_text("utf-8"))


def test_the_schema_is_what_the_settings_are() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    made = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "settings_schema.py"))["schema"]()
    assert made == SCHEMA, "run scripts/settings_schema.py"
    assert all(held["description"] for held in SCHEMA["properties"].values())


@pytest.mark.parametrize("value", ["x", 3, 0, -1, 1.5, True, [], ["a"], [1], "json", "off"])
@pytest.mark.parametrize("key", sorted(SCHEMA["properties"]))
def test_the_schema_takes_what_the_settings_take(key: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / "deinplace.toml").write_text(f"{key} = {json.dumps(value)}\n")
    try:
        load(str(tmp_path), {})
        taken = True
    except DeinplaceError:
        taken = False
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid({key: value}) is taken


def test_config_shows_what_counts_and_where_it_comes_from(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "deinplace.toml").write_text('run = "python \\"a b\\".py"\nextend-exclude = ["é"]\n')
    result = cli("config")
    assert result.returncode == 0
    assert str(tmp_path / "deinplace.toml") in result.stdout.splitlines()[0]
    shown = tomllib.loads(result.stdout)
    assert (shown["run"], shown["extend-exclude"], shown["max-runs"]) == ('python "a b".py', ["é"], Config().max_runs)
    assert "# baseline is not set" in result.stdout
    (tmp_path / "deinplace.toml").write_text(result.stdout)
    assert load(str(tmp_path), {}) == load(str(tmp_path), {"run": 'python "a b".py'})


def test_config_prints_the_schema(cli: Callable) -> None:
    assert json.loads(cli("config", "--schema").stdout) == SCHEMA
