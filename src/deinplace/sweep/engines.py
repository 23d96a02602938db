"""Where a sweep works: in threads of this machine that wait for child processes, or on a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any

from deinplace.errors import DeinplaceError
from deinplace.sweep.entries import Entry
from deinplace.sweep.task import Plan, Record, carry_out

_PATIENCE = 5.0
"""Seconds to wait for a cluster's first answer."""
RETRIES = 5
"""So often a task begins anew when the machine that it ran on is lost."""


def local(entries: Sequence[Entry], plan: Plan, jobs: int) -> Iterator[dict[str, Any]]:
    """Records as they are ready, `jobs` entries at once."""
    stop = threading.Event()
    pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="sweep")
    try:
        pending = {pool.submit(carry_out, entry, plan, stop.is_set) for entry in entries}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def on_ray(entries: Sequence[Entry], plan: Plan, address: str) -> Iterator[dict[str, Any]]:
    """Records as they are ready, from the tasks of a Ray cluster whose nodes have deinplace installed.

    A task whose node dies is begun anew elsewhere; what it had done is lost with its temporary folder, so nothing is
    counted twice. An entry that asks for GPUs waits for a node that has them.

    Raises:
        DeinplaceError: Ray is not installed, or nothing answers at `address`.
    """
    try:
        ray: Any = importlib.import_module("ray")  # an extra, and most of it has no types
    except ImportError:
        raise DeinplaceError("--ray needs Ray: pip install 'deinplace[ray]'") from None
    _knock(address)
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise DeinplaceError(f"--ray {address}: no cluster answers: {str(error).splitlines()[0]}") from None
    remote = ray.remote(max_retries=RETRIES)(carry_out)
    try:
        most = max((node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        for entry in entries:
            if entry.gpus > most:
                reason = f"asks for {entry.gpus:g} GPUs, no node of the cluster has more than {most:g}"
                yield _failed(entry, plan, reason)
        able = [entry for entry in entries if entry.gpus <= most]
        asked = {remote.options(num_cpus=1, num_gpus=e.gpus).remote(e, plan): e for e in able}
        while asked:
            ready, _ = ray.wait(list(asked), num_returns=1)
            for ref in ready:
                yield _answer(ray, ref, asked.pop(ref), plan)
    finally:
        ray.shutdown()


def _answer(ray: Any, ref: Any, entry: Entry, plan: Plan) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ray.get(ref)
    except ray.exceptions.RayError as error:
        return _failed(entry, plan, f"the cluster gave it up: {str(error).strip().splitlines()[0]}")
    return answer


def _failed(entry: Entry, plan: Plan, reason: str) -> dict[str, Any]:
    return Record(entry.key(plan.text), asdict(entry), "failed", reason).plain()


def _knock(address: str) -> None:
    """Ask a plain HOST:PORT whether anybody listens: Ray itself would try for minutes, and end the process.

    Raises:
        DeinplaceError: nobody does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise DeinplaceError(f"--ray {address}: no cluster answers: {error}") from None
