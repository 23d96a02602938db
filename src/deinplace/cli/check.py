"""`deinplace check`: find in-place writes that can break backward, without running anything."""

from __future__ import annotations

from dataclasses import replace

from deinplace.cli import exits
from deinplace.cli.options import (
    Color,
    ColorFlag,
    Exclude,
    ExitZero,
    ExtendExclude,
    ExtendSelect,
    ForceExclude,
    Ignore,
    OutputFile,
    OutputFormat,
    Paths,
    Quiet,
    Reports,
    RespectGitignore,
    Select,
    Verbose,
    reports,
    selected,
    settings,
)


def check(
    paths: Paths = None,
    select: Select = None,
    ignore: Ignore = None,
    extend_select: ExtendSelect = None,
    exclude: Exclude = None,
    extend_exclude: ExtendExclude = None,
    force_exclude: ForceExclude = None,
    respect_gitignore: RespectGitignore = None,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    report: Reports = None,
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorFlag = Color.auto,
) -> int:
    """Find in-place writes that can break backward, from the source alone."""
    config = settings(
        select=select, ignore=ignore, extend_select=extend_select, exclude=exclude, extend_exclude=extend_exclude,
        force_exclude=force_exclude, respect_gitignore=respect_gitignore, output_format=output_format,
    )  # fmt: skip
    more = reports(report)
    from deinplace.cli import output
    from deinplace.cli.sources import gather
    from deinplace.model import Outcome

    codes = selected(config)
    sources, problems = gather(paths or ["."], config)
    outcome = Outcome("check", problems=problems, files=len(sources))
    if sources:
        from deinplace.analysis.check import check as find

        findings = tuple(f for f in find(sources, config) if codes is None or f.rule in codes)
        outcome = replace(outcome, findings=findings)
    seen = output.view(outcome, {path: source.text for path, source in sources.items()}, verbose, quiet)
    output.emit(outcome, seen, config.output_format, output_file, color, more=more)
    return exits.of_findings(outcome, exit_zero)
