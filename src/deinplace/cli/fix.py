"""`deinplace fix`: rewrite what breaks backward, prove it, and only then write it."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deinplace.cli import exits
from deinplace.cli.options import (
    Baseline,
    CacheDir,
    CacheFlag,
    Color,
    ColorFlag,
    Device,
    Exclude,
    ExitZero,
    ExtendExclude,
    ExtendSelect,
    Fixable,
    ForceExclude,
    Harnesses,
    HarnessTimeout,
    Ignore,
    MaxSteps,
    Modes,
    OutputFile,
    OutputFormat,
    Paranoid,
    Paths,
    Preview,
    Python,
    Quiet,
    Reports,
    RespectGitignore,
    Select,
    ShowHarness,
    Statistics,
    StdinFilename,
    Timeout,
    TypesFlag,
    Unfixable,
    Verbose,
    Verify,
    reports,
    selected,
    settings,
)
from deinplace.cli.options import fixable as rules_that_may_fix
from deinplace.errors import DeinplaceError

if TYPE_CHECKING:
    from deinplace.analysis.source import Source
    from deinplace.config import Config
    from deinplace.model import Outcome
    from deinplace.verdicts import Verdicts
    from deinplace.verify import Asked, Driver, Options

_UNASKED = frozenset({"output_format", "baseline", "jobs", "cache", "cache_dir"})
"""Settings that change nothing about a proof."""


def fix(
    paths: Paths = None,
    run: Annotated[str | None, typer.Option(metavar="CMD", help="The program that proves a rewrite.")] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print the patch, write nothing; exit 1 if there is one.")
    ] = False,
    all_sites: Annotated[bool | None, typer.Option("--all", help="Rewrite every tensor write that ran.")] = None,
    unsafe: Annotated[bool | None, typer.Option("--unsafe", help="Apply rewrites that are not proved, too.")] = None,
    verify: Annotated[Verify | None, typer.Option(help="Proof that a rewrite needs [default: auto].")] = None,
    max_runs: Annotated[int | None, typer.Option(min=1, help="So many runs at most [default: 40].")] = None,
    harness: Harnesses = None,
    harness_timeout: HarnessTimeout = None,
    show_harness: ShowHarness = False,
    modes: Modes = None,
    device: Device = None,
    python: Python = None,
    types: TypesFlag = None,
    paranoid: Paranoid = None,
    timeout: Timeout = None,
    max_steps: MaxSteps = None,
    select: Select = None,
    ignore: Ignore = None,
    extend_select: ExtendSelect = None,
    preview: Preview = None,
    fixable: Fixable = None,
    unfixable: Unfixable = None,
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
    cache: CacheFlag = None,
    cache_dir: CacheDir = None,
    exit_zero: ExitZero = False,
    exit_non_zero_on_fix: Annotated[
        bool, typer.Option("--exit-non-zero-on-fix", help="Exit 1 where something was rewritten.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorFlag = Color.auto,
) -> int:
    """Rewrite in-place writes that break backward, and check the gradients before anything is written.

    \b
    deinplace fix . --run "python train.py"
    """
    config = settings(
        types=types, harness=harness, harness_timeout=harness_timeout,
        run=run, all=all_sites, unsafe=unsafe, verify=verify, max_runs=max_runs, python=python, timeout=timeout,
        modes=modes, device=device, paranoid=paranoid, max_steps=max_steps,
        select=select, ignore=ignore, extend_select=extend_select, preview=preview,
        fixable=fixable, unfixable=unfixable, exclude=exclude, extend_exclude=extend_exclude,
        force_exclude=force_exclude, respect_gitignore=respect_gitignore, output_format=output_format,
        baseline=baseline, cache=cache, cache_dir=cache_dir,
    )  # fmt: skip
    if config.verify == "require" and not (config.run or config.harness):
        raise DeinplaceError('--verify require needs a program to verify with: --run "python train.py"')
    more = reports(report)
    from deinplace.cli import baselines, output

    given = paths or ["."]
    if config.run is None and len(given) == 1 and given[0].endswith(".ipynb") and config.verify != "off":
        config = replace(config, run=shlex.quote(given[0]))  # a notebook is its own program
    if given == ["-"]:
        config = replace(config, run=None, harness=False)  # what an editor holds is not what a program would import
        if run is not None and not quiet:
            print("deinplace: standard input is not verified: --run is left out", file=sys.stderr)
    if show_harness:
        return _shown(given, config, stdin_filename)
    outcome, sources = _mended(given, config, quiet, verbose, stdin_filename)
    seen = output.view(outcome, {path: source.text for path, source in sources.items()}, verbose, quiet)
    outcome = replace(outcome, findings=baselines.chosen(outcome.findings, selected(config)))
    outcome = baselines.commented(outcome, sources)
    outcome = baselines.silenced(outcome, config.baseline, config.root, seen)
    if given == ["-"] and not diff:
        outcome = _filtered(outcome, sources)
        output.emit(replace(outcome, changes=()), seen, config.output_format, output_file, color, more=more, apart=True)
        return exits.of_findings(outcome, exit_zero, exit_non_zero_on_fix)
    outcome = _proposed(outcome) if diff else _written(outcome, sources, given)
    output.emit(outcome, seen, config.output_format, output_file, color, diff, more)
    if statistics:
        output.statistics(outcome, config.output_format, output_file)
    return exits.of_findings(outcome, exit_zero, exit_non_zero_on_fix)


def _mended(
    given: list[str], config: Config, quiet: bool, verbose: bool, stdin_name: str | None
) -> tuple[Outcome, Mapping[str, Source]]:
    """What `mend` makes of the files, and the files themselves."""
    from deinplace.cli.checkers import evidence
    from deinplace.cli.progress import progress
    from deinplace.cli.sources import gather
    from deinplace.model import Outcome

    gc.disable()  # trees and values of a whole project live to the end: looking for garbage is half the time
    sources, problems = gather(given, config, stdin_name)
    if config.run is not None:
        gc.freeze()
        gc.enable()
    if not sources:
        return Outcome("fix", problems=problems), sources
    from deinplace.verify import mend, mend_unasked

    verdicts = _verdicts(given, config, sources)
    if verdicts is not None and (proved := verdicts.recall()) is not None:
        return replace(proved, problems=problems, files=len(sources)), sources
    if any(path.endswith(".ipynb") for path in sources):
        from deinplace.notebooks.source import require_nbformat

        require_nbformat()
    checkers = evidence(config, sources, edited=given == ["-"])
    options = replace(_options(config), refine=checkers)
    with progress(quiet, verbose) as tell, _cells_named(sources):
        if config.run is None and config.harness and config.verify != "off":
            outcome = mend_unasked(sources, options, _asked(config), tell)
        else:
            outcome = mend(_driver(config), sources, options, tell)
    if verdicts is not None:
        verdicts.keep(outcome)
    notes = (*outcome.notes, *(checkers.notes if checkers is not None else ()))
    return replace(outcome, problems=(*problems, *outcome.problems), notes=notes, files=len(sources)), sources


def _verdicts(given: list[str], config: Config, sources: Mapping[str, Source]) -> Verdicts | None:
    """Where proved patches are kept; None where nothing is proved, or nothing is to be kept."""
    if not config.cache or config.verify == "off" or given == ["-"] or not (config.run or config.harness):
        return None
    from deinplace import cache
    from deinplace.cli.checked import packages
    from deinplace.cli.run import default_python
    from deinplace.verdicts import question

    python = config.python or default_python()
    settings = [(f.name, getattr(config, f.name)) for f in fields(config) if f.name not in _UNASKED]
    more = [Path(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if Path(part).is_dir() and part]
    store = cache.Cache(cache.folder(config.cache_dir))
    held = {path: source.on_disk for path, source in sources.items()}
    return question(store, held, Path.cwd(), [*settings, python, *packages(python)], more)


def _options(config: Config) -> Options:
    from deinplace.verify import Options

    options = Options(
        all_sites=config.all, unsafe=config.unsafe, max_runs=config.max_runs, verify=config.verify,
        modes=config.modes, device=config.device,
    )  # fmt: skip
    codes = rules_that_may_fix(config)
    return options if codes is None else replace(options, select=codes)


def _shown(given: list[str], config: Config, stdin_name: str | None) -> int:
    """Print the harnesses; nothing is mended."""
    from deinplace.cli.sources import gather
    from deinplace.verify.harness.show import shown

    sources, _ = gather(given, config, stdin_name)
    options = _options(config)
    sys.stdout.write(shown(sources, options, str(Path.cwd()), config.python, config.harness_timeout))
    return 0


def _asked(config: Config) -> Asked:
    from deinplace.verify import Asked

    if config.python is not None and shutil.which(config.python) is None:
        raise DeinplaceError(f"--python {config.python}: no such program")
    folder, require = str(Path.cwd()), config.verify == "require"
    return Asked(folder, config.python, config.harness_timeout, config.paranoid, require)


def _driver(config: Config) -> Driver | None:
    from deinplace.verify import Driver

    if config.run is None:
        return None
    folder = str(Path.cwd())
    driver = Driver.from_text(config.run, folder, config.python, config.timeout, config.max_steps)
    if driver.command[0].endswith(".ipynb"):
        from deinplace.cli.run import default_python
        from deinplace.notebooks import drive

        program, *arguments = driver.command
        python = config.python or default_python()
        driver = drive.driver(drive.named(program), arguments, python, config.timeout, config.max_steps)
    return replace(driver, paranoid=config.paranoid)


@contextlib.contextmanager
def _cells_named(sources: Mapping[str, Source]) -> Iterator[None]:
    """Errors that name lines of a notebook's module name cells instead."""
    try:
        yield
    except DeinplaceError as error:
        notebooks = {path: source.text for path, source in sources.items() if path.endswith(".ipynb")}
        if not notebooks:
            raise
        from deinplace.notebooks.reports import located

        raise DeinplaceError(located(error.message, notebooks), located(error.detail, notebooks)) from None


def _written(outcome: Outcome, sources: Mapping[str, Source], given: list[str]) -> Outcome:
    """The outcome once its changes stand in the files."""
    from deinplace.writing import Write, tree_of, write_all

    if not outcome.changes:
        return outcome
    writes = []
    for change in outcome.changes:
        source = sources[change.path]
        writes.append(Write(change.path, source.on_disk, source.written(change.after)))
    write_all(writes, tree_of(given))
    findings = tuple(replace(f, state="fixed") if f.state == "fixable" else f for f in outcome.findings)
    return replace(outcome, findings=findings, written=True)


def _filtered(outcome: Outcome, sources: Mapping[str, Source]) -> Outcome:
    """The outcome once the text of standard input, mended, stands on standard output; nothing where it is no Python."""
    for source in sources.values():
        after = next((change.after for change in outcome.changes), source.text)
        sys.stdout.buffer.write(source.written(after) if after != source.text else source.on_disk)
        sys.stdout.buffer.flush()
    findings = tuple(replace(f, state="fixed") if f.state == "fixable" else f for f in outcome.findings)
    return replace(outcome, findings=findings, written=bool(outcome.changes))


def _proposed(outcome: Outcome) -> Outcome:
    """The outcome of a dry run: what would be fixed is only fixable."""
    findings = tuple(replace(f, state="fixable") if f.state == "fixed" else f for f in outcome.findings)
    return replace(outcome, findings=findings, written=False)
