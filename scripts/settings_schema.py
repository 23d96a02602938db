"""Writes src/deinplace/settings.schema.json from `Config`: types, defaults, and the text beneath each field.

usage: python scripts/settings_schema.py
"""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import Field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import deinplace.config
from deinplace.config import FORMATS, TYPES, VERIFY, Config

INTERNAL = ("root", "file")
CHOICES = {"verify": VERIFY, "types": TYPES, "output_format": FORMATS}


def schema() -> dict[str, Any]:
    """The schema of a settings file."""
    texts = _texts()
    held = {f.name.replace("_", "-"): _property(f, texts[f.name]) for f in fields(Config) if f.name not in INTERNAL}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "deinplace settings",
        "description": "deinplace.toml, or [tool.deinplace] in pyproject.toml.",
        "type": "object",
        "properties": held,
        "additionalProperties": False,
    }


def _property(field: Field[Any], text: str) -> dict[str, Any]:
    kind, default = str(field.type), field.default
    held: dict[str, Any] = {"description": text}
    if kind.startswith("tuple[tuple"):
        held |= {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
    elif kind.startswith("tuple"):
        held |= {"type": "array", "items": {"type": "string"}}
    elif kind == "bool":
        held |= {"type": "boolean"}
    elif kind.startswith("str"):
        held |= {"enum": list(CHOICES[field.name])} if field.name in CHOICES else {"type": "string"}
    elif kind.startswith("float"):
        held |= {"type": "number", "exclusiveMinimum": 0}
    else:
        held |= {"type": "integer", "minimum": 1}
    if default is not None:
        held["default"] = _plain(kind, default)
    return held


def _plain(kind: str, value: Any) -> Any:
    """A default as JSON has it."""
    if kind.startswith("tuple[tuple"):
        return {pattern: list(rules) for pattern, rules in value}
    return list(value) if isinstance(value, tuple) else value


def _texts() -> dict[str, str]:
    """The text that stands beneath each field."""
    tree = ast.parse(inspect.getsource(deinplace.config))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config")
    texts: dict[str, str] = {}
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            constant = after.value if isinstance(after, ast.Expr) else None
            texts[field.target.id] = str(constant.value) if isinstance(constant, ast.Constant) else ""
    return texts


if __name__ == "__main__":
    target = Path(deinplace.config.__file__).with_name("settings.schema.json")
    target.write_text(json.dumps(schema(), indent=1) + "\n", "utf-8")
