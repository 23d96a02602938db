"""The flags that commands share, and how they join the settings of a file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from deinplace import config
from deinplace.errors import DeinplaceError


class Format(StrEnum):
    """Formats of a report."""

    full = "full"
    concise = "concise"
    json = "json"
    sarif = "sarif"
    github = "github"
    gitlab = "gitlab"
    junit = "junit"
    rdjson = "rdjson"
    markdown = "markdown"
    html = "html"
    patch = "patch"


class Verify(StrEnum):
    """How much proof a rewrite needs before it is written."""

    auto = "auto"
    require = "require"
    off = "off"


class Types(StrEnum):
    """Whether type checkers are asked."""

    auto = "auto"
    on = "on"
    off = "off"


class Color(StrEnum):
    """When to use colours."""

    auto = "auto"
    always = "always"
    never = "never"


_FILES, _RULES, _OUTPUT = "Which files", "Which rules", "Output"

Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH", help="Files and folders.", show_default=".")]
OutputFormat = Annotated[Format | None, typer.Option(help="Format of the report [default: full].")]
OutputFile = Annotated[Path | None, typer.Option(help="Write the report to this file.", dir_okay=False)]
Reports = Annotated[
    list[str] | None, typer.Option("--report", metavar="FORMAT=FILE", help="One more report; may be given again.")
]
Statistics = Annotated[bool, typer.Option("--statistics", help="Count the findings of each rule.")]
Baseline = Annotated[str | None, typer.Option(metavar="FILE", help="Findings listed in this file count as none.")]
StdinFilename = Annotated[str | None, typer.Option(metavar="PATH", help="What the file read from `-` is called.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Findings only: no progress, no summary.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also what was tried, and what was suppressed.")]
ColorFlag = Annotated[Color, typer.Option(help="Colours; auto heeds FORCE_COLOR, NO_COLOR and the terminal.")]
Timeout = Annotated[float | None, typer.Option(min=0.001, help="Seconds that one run may take [default: 600].")]
Harnesses = Annotated[
    bool | None,
    typer.Option("--harness/--no-harness", help="Without --run, run the project's own programs, tests and examples."),
]
HarnessTimeout = Annotated[
    float | None, typer.Option(min=0.001, help="Seconds that one run of a harness may take [default: 60].")
]
ShowHarness = Annotated[
    bool, typer.Option("--show-harness", help="Print the harnesses as source that can be kept; write nothing.")
]
MaxSteps = Annotated[int | None, typer.Option(min=1, help="Stop a run after so many optimizer steps.")]
Paranoid = Annotated[
    bool | None,
    typer.Option("--paranoid", help="Also find writes through NumPy, DLPack or foreign code: compare copies."),
]
Modes = Annotated[
    list[str] | None,
    typer.Option("--modes", help="Compare again in these: amp, checkpoint, compile, float64; by comma."),
]
Device = Annotated[str | None, typer.Option(help="Compare again with new tensors on this device, such as cuda.")]
Python = Annotated[str | None, typer.Option(help="The interpreter that runs the program.")]
TypesFlag = Annotated[
    Types | None, typer.Option("--types", help="Ask type checkers what the source leaves open [default: auto].")
]
Select = Annotated[list[str] | None, typer.Option(help="Rules to use: codes, prefixes or names, by comma.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Rules to leave out.")]
ExtendSelect = Annotated[list[str] | None, typer.Option(help="Rules to use besides those of --select.")]
Fixable = Annotated[list[str] | None, typer.Option(help="Rules that may rewrite; the others are only reported.")]
Unfixable = Annotated[list[str] | None, typer.Option(help="Rules that may not rewrite.")]
Exclude = Annotated[list[str] | None, typer.Option(help="Patterns, as in .gitignore, in place of the default ones.")]
ExtendExclude = Annotated[list[str] | None, typer.Option(help="Patterns to leave out besides.")]
ForceExclude = Annotated[
    bool | None, typer.Option("--force-exclude/--no-force-exclude", help="Exclude files that are named, too.")
]
RespectGitignore = Annotated[
    bool | None,
    typer.Option("--respect-gitignore/--no-respect-gitignore", help="Leave out what git ignores [default: yes]."),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="So many processes [default: one a core].")]
CacheFlag = Annotated[
    bool | None, typer.Option("--cache/--no-cache", help="Look again only at what has changed [default: yes].")
]
CacheDir = Annotated[str | None, typer.Option(metavar="DIR", help="Folder of the cache.", envvar="DEINPLACE_CACHE_DIR")]
Preview = Annotated[bool | None, typer.Option("--preview/--no-preview", help="Use new rules, too [default: no].")]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit 0 even where findings are left.")]


def settings(**flags: Any) -> config.Config:
    """Settings for the working folder, overridden by the flags that were given.

    Raises:
        DeinplaceError: a bad settings file, or a rule that does not exist.
    """
    for name in ("select", "ignore", "extend_select", "fixable", "unfixable", "exclude", "extend_exclude", "modes"):
        if flags.get(name) is not None:
            flags[name] = _split(flags[name])
    for name in ("output_format", "verify", "types"):
        if flags.get(name) is not None:
            flags[name] = str(flags[name])
    if flags.get("baseline") is not None:  # a flag counts from here, a key from its file
        flags["baseline"] = str(Path(flags["baseline"]).absolute())
    found = config.load(str(Path.cwd()), flags)
    for mode in found.modes:
        if mode not in config.MODES:
            raise DeinplaceError(f"unknown mode {mode!r}; there are {', '.join(config.MODES)}")
    return found


def reports(values: list[str] | None) -> tuple[tuple[str, Path], ...]:
    """Formats and files of the reports to write besides the main one.

    Raises:
        DeinplaceError: a value that is not FORMAT=FILE, or a format that does not exist.
    """
    out = []
    for value in values or ():
        kind, equals, file = value.partition("=")
        if not equals or not file or kind not in config.FORMATS:
            raise DeinplaceError(f"--report {value}: write FORMAT=FILE, FORMAT one of {', '.join(config.FORMATS)}")
        out.append((kind, Path(file)))
    return tuple(out)


def selected(found: config.Config) -> frozenset[str] | None:
    """Codes of the rules to use, or None where that is all of them. Rules in preview need `preview`.

    Raises:
        DeinplaceError: a rule that does not exist, or that is in preview while `preview` is off.
    """
    preview = _unstable() if not found.preview else frozenset()
    if not (found.select or found.ignore or found.extend_select or preview):
        return None
    known = _known()
    for selector in (*found.select, *found.extend_select):
        if code := next((c for c in preview if selector.upper() == c or selector.lower() == known[c]), ""):
            raise DeinplaceError(f"{code} {known[code]} is in preview; --preview turns such rules on")
    base = _codes(found.select, known) if found.select else set(known)
    return frozenset((base | _codes(found.extend_select, known)) - _codes(found.ignore, known) - preview)


def fixable(found: config.Config) -> frozenset[str] | None:
    """Codes of the rules that may rewrite, or None where the settings do not choose.

    Raises:
        DeinplaceError: a rule that does not exist.
    """
    codes = selected(found)
    if not (found.fixable or found.unfixable):
        return codes
    known = _known()
    base = _codes(found.fixable, known) if found.fixable else set(known)
    allowed = frozenset(base - _codes(found.unfixable, known))
    return allowed if codes is None else allowed & codes


def silent(found: config.Config, path: str) -> frozenset[str]:
    """Codes of the rules that `per-file-ignores` silences in the file at an absolute path.

    Raises:
        DeinplaceError: a rule that does not exist.
    """
    return frozenset(code for matches, codes in _ignores(found) if matches(path) for code in codes)


@cache
def _ignores(found: config.Config) -> tuple[tuple[Callable[[str], bool], frozenset[str]], ...]:
    """For each line of `per-file-ignores`: whether a path matches it, and the codes of its rules."""
    known = _known() if found.per_file_ignores else {}
    return tuple(
        (replace(found, exclude=(pattern,), extend_exclude=()).selection.holds, frozenset(_codes(rules, known)))
        for pattern, rules in found.per_file_ignores
    )


def _known() -> dict[str, str]:
    """Names of the rules by code, those about comments included."""
    from deinplace.rules._codes import ledger

    return {entry.code: entry.name for entry in ledger() if entry.state != "retired"}


def _unstable() -> frozenset[str]:
    """Codes of the rules that are in preview."""
    from deinplace.rules._codes import ledger

    return frozenset(entry.code for entry in ledger() if entry.state == "preview")


def _codes(selectors: Iterable[str], known: dict[str, str]) -> set[str]:
    codes: set[str] = set()
    for selector in selectors:
        upper = selector.upper()
        hits = {c for c, name in known.items() if upper == "ALL" or c.startswith(upper) or name == selector.lower()}
        if not hits:
            _retired(selector)
            close = difflib.get_close_matches(selector, [*known, *known.values()], n=1)
            hint = f"did you mean {close[0]}?" if close else "`deinplace rules` lists them"
            raise DeinplaceError(f"unknown rule {selector!r}; {hint}")
        codes |= hits
    return codes


def _retired(selector: str) -> None:
    """Say of a rule that there is no more, since when."""
    from deinplace.rules._codes import ledger

    for entry in ledger():
        if entry.state == "retired" and selector.upper() in (entry.code, entry.name.upper()):
            raise DeinplaceError(f"{entry.code} {entry.name} was retired in {entry.since}; take it out")


def _split(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())
