"""`deinplace check`: find in-place writes that can break backward, without running anything."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from deinplace.cli import exits
from deinplace.cli.options import (
    Baseline,
    CacheDir,
    CacheFlag,
    Color,
    ColorFlag,
    Exclude,
    ExitZero,
    ExtendExclude,
    ExtendSelect,
    ForceExclude,
    Ignore,
    Jobs,
    OutputFile,
    OutputFormat,
    Paths,
    Preview,
    Python,
    Quiet,
    Reports,
    RespectGitignore,
    Select,
    Statistics,
    StdinFilename,
    TypesFlag,
    Verbose,
    reports,
    selected,
    settings,
)


def check(
    paths: Paths = None,
    all_sites: Annotated[
        bool, typer.Option("--all", help="List every tensor write, those that break nothing as well.")
    ] = False,
    select: Select = None,
    ignore: Ignore = None,
    extend_select: ExtendSelect = None,
    preview: Preview = None,
    exclude: Exclude = None,
    extend_exclude: ExtendExclude = None,
    force_exclude: ForceExclude = None,
    respect_gitignore: RespectGitignore = None,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    report: Reports = None,
    statistics: Statistics = False,
    stdin_filename: StdinFilename = None,
    baseline: Baseline = None,
    python: Python = None,
    types: TypesFlag = None,
    write_baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a baseline that lists what is found.")
    ] = None,
    add_ignore: Annotated[
        bool, typer.Option("--add-ignore", help="Put `# deinplace: ignore[RULE]` beside each finding.")
    ] = False,
    remove_unused_ignores: Annotated[
        bool, typer.Option("--remove-unused-ignores", help="Take out comments that silence nothing.")
    ] = False,
    jobs: Jobs = None,
    cache: CacheFlag = None,
    cache_dir: CacheDir = None,
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorFlag = Color.auto,
) -> int:
    """Find in-place writes that can break backward, from the source alone."""
    config = settings(
        select=select, ignore=ignore, extend_select=extend_select, exclude=exclude, extend_exclude=extend_exclude,
        preview=preview, force_exclude=force_exclude, respect_gitignore=respect_gitignore, output_format=output_format,
        all=all_sites, baseline=baseline, python=python, types=types, jobs=jobs, cache=cache, cache_dir=cache_dir,
    )  # fmt: skip
    more = reports(report)
    from deinplace.cli import baselines, output
    from deinplace.cli.checked import checked
    from deinplace.cli.sources import STDIN
    from deinplace.model import Outcome

    codes = selected(config)
    given = paths or ["."]
    found = checked(given, config, stdin_filename, codes, whole=add_ignore or remove_unused_ignores)
    sources = found.sources
    outcome = Outcome("check", found.findings, problems=found.problems, notes=found.notes, files=found.files)
    seen = output.view(outcome, {path: source.text for path, source in sources.items()}, verbose, quiet)
    outcome = baselines.silenced(outcome, config.baseline, config.root, seen)
    if write_baseline:
        count = baselines.write(outcome, write_baseline, seen)
        print(f"{write_baseline}: {count} findings listed", file=sys.stderr)
        return int(bool(outcome.problems))
    if add_ignore and given != STDIN:
        outcome = baselines.comment(outcome, sources, given)
    if remove_unused_ignores and given != STDIN:
        outcome = baselines.cleared(outcome, sources, given)
    if config.output_format == "full" and any(f.reason == "static" and f.severity != "note" for f in outcome.findings):
        # whole folders as they were named; of many files, such as a hook's, those that need it
        files = {os.path.relpath(f.path) for f in outcome.findings if f.severity != "note"}
        named = given if any(Path(path).is_dir() for path in given) else sorted(files)
        shown = " ".join(map(shlex.quote, named if given != STDIN else ["."]))
        outcome = replace(outcome, notes=(*outcome.notes, f"to mend what can be proved: deinplace fix {shown}"))
    output.emit(outcome, seen, config.output_format, output_file, color, more=more)
    if statistics:
        output.statistics(outcome, config.output_format, output_file)
    return exits.of_findings(outcome, exit_zero)
