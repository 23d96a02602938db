"""The typer application: one function a command, each from its own file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import deinplace
from deinplace.cli import audit, check, ci_apply, explain, fix, run, show_config, sweep, verify

_HELP = """Find the in-place write that breaks a PyTorch backward pass, rewrite it, and prove the gradients right.

Exit codes: 0 clean or all fixed; 1 findings left; 2 bad usage, a program that fails for another reason, or an internal
error; 130 interrupted."""


def command() -> Any:
    """The click command that `main` runs; its class depends on the version of typer."""
    app = typer.Typer(
        help=_HELP,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    # what follows the script belongs to the script, flags included
    app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
    app.command("fix")(fix.fix)
    app.command("check")(check.check)
    app.command("explain")(explain.explain)
    app.command("rules")(explain.rules)
    app.command("config")(show_config.config)
    app.command("ci-apply")(ci_apply.ci_apply)
    app.command("audit")(audit.audit)
    app.command("verify")(verify.verify)
    app.command("sweep")(sweep.sweep)
    return typer.main.get_command(app)


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"deinplace {deinplace.__version__}")
        raise typer.Exit(0)
