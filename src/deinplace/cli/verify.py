"""`deinplace verify`: the same command in two states of a project, for changes made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deinplace.cli import exits
from deinplace.cli.options import (
    Color,
    ColorFlag,
    Device,
    MaxSteps,
    Modes,
    OutputFile,
    OutputFormat,
    Python,
    Quiet,
    Reports,
    Timeout,
    Verbose,
    reports,
    settings,
)
from deinplace.errors import DeinplaceError


def verify(
    base: Annotated[str, typer.Option(metavar="REV|DIR", help="What counts as right: a git revision or a folder.")],
    head: Annotated[
        str | None, typer.Option(metavar="REV|DIR", help="What is compared with it [default: the working tree].")
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="CMD", help="The program that trains, run in both.")] = None,
    modes: Modes = None,
    device: Device = None,
    python: Python = None,
    timeout: Timeout = None,
    max_steps: MaxSteps = None,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    report: Reports = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorFlag = Color.auto,
) -> int:
    """Compare the gradients, parameters and buffers of a program in two states of a project; nothing is changed.

    \b
    deinplace verify --base HEAD~1 --run "python train.py"
    deinplace verify --base old/ --head new/ --run "python train.py"

    A base that fails with an in-place error is run with a copy of each saved tensor, so that backward sees what the
    code meant. Exit codes: 0 both compute the same; 1 they do not, or it could not be shown; 2 nothing was compared.
    """
    config = settings(
        run=run, modes=modes, device=device, python=python, timeout=timeout, max_steps=max_steps,
        output_format=output_format,
    )  # fmt: skip
    if config.run is None:
        raise DeinplaceError('verify needs a program to compare with: --run "python train.py"')
    more = reports(report)
    from deinplace.cli import output
    from deinplace.cli.progress import progress
    from deinplace.verify import Driver
    from deinplace.verify.compare_trees import compare_trees

    driver = Driver.from_text(config.run, str(Path.cwd()), config.python, config.timeout, config.max_steps)
    with progress(quiet, verbose) as tell:
        outcome, texts = compare_trees(driver, base, head, tell, config.modes, config.device)
    seen = output.view(outcome, texts, verbose, quiet)
    output.emit(outcome, seen, config.output_format, output_file, color, more=more)
    return exits.of_comparison(outcome)
