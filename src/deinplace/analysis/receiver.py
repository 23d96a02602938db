"""An instance to run a method on: constructed with unknown arguments, once for all methods of a class."""

from __future__ import annotations

from dataclasses import dataclass

from deinplace.analysis.arguments import arguments
from deinplace.analysis.context import special
from deinplace.analysis.index import ClassInfo, FunctionInfo
from deinplace.analysis.inline import inline
from deinplace.analysis.machine import Machine
from deinplace.analysis.members import walk
from deinplace.analysis.memory import Memory
from deinplace.analysis.records import Added, ExhaustedError, Settled
from deinplace.analysis.values import Cls, Fn, Obj, Other, Value


@dataclass(frozen=True)
class Built:
    """An instance, and all that its construction left behind; no memory where it took too many steps."""

    value: Obj
    memory: Memory | None
    before: Settled
    added: Added
    born: range
    """Ids of what was made."""
    steps: int
    notes: frozenset[str]
    ran: frozenset[tuple[str, str]]


def receiver(machine: Machine, info: FunctionInfo) -> Value | None:
    """What a function is bound to when it runs on its own; None for what is bound to nothing.

    Raises:
        ExhaustedError: the construction takes more steps than there are.
    """
    if info.owner is None or special(info.node) == "staticmethod":
        return None
    if special(info.node) == "classmethod":
        return Cls(info.owner)
    init = machine.find_method(info.owner, "__init__")
    if init is None or info.name == "__init__":
        return _empty(machine, info.owner)
    key = (info.owner, machine.glance)
    known = machine.receivers.get(key)
    if known is None or not known.ran.isdisjoint(machine.edited):
        known = _built(machine, info.owner, init)
        if not machine.edited:
            machine.receivers[key] = known
    else:
        machine.steps -= known.steps
        machine.notes |= known.notes
        machine.ran |= known.ran
    if known.memory is None:
        raise ExhaustedError
    machine.rewind(known.before, known.added)
    machine.mem = known.memory.fork()
    return known.value


def _empty(machine: Machine, owner: ClassInfo) -> Obj:
    fields: dict[object, Value] = {"training": Other("number")} if machine.is_module(owner) else {}
    return machine.record(fields, "instance", tag=owner)


def _built(machine: Machine, owner: ClassInfo, init: FunctionInfo) -> Built:
    """Run a class's constructor, counting from where it always counts."""
    settled = machine.settled()
    serial = machine.switch((owner.path, f"{owner.qualname}()"))
    before, notes, ran, first = machine.steps, machine.notes, machine.ran, machine.new_id()
    left = max(machine.steps - machine.most_built, 0)
    machine.steps -= left
    machine.notes, machine.ran, machine.passed = set(), set(), set()
    building, machine.building = machine.building, not machine.traced
    machine.constructing = machine.most_built < machine.most
    depth, given = len(machine.frames), machine.steps
    value = _empty(machine, owner)
    memory: Memory | None = None
    try:
        _construct(machine, owner, init, value)
        memory = machine.m
    except ExhaustedError:
        if machine.constructing:
            long = (f for f in machine.frames[depth + 1 :] if f.left >= given // 2)
            machine.endless.update((f.module.path, f.function) for f in long)
    finally:
        machine.building, machine.constructing = building, False
    machine.steps += left
    made = Built(
        value, memory, settled, machine.added(settled), range(first, machine.new_id() + 1), before - machine.steps,
        frozenset(machine.notes), frozenset(machine.ran),
    )  # fmt: skip
    machine.notes, machine.ran = notes | made.notes, ran | made.ran
    machine.switch_back(serial)
    return made


def _construct(machine: Machine, owner: ClassInfo, init: FunctionInfo, me: Obj) -> None:
    keep = machine.m.fork()
    args = [*init.node.args.posonlyargs, *init.node.args.args, *init.node.args.kwonlyargs]
    values = dict(arguments(machine, init, me, args))
    plain = [values.pop(a.arg) for a in (*init.node.args.posonlyargs, *init.node.args.args) if a.arg in values]
    fn = Fn(init, (), None, machine.defaults_of(init))
    inline(machine, fn, plain, {str(k): v for k, v in values.items()}, init.node.body[0], opened=True)
    if machine.mem is None:
        machine.mem = keep
    if not machine.lenient:
        for module in walk(machine, me, set()):  # it may be in evaluation
            machine.m.put(module.oid, "training", Other("number", machine.terms.make("training")))
    if machine.is_module(owner):
        machine.m.put(me.oid, "training", Other("number", machine.terms.make("training")))
