"""Exercises an optimizer: a few steps on small parameters, then the same with other options."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from typing import Any

import torch

from .classes import Builder
from .search import Search, State
from .slots import arguments
from .stage import Stage, needed, snake
from .text import Scene
from .values import Plain

PARAMETERS = Plain("[nn.Parameter(torch.randn(s)) for s in ((4, 3), (3,), (4, 3, 3, 3))]")
STEPS = 3
MOST = 24
"""Options that are tried, so as to reach what the defaults leave out."""


def exercise_optimizer(stage: Stage, cls: Any) -> None:
    """Scenes for an optimizer of the file."""
    builder = Builder(stage, cls)
    if not builder.slots:
        return
    first = replace(builder.slots[0], values=(PARAMETERS,), optional=False)
    builder.slots = [first, *builder.slots[1:]]

    def train(state: State) -> Any:
        stage.calls += 1
        stage.seed()
        args, kwargs = stage.positional(builder.slots, state)
        _steps(cls(*args, **kwargs))

    search = Search(builder.slots, train, stage.tracer, stage.path, stage.soon(0.5), 60)
    for found in itertools.islice(search.found(), 1):
        stage.built = True
        if _kept(stage, builder, found.state):
            _more(stage, builder, found.state, train)
    if not stage.scenes and search.best is not None:
        stage.reason = f"not built: {search.best.message}"


def by_optimizers(stage: Stage) -> None:
    """A function that the optimizers of its file call: their steps reach it."""
    for thing in list(vars(stage.module).values()):
        own = inspect.isclass(thing) and thing.__module__ == stage.module.__name__
        if own and issubclass(thing, torch.optim.Optimizer) and stage.left() and not stage.late():
            exercise_optimizer(stage, thing)


def _steps(optimizer: Any) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for _ in range(STEPS):
        optimizer.zero_grad()
        sum((p * p).sum() for p in parameters).backward()
        optimizer.step()


def _more(stage: Stage, builder: Builder, state: State, train: Any) -> None:
    """Other options, as long as lines are left that they reach."""
    for changed in itertools.islice(builder.flips(state), MOST):
        if stage.late() or not stage.left():
            return
        trial = stage.tracer.run(lambda changed=changed: train(changed))  # type: ignore[misc]
        if trial.done and trial.lines.get(stage.path, set()) & stage.left():
            _kept(stage, builder, changed)


def _kept(stage: Stage, builder: Builder, state: State) -> bool:
    """Keep the steps as a scene, where they reach what is wanted, or nothing else was asked for."""
    words = [f"{n}={v.text()}" if keyword else v.text() for n, v, keyword in arguments(builder.slots, state)[1:]]
    name = builder.cls.__qualname__
    body = (
        f"params = {PARAMETERS.text()}",
        f"optimizer = {name}({', '.join(['params', *words])})",
        f"for _ in range({STEPS}):",
        "    optimizer.zero_grad()",
        "    sum((p * p).sum() for p in params).backward()",
        "    optimizer.step()",
    )
    values = needed(v for _, v, _ in arguments(builder.slots, state)[1:])
    scene = Scene(f"test_{snake(name)}", (builder.own, *values), body, stage.sliced)
    return stage.keep(scene, needs_new=bool(stage.wanted)) or not stage.wanted
