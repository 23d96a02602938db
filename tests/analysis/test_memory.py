"""Forks share what did not change: that may make no difference to what a memory holds, nor to how two of them meet."""

from __future__ import annotations

import random

import pytest

from deinplace.analysis.memory import Memory, join
from deinplace.analysis.terms import Terms
from deinplace.analysis.values import Const, Fields


def changed(memory: Memory, rng: random.Random) -> Memory:
    """The memory after a few random writes, forked on the way, as branches do."""
    for _ in range(rng.randrange(1, 60)):
        oid, value = rng.randrange(100), Fields({"x": Const(rng.randrange(5))})
        if memory.peek(oid) is None:
            memory.make(oid, value)
        else:
            memory.cells[oid] = value
        if rng.random() < 0.3:
            memory = memory.fork()
    return memory


def flat(memory: Memory) -> Memory:
    """The same memory, sharing nothing of what changed."""
    return Memory({**memory.under, **memory.cells}, memory.born, memory.limit, memory.kept)


def shown(memory: Memory | None) -> dict[int, object]:
    """What each id holds."""
    assert memory is not None
    held = {oid: memory.peek(oid) for oid in range(100)}
    return {oid: content.fields["x"] for oid, content in held.items() if isinstance(content, Fields)}


@pytest.mark.parametrize("seed", range(60))
def test_layers_make_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    start = changed(Memory(), rng)
    if rng.random() < 0.5:
        start.settle(50)
    other = start.fork()
    first, second = changed(start, rng), changed(other, rng)
    assert shown(first) == shown(flat(first))
    assert shown(join(first, second, Terms(), 1)) == shown(join(flat(first), flat(second), Terms(), 1))


def test_a_fork_does_not_see_later_changes() -> None:
    memory = Memory()
    for oid in range(200):
        memory.make(oid, Fields({"x": Const(oid)}))
    fork = memory.fork()
    memory.put(3, "x", Const("later"))
    fork.put(4, "x", Const("there"))
    assert (fork.fields(3).fields["x"], memory.fields(4).fields["x"]) == (Const(3), Const(4))
    assert (memory.changed(3), memory.changed(200)) == (Fields({"x": Const("later")}), None)


def test_paths_that_changed_different_things_keep_both() -> None:
    memory = Memory()
    for oid in range(200):
        memory.make(oid, Fields({"x": Const(oid)}))
    first = memory.fork()
    second = memory.fork()
    first.put(1, "x", Const("first"))
    second.put(2, "y", Const("second"))
    met = join(first, second, Terms(), 1)
    assert met is not None and met.under is memory.under
    assert set(met.fields(2).fields) == {"x", "y"}
    assert repr(met.fields(1).fields["x"]).count("Const") == 2
