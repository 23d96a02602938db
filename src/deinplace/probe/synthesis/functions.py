"""Calls a function, or a method of an object, with arguments found by trial."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .guide import Guide
from .search import Found, Search, Slot, State
from .slots import arguments, slots
from .stage import Stage, call_text, differentiable, needed, scalar, snake
from .text import DOUBTED, Scene

CALLERS = 4
"""Functions that are called for the sake of what they call."""


def exercise_function(stage: Stage, function: Callable[..., Any]) -> None:
    """Scenes for a function of the file."""
    chosen = slots(function, True, Guide())
    imported = (stage.module.__name__, stage.name)
    calls(stage, function, chosen, stage.name, [], [imported], f"test_{snake(stage.name)}")
    if stage.left():
        from .optimizers import by_optimizers

        by_optimizers(stage)
    if stage.left():
        by_callers(stage, stage.name)
    if stage.left():
        from .modules import by_users

        by_users(stage, stage.name)


def by_callers(stage: Stage, name: str) -> None:
    """Functions of the file that name it, and those that name these: called, they may reach what is left."""
    module, names, seen = stage.module.__name__, [name], {name}
    while names and len(seen) <= CALLERS:
        called = names.pop(0)
        for thing in list(vars(stage.module).values()):
            if not _names(thing, called, module) or thing.__name__ in seen or stage.late() or not stage.left():
                continue
            own = thing.__name__
            seen.add(own)
            names.append(own)
            chosen = slots(thing, True, Guide())
            calls(stage, thing, chosen, own, [], [(module, own)], f"test_{snake(own)}", share=0.2, needs_new=True)


def _names(thing: Any, name: str, module: str) -> bool:
    """Whether something is a function of the file that names another."""
    if not inspect.isfunction(thing) or thing.__module__ != module:
        return False
    code = getattr(inspect.unwrap(thing), "__code__", None)
    return code is not None and name in code.co_names


def calls(
    stage: Stage,
    function: Callable[..., Any],
    chosen: list[Slot],
    text: str,
    before: list[str],
    imports: list[tuple[str, str]],
    name: str,
    numbers: tuple[int, ...] = (),
    tries: int = 60,
    share: float = 0.4,
    needs_new: bool = False,
    twin: Callable[..., Any] | None = None,
) -> State | None:
    """Search for arguments, then for others that reach what is left; the first state that worked, or None."""

    def once(state: State) -> Any:
        stage.calls += 1
        if twin is not None:
            _without_data(stage, twin, chosen, state)
        stage.seed()
        args, kwargs = stage.positional(chosen, state)
        out = function(*args, **kwargs)
        if differentiable(out):
            scalar(out).backward()
        return out

    search = Search(chosen, once, stage.tracer, stage.path, stage.soon(share), tries, numbers)
    first: State | None = None
    extra = 8
    for found in _trusted(search):
        if first is not None and not found.trial.lines.get(stage.path, set()) & stage.left():
            extra -= 1
            if extra < 0:
                break
            continue
        args = arguments(chosen, found.state)
        made, call = call_text(text, args)
        ends = found.trial.fault is not None or differentiable(found.trial.result)
        last = [f"out = {call}", "scalar(out).backward()"] if ends else [call]
        body = (*before, *made, *last)
        wants = (*imports, *needed(v for _, v, _ in args))
        kept = stage.keep(Scene(name, wants, body, stage.sliced), needs_new or first is not None)
        first = first or (found.state if kept or needs_new else None)
        if not stage.left() or (first is None and stage.late()):
            break
    stage.stuck = search.best if first is None else None
    if stage.stuck is not None:
        stage.blame(stage.stuck)
    return first


def _trusted(search: Search) -> Iterator[Found]:
    """What works; in-place errors that a wrong guess can cause come last, and only if nothing else works."""
    doubted: list[Found] = []
    clean = False
    for found in search.found():
        if found.trial.fault not in DOUBTED:
            clean = True
            yield found
            continue
        doubted.append(found)
        if len(doubted) == 12:
            break
    if not clean:
        yield from doubted[:1]


def _without_data(stage: Stage, twin: Callable[..., Any], chosen: list[Slot], state: State) -> None:
    """Call a copy that has shapes only; what needs data there says nothing."""
    try:
        with torch.device("meta"):
            args, kwargs = stage.positional(chosen, state)
            twin(*args, **kwargs)
    except NotImplementedError:
        return
    except RuntimeError as error:
        if not re.search("meta|Meta", str(error)):
            raise
