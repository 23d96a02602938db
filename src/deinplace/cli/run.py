"""`deinplace run`: run a program under the probe, and say what overwrote what backward needed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deinplace.cli import exits
from deinplace.cli.options import (
    Color,
    ColorFlag,
    MaxSteps,
    OutputFile,
    OutputFormat,
    Paranoid,
    Python,
    Quiet,
    Reports,
    Timeout,
    Verbose,
    reports,
    settings,
)
from deinplace.errors import DeinplaceError

if TYPE_CHECKING:
    from deinplace.config import Config


def run(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="A script or a module and its arguments, or -- and a command."),
    ],
    module: Annotated[bool, typer.Option("-m", help="Run a module, as `python -m` does.")] = False,
    python: Python = None,
    paranoid: Paranoid = None,
    timeout: Timeout = None,
    max_steps: MaxSteps = None,
    output_format: OutputFormat = None,
    output_file: OutputFile = None,
    report: Reports = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorFlag = Color.auto,
) -> int:
    """Run a failing program and name every in-place write that backward trips over; nothing is changed.

    \b
    deinplace run train.py --lr 0.1
    deinplace run -m pkg.train
    deinplace run -- torchrun train.py

    The program keeps its standard streams and its arguments. Its exit code is passed on where it fails; where it runs
    to the end, 1 means findings. With an --output-format for other programs and no --output-file, the program's
    standard output goes to standard error, so that standard output holds the report alone.
    """
    config = settings(
        python=python, paranoid=paranoid, timeout=timeout, max_steps=max_steps, output_format=output_format
    )
    more = reports(report)
    if not module and program[0].endswith(".ipynb"):
        return _notebook(program, config, output_file, more, quiet, verbose, color)
    command, script = command_of(program, module, config.python)
    from deinplace.cli import output
    from deinplace.report import FOR_PEOPLE
    from deinplace.verify import Driver, diagnose

    folder = str(Path.cwd())
    title = shlex.join(("python", *command[1:]) if script or module else command)
    driver = Driver(command, folder, config.python, config.timeout, config.max_steps, title, config.paranoid)
    roots = tuple(dict.fromkeys((folder, str(script.resolve().parent)) if script else (folder,)))
    with _stdout_kept(apart=config.output_format not in FOR_PEOPLE and output_file is None):
        outcome = diagnose(driver, roots)
    if outcome.findings:
        remedy = shlex.join(("deinplace", "fix", ".", "--run", title))
        outcome = replace(outcome, notes=(*outcome.notes, f"to mend and prove it: {remedy}"))
    seen = output.view(outcome, {}, verbose, quiet)
    output.emit(outcome, seen, config.output_format, output_file, color, more=more)
    return exits.of_run(outcome)


def _notebook(
    program: list[str],
    config: Config,
    output_file: Path | None,
    more: tuple[tuple[str, Path], ...],
    quiet: bool,
    verbose: bool,
    color: Color,
) -> int:
    """Run a notebook's code cells in order, without Jupyter."""
    from deinplace.cli import output
    from deinplace.notebooks import drive
    from deinplace.report import FOR_PEOPLE
    from deinplace.verify import diagnose

    notebook = drive.named(program[0])
    python = config.python or default_python()
    driver = drive.driver(notebook, program[1:], python, config.timeout, config.max_steps)
    driver = replace(driver, paranoid=config.paranoid)
    apart = config.output_format not in FOR_PEOPLE and output_file is None
    with _stdout_kept(apart), drive.lines_named_by_cell(notebook):
        outcome = diagnose(driver, (driver.cwd, str(Path.cwd())))
    if outcome.findings:
        remedy = shlex.join(("deinplace", "fix", *program))
        outcome = replace(outcome, notes=(*outcome.notes, f"to mend and prove it: {remedy}"))
    seen = output.view(outcome, {}, verbose, quiet)
    output.emit(outcome, seen, config.output_format, output_file, color, more=more)
    return exits.of_run(outcome)


def command_of(program: list[str], module: bool, python: str | None) -> tuple[tuple[str, ...], Path | None]:
    """The command to start, and the script in it where there is one.

    Raises:
        DeinplaceError: the script does not exist.
    """
    interpreter = python or default_python()
    if module:
        return (interpreter, "-m", *program), None
    first = Path(program[0])
    if first.suffix == ".py" or (first.is_dir() and (first / "__main__.py").is_file()):
        if not first.exists():
            raise DeinplaceError(f"{first}: no such script")
        return (interpreter, *program), first
    return tuple(program), None


def default_python() -> str:
    """The active environment's interpreter, else the project's, else this one if it has torch, else the path's."""
    active = [os.environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    for folder in (*active, ".venv", "venv"):
        for name in ("bin/python", "python.exe", "Scripts/python.exe"):
            if (candidate := Path(folder, name).absolute()).is_file():
                return str(candidate)
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return shutil.which("python3") or shutil.which("python") or sys.executable


@contextlib.contextmanager
def _stdout_kept(apart: bool) -> Iterator[None]:
    """Where `apart`, what is written to standard output meanwhile, by children too, goes to standard error."""
    if not apart:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
