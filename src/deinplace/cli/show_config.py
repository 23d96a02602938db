"""`deinplace config`: the settings that count here, or the JSON schema of a settings file."""

from __future__ import annotations

import json
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from deinplace.config import Config, load


def config(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of deinplace.toml.")] = False,
) -> int:
    """Show every setting as it counts in this folder, as TOML, with where it comes from."""
    if schema:
        print(files("deinplace").joinpath("settings.schema.json").read_text("utf-8"), end="")
        return 0
    found, plain = load(str(Path.cwd()), {}), Config()
    print(f"# {found.file or 'no settings file: defaults'}")
    for field in fields(Config):
        if field.name in ("root", "file"):
            continue
        key, value = field.name.replace("_", "-"), getattr(found, field.name)
        note = "" if value == getattr(plain, field.name) else "  # set"
        print(
            f"# {key} is not set"
            if value is None
            else f"{key} = {'{}' if field.name == 'per_file_ignores' and not value else _toml(value)}{note}"
        )
    return 0


def _toml(value: Any, key: str = "") -> str:
    """A setting as TOML writes it; JSON's strings, numbers and truth values are TOML's too."""
    if key == "per-file-ignores":
        return "{" + ", ".join(f"{_toml(pattern)} = {_toml(rules)}" for pattern, rules in value) + "}"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
