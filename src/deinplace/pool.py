"""Work on many files at once in forked processes: results in order, and a process that dies costs one file."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
MEMORY = 4 << 30
"""Bytes that a process may take besides what it was forked with."""


@dataclass(frozen=True)
class Failure:
    """Why there is no result for a task."""

    reason: str


@dataclass
class _Worker(Generic[Task]):
    """A process, and the number of the task that it works on; None while it waits."""

    process: ForkProcess
    pipe: Connection
    task: int | None = None


def cores() -> int:
    """How many processes may run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def can_fork() -> bool:
    """True where processes can be forked safely: the platform knows how, and no other thread runs."""
    return (
        sys.platform != "win32" and "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    )


def spread(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, memory: int = MEMORY
) -> Iterator[Result | Failure]:
    """`work` of each task, in the order of the tasks, whichever process is done first.

    Processes are forked, so that `work` finds everything as it is here; what it changes stays in its process. A task
    whose process dies, or takes more than `memory` bytes, gives a `Failure`; the others go on.
    """
    if jobs < 2 or len(tasks) < 2 or not can_fork():
        yield from map(work, tasks)
        return
    done: dict[int, Result | Failure] = {}
    todo = iter(range(len(tasks)))
    workers: list[_Worker[Task]] = []
    try:
        for _ in range(min(jobs, len(tasks))):
            _next(workers, todo, work, tasks, memory)
        for wanted in range(len(tasks)):
            while wanted not in done:
                _collect(workers, todo, done, work, tasks, memory)
            yield done.pop(wanted)
    finally:
        for worker in workers:
            worker.pipe.close()
            worker.process.terminate()
            worker.process.join()


def _next(
    workers: list[_Worker[Task]],
    todo: Iterator[int],
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    memory: int,
) -> None:
    """One more process with the next task, if there is one."""
    number = next(todo, None)
    if number is None:
        return
    here, there = multiprocessing.Pipe()
    others = [here, *(worker.pipe for worker in workers)]
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(there, others, work, tasks, memory), daemon=True
    )
    process.start()
    there.close()
    here.send(number)
    workers.append(_Worker(process, here, number))


def _collect(
    workers: list[_Worker[Task]],
    todo: Iterator[int],
    done: dict[int, Result | Failure],
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    memory: int,
) -> None:
    """Take in what at least one process has to say, and give it its next task."""
    ready = wait([worker.pipe for worker in workers])
    for worker in [w for w in workers if w.pipe in ready]:
        assert worker.task is not None
        try:
            done[worker.task] = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            workers.remove(worker)
            worker.pipe.close()
            done[worker.task] = Failure(f"its analysis was ended by {_ended(worker.process.exitcode)}")
            _next(workers, todo, work, tasks, memory)
            continue
        number = next(todo, None)
        if number is None:
            workers.remove(worker)
            worker.pipe.close()
            worker.process.join()
            continue
        worker.task = number
        worker.pipe.send(number)


def _serve(
    pipe: Connection,
    others: list[Connection],
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    memory: int,
) -> None:
    """What a process does: one task after another, until nobody asks any more."""
    for other in others:
        other.close()
    _limit(memory)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            number = pipe.recv()
            try:
                answer: Result | Failure = work(tasks[number])
            except MemoryError:
                answer = Failure(f"its analysis takes more than {memory >> 20} MiB")
            except RecursionError:
                answer = Failure("is nested too deeply to follow")
            pipe.send(answer)


def _limit(memory: int) -> None:
    """Let this process grow by so many bytes, where the platform can say so."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    import resource

    now = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now + memory if hard == resource.RLIM_INFINITY else min(now + memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def _ended(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
