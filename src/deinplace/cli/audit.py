"""`deinplace audit`: what each in-place write of a program costs or saves, and where one more would be safe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from deinplace.cli.options import (
    Color,
    ColorFlag,
    Exclude,
    ExtendExclude,
    ForceExclude,
    MaxSteps,
    OutputFile,
    OutputFormat,
    Paths,
    Python,
    Quiet,
    RespectGitignore,
    Timeout,
    Verbose,
    settings,
)
from deinplace.errors import DeinplaceError


def audit(
    paths: Paths = None,
    run: Annotated[str | None, typer.Option(metavar="CMD", help="The program to look at.")] = None,
    python: Python = None,
    timeout: Timeout = None,
    max_steps: MaxSteps = None,
    exclude: Exclude = None,
    extend_exclude: ExtendExclude = None,
    force_exclude: ForceExclude = None,
    respect_gitignore: RespectGitignore = None,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorFlag = Color.auto,
) -> int:
    """List every in-place write that ran: needed out of place, or safe and what it saves; nothing is changed.

    Below them stand operations that could safely be in place, and what that would save. That is advice: it holds for
    what this run did. Exit codes: 1 where a write destroys what backward needs, else 0. Formats: full, json, markdown.

    \b
    deinplace audit src/ --run "python train.py"
    """
    config = settings(
        run=run, python=python, timeout=timeout, max_steps=max_steps, exclude=exclude, extend_exclude=extend_exclude,
        force_exclude=force_exclude, respect_gitignore=respect_gitignore, output_format=output_format,
    )  # fmt: skip
    if config.run is None:
        raise DeinplaceError('audit needs a program to look at: --run "python train.py"')
    from deinplace.cli import output
    from deinplace.cli.progress import progress
    from deinplace.cli.sources import gather
    from deinplace.model import Outcome
    from deinplace.report import audit as reports
    from deinplace.verify import Driver
    from deinplace.verify.audit import audit as audited

    if config.output_format not in reports.FORMATS:
        known = ", ".join(reports.FORMATS)
        raise DeinplaceError(f"audit has no format {config.output_format}; it has {known}")
    sources, problems = gather(paths or ["."], config)
    driver = Driver.from_text(config.run, str(Path.cwd()), config.python, config.timeout, config.max_steps)
    with progress(quiet, verbose) as tell:
        found = audited(driver, sources, tell)
    found = replace(found, notes=(*(f"{p.path}: {p.message}" for p in problems), *found.notes))
    seen = output.view(Outcome("audit"), {}, verbose, quiet)
    seen = replace(seen, texts={path: source.text for path, source in sources.items()})
    output.put(reports.render(config.output_format, found, seen), output_file)
    return int(bool(found.of("needed")))
