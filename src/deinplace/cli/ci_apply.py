"""`deinplace ci-apply`: apply a patch that an untrusted job made, if it is one that `fix` could have made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deinplace import ci


def ci_apply(
    patch: Annotated[Path, typer.Argument(metavar="PATCH", help="The patch that `fix` wrote in the other job.")],
    head: Annotated[str, typer.Option(metavar="SHA", help="The commit that the patch must be for; HEAD must be it.")],
    repository: Annotated[Path, typer.Option(help="The checkout to apply it to.")] = Path(),
    report: Annotated[Path | None, typer.Option(help="The JSON report of the same job, for the trailers.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Write the checked patch to this file as Markdown.")] = None,
    max_bytes: Annotated[int, typer.Option(min=1, help="Refuse a larger patch.")] = ci.MAX_BYTES,
    commit: Annotated[bool, typer.Option("--commit", help="Commit it, with trailers.")] = False,
) -> int:
    """Apply a patch made by a job that ran code under review, or refuse it (exit 2) and change nothing.

    Accepted are edits of lines in .py and .ipynb files that the commit holds as plain files, outside .github/. Run it
    where the reviewed code never runs. A commit that carries this command's own trailer is left alone.
    """
    data = ci.read(patch, max_bytes)
    told = ci.read_report(report) if report else None
    if ci.is_own(repository):
        print("this commit was made by deinplace: nothing to do")
        return 0
    names = ci.apply(data, repository, head)
    if not names:
        print("the patch is empty: nothing to do")
        return 0
    if summary:
        from deinplace.report.markdown import patch as shown

        summary.write_text(shown(data.decode("utf-8", "replace"), names), "utf-8")
    for name in names:
        print(f"changed {name}")
    if commit:
        print(f"commit {ci.commit(repository, ci.message_of(names, told))}")
    return 0
