"""Settings: from the nearest deinplace.toml or `[tool.deinplace]`, overridden by flags."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from deinplace.errors import DeinplaceError
from deinplace.files import DEFAULT_EXCLUDE, Selection

FORMATS = (
    "full", "concise", "json", "sarif", "github", "gitlab", "junit", "rdjson", "markdown", "html",
    "patch",
)  # fmt: skip
VERIFY = ("auto", "require", "off")
TYPES = ("auto", "on", "off")
MODES = ("amp", "checkpoint", "compile", "float64")


@dataclass(frozen=True)
class Config:
    """Every setting, by the name that its flag and its key in a file have too (there with hyphens)."""

    root: str = ""
    """Folder of the file that the settings come from, else the working folder; exclude patterns are relative to it."""
    file: str = ""
    """The file that the settings come from."""
    select: tuple[str, ...] = ()
    """Codes, prefixes of codes, or names of rules; none means all."""
    ignore: tuple[str, ...] = ()
    """Rules to leave out."""
    extend_select: tuple[str, ...] = ()
    """Rules to use besides those of `select`."""
    preview: bool = False
    """Use rules that are new, too: what they find and rewrite may still change."""
    fixable: tuple[str, ...] = ()
    """Rules whose rewrites `fix` may apply; none means all. The others are still reported."""
    unfixable: tuple[str, ...] = ()
    """Rules whose rewrites `fix` leaves alone."""
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Rules to silence in some files: patterns, as in .gitignore, each with its rules."""
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    """Patterns, as in .gitignore, in place of the default ones."""
    extend_exclude: tuple[str, ...] = ()
    """Patterns to leave out besides."""
    force_exclude: bool = False
    """Exclude files that are named, too."""
    respect_gitignore: bool = True
    """Leave out what git ignores."""
    run: str | None = None
    """The command that `fix` verifies with."""
    python: str | None = None
    """The interpreter that runs the program."""
    types: str = "auto"
    """Whether type checkers are asked what the source leaves open; `auto` asks those that are installed."""
    all: bool = False
    """Rewrite every tensor write that ran."""
    unsafe: bool = False
    """Apply rewrites that are not proved, too."""
    verify: str = "auto"
    """How much proof a rewrite needs before it is written."""
    timeout: float = 600.0
    """Seconds that one run of the user's program may take."""
    max_steps: int | None = None
    """Stop a run after so many optimizer steps."""
    max_runs: int = 40
    """So many runs of the program at most."""
    harness: bool = True
    """Without `run`, look for drivers in the project itself and run them, contained."""
    harness_timeout: float = 60.0
    """Seconds that one run of such a driver may take."""
    modes: tuple[str, ...] = ()
    """Repeat the comparison of what is confirmed under autocast, checkpointing, a compiler, or in float64."""
    device: str | None = None
    """Repeat it with new tensors on this device, such as cuda."""
    paranoid: bool = False
    """Copy each saved tensor and compare it when it is used: slow, finds writes that go past torch."""
    jobs: int | None = None
    """So many processes at once; as many as there are cores, where it is not set."""
    cache: bool = True
    """Keep what `check` finds and what `fix` proves, and look again only at what has changed."""
    cache_dir: str | None = None
    """The folder of the cache; that of the platform, or DEINPLACE_CACHE_DIR, where it is not set."""
    output_format: str = "full"
    """Format of the report."""
    baseline: str | None = None
    """A file that lists findings to live with, relative to the folder of the settings."""

    @property
    def selection(self) -> Selection:
        """The part that says which files to look at."""
        patterns = (*self.exclude, *self.extend_exclude)
        return Selection(self.root or os.getcwd(), patterns, self.force_exclude, self.respect_gitignore)  # noqa: PTH109


def load(start: str, flags: Mapping[str, Any]) -> Config:
    """Settings of the nearest file at or above `start`, overridden by each flag that is not None.

    Raises:
        DeinplaceError: a file that is not TOML, an unknown key, or a value that its key does not take.
    """
    config = _from_file(Path(start)) or Config(root=start)
    return replace(config, **{name: value for name, value in flags.items() if value is not None})


def _from_file(start: Path) -> Config | None:
    for folder in (start, *start.parents):
        for name in ("deinplace.toml", "pyproject.toml"):
            path = folder / name
            if not path.is_file():
                continue
            table = _table(path)
            if table is not None:
                return _parse(table, path)
    return None


def _table(path: Path) -> dict[str, Any] | None:
    """The settings that a file holds; a pyproject.toml without our table has none."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DeinplaceError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeinplaceError(f"{path}: is not TOML: {error}") from None
    if path.name == "deinplace.toml":
        return data
    tool = data.get("tool", {})
    table = tool.get("deinplace") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise DeinplaceError(f"{path}: [tool.deinplace] must be a table")
    return table


def _parse(table: Mapping[str, Any], path: Path) -> Config:
    known = {f.name.replace("_", "-"): f for f in fields(Config) if f.name not in ("root", "file")}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            close = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else f"; known keys: {', '.join(sorted(known))}"
            raise DeinplaceError(f"{path}: unknown key `{key}`{hint}")
        field = known[key]
        values[field.name] = _value(path, key, str(field.type), value)
    return Config(root=str(path.parent), file=str(path), **values)


def _value(path: Path, key: str, kind: str, value: Any) -> Any:
    """`value` as the field of type `kind` holds it."""
    if kind.startswith("tuple[tuple"):
        if isinstance(value, dict) and all(map(_is_strings, value.values())):
            return tuple((pattern, tuple(rules)) for pattern, rules in value.items())
        wanted = 'a table of patterns with lists of rules, such as {"tests/**" = ["DIP102"]}'
    elif kind.startswith("tuple"):
        if _is_strings(value):
            return tuple(value)
        wanted = "a list of strings"
    elif kind == "bool":
        if isinstance(value, bool):
            return value
        wanted = "true or false"
    elif kind.startswith("str"):
        choices = {"verify": VERIFY, "types": TYPES, "output-format": FORMATS}.get(key)
        if isinstance(value, str) and (choices is None or value in choices):
            return value
        wanted = f"one of {', '.join(choices)}" if choices else "a string"
    else:
        wanted = "a positive number" if kind == "float" else "a positive whole number"
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            if kind == "float":
                return float(value)
            if isinstance(value, int):
                return value
    raise DeinplaceError(f"{path}: `{key}` must be {wanted}, not {value!r}")


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
