"""`deinplace sweep`: what `fix --diff` says of many repositories, taken up again where it was interrupted."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deinplace.cli.options import Quiet

if TYPE_CHECKING:
    from deinplace.sweep import Entry, Plan, Store

_HEAD = ("repository", "state", "findings", "fixable", "seconds")


def sweep(
    listing: Annotated[Path, typer.Argument(metavar="LIST", help="A file with a folder or git address on each line.")],
    flags: Annotated[list[str] | None, typer.Argument(metavar="-- FLAGS", help="More flags for `fix`.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the results.")] = Path("sweep"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Repositories at once [default: one a core].")] = None,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Only the I-th of N parts of the list.")] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Work on this Ray cluster; `auto` finds it.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that one repository may take.")] = 1800.0,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Do what failed before once more.")] = False,
    quiet: Quiet = False,
) -> int:
    """Run `fix --diff` over many repositories; nothing of them is changed, and what is done is not done again.

    \b
    A line of LIST: LOCATION [rev=REV] [path=PATH] [run="COMMAND"] [gpus=N]
    Code of a repository runs only where its line says run=.
    """
    from deinplace.sweep import Plan, Store, read
    from deinplace.sweep import shard as part

    entries = part(read(listing), shard)
    plan = Plan(tuple(flags or ()), timeout)
    store = Store(out)
    with store.locked(shard or "all"):
        keys = [entry.key(plan.text) for entry in entries]
        known = {key: store.get(key) for key in keys}
        todo = [e for e, key in zip(entries, keys, strict=True) if _open(known[key], retry_failed)]
        if len(todo) < len(entries) and not quiet:
            print(f"{len(entries) - len(todo)} of {len(entries)} were done before", file=sys.stderr)
        _work(todo, plan, store, ray, jobs or os.cpu_count() or 1, quiet)
        results = store.summarise(keys)
    records = [record for key in keys if (record := store.get(key)) is not None]
    print(_table(records))
    print(f"results: {results}, one file each in {store.records}", file=sys.stderr)
    return int(any(r["state"] != "done" or r["exit_code"] for r in records))


def _open(record: dict[str, Any] | None, retry: bool) -> bool:
    return record is None or (retry and record["state"] != "done")


def _work(todo: Sequence[Entry], plan: Plan, store: Store, ray: str | None, jobs: int, quiet: bool) -> None:
    from deinplace.sweep import engines

    if not todo:
        return
    ready = engines.on_ray(todo, plan, ray) if ray is not None else engines.local(todo, plan, jobs)
    for count, record in enumerate(ready, 1):
        store.put(record)
        if not quiet and sys.stderr.isatty():
            print(f"[{count}/{len(todo)}] {record['state']} {record['entry']['location']}", file=sys.stderr)


def _table(records: Sequence[dict[str, Any]]) -> str:
    """The records as an aligned table, with the reason below what failed."""
    rows = [_HEAD]
    for record in records:
        found = record["findings"]
        counted = (str(sum(found.values())), str(found.get("fixable", 0))) if record["state"] == "done" else ("-", "-")
        rows.append((record["entry"]["location"], record["state"], *counted, f"{record['seconds']:.1f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    why = [f"{r['entry']['location']}: {r['reason']}" for r in records if r["reason"]]
    return "\n".join([*lines, *why])
