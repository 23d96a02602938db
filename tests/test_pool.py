"""Work that is spread over processes: in order, and one that dies takes nobody with it."""

from __future__ import annotations

import os
import signal

import pytest

from deinplace import pool

forking = pytest.mark.skipif(not pool.can_fork(), reason="processes cannot be forked here")


def test_results_come_in_the_order_of_the_tasks() -> None:
    seen: list[int] = []
    assert list(pool.spread(lambda n: n * n, range(20), jobs=3)) == [n * n for n in range(20)]
    assert list(pool.spread(seen.append, [1], jobs=3)) == [None]
    assert seen == [1], "a single task is worth no process"


@forking
def test_processes_are_others_and_leave_this_one_alone() -> None:
    held: list[int] = []
    pids = list(pool.spread(lambda n: (held.append(n), os.getpid())[1], range(6), jobs=2))
    assert os.getpid() not in pids
    assert held == []


@forking
@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3)])
def test_a_process_that_dies_costs_one_task(end: object) -> None:
    def work(n: int) -> int:
        if n == 2:
            end()  # type: ignore[operator]
        return n

    found = list(pool.spread(work, range(6), jobs=2))
    assert [n for n in found if not isinstance(n, pool.Failure)] == [0, 1, 3, 4, 5]
    assert isinstance(found[2], pool.Failure)
    assert found[2].reason in ("its analysis was ended by signal 9", "its analysis was ended by exit code 3")


@forking
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="nobody counts memory here")  # noqa: PTH110
def test_a_task_that_takes_too_much_memory_is_given_up() -> None:
    found = list(pool.spread(lambda n: len(b"x" * (n << 20)), [1, 900, 2], jobs=2, memory=300 << 20))
    assert found[0] == 1 << 20 and found[2] == 2 << 20
    assert found[1] == pool.Failure("its analysis takes more than 300 MiB")


@forking
def test_too_deep_is_a_reason_too() -> None:
    def work(n: int) -> int:
        return work(n) if n else 0

    found = list(pool.spread(work, [0, 1], jobs=2))
    assert found == [0, pool.Failure("is nested too deeply to follow")]
