"""Programs as text: run them, name what they raise, apply a rewrite, run them again."""

from __future__ import annotations

import ast
import contextlib
import sys
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from deinplace.analysis.source import Source, span_of
from deinplace.model import Conflict, Event, Place, Raised, Rewrite, Span
from deinplace.rules.base import Incident, Project

CATEGORIES = {
    "a leaf Variable that requires grad": "leaf",
    "a view of a leaf Variable": "leaf-view",
    "BackwardHookFunction": "hook-view",
    "created inside a custom Function": "function-view",
    "more than one element of the written-to tensor": "expanded",
    "Inplace update to inference tensor": "inference",
    "can't be cast to the desired output type": "cast",
    "backward through the graph a second time": "second-backward",
    "an't detach": "detach-view",
    "is a view and is being modified inplace": "multi-view",
    "has been modified by an inplace operation": "version",
}


@dataclass
class Program:
    """One file of code with markers: a comment `# <- NAME` names the statement that starts on its line."""

    code: str
    path: str
    globals: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return Source.parse(self.path, self.code.encode())

    @property
    def project(self) -> Project:
        return Project({self.path: self.source})

    def run(self) -> dict[str, Any]:
        module = types.ModuleType("program")
        exec(compile(self.code, self.path, "exec"), module.__dict__)
        self.globals = module.__dict__
        return self.globals

    def steps(self, cloned: bool = False) -> list[list[Any]]:
        """Gradients that each optimizer step consumed, then the parameters it left; `cloned` runs with every saved
        tensor cloned, which is what the code means whatever is overwritten later."""
        seen: list[list[Any]] = []

        def look(optimizer: Any, *_: Any) -> None:
            held = [p for g in optimizer.param_groups for p in g["params"]]
            seen.append([None if p.grad is None else p.grad.clone() for p in held])

        def left(optimizer: Any, *_: Any) -> None:
            seen.append([p.detach().clone() for g in optimizer.param_groups for p in g["params"]])

        before = register_optimizer_step_pre_hook(look)
        after = register_optimizer_step_post_hook(left)
        keep: Any = torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
        try:
            with keep if cloned else contextlib.nullcontext():
                self.run()
        finally:
            before.remove()
            after.remove()
        return seen

    def steps_if_it_runs(self) -> list[list[Any]] | None:
        """The steps, or None where backward still meets an overwritten tensor; other errors are passed on."""
        try:
            return self.steps()
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            return None

    def failure(self) -> Incident:
        """Run to the error, as the run stage would describe it."""
        try:
            self.run()
        except RuntimeError as error:
            return Incident(raised=Raised(self.category(str(error)), str(error), self.stack(error.__traceback__)))
        pytest.fail("the program was expected to raise")

    def category(self, message: str) -> str:
        return next((name for text, name in CATEGORIES.items() if text in message), "other")

    def stack(self, trace: types.TracebackType | None) -> tuple[Place, ...]:
        places: list[Place] = []
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename == self.path:
                at = list(code.co_positions())[trace.tb_lasti // 2]
                line, end_line, col, end_col = (int(v or 0) for v in at)
                places.insert(0, Place(self.path, Span(line, col, end_line, end_col), code.co_qualname))
            trace = trace.tb_next
        return tuple(places)

    def place(self, mark: str) -> Place:
        number = next(i for i, line in enumerate(self.code.splitlines(), 1) if f"# <- {mark}" in line)
        source = self.source
        node = next(n for n in ast.walk(source.tree) if isinstance(n, ast.stmt) and n.lineno == number)
        return Place(self.path, span_of(node), source.qualname(node))

    def conflict(self, save: str, write: str, backward: str, optimizer: str | None = "SGD") -> Incident:
        """A version conflict; each argument names markers, innermost frame first, parted by blanks."""
        stacks = [tuple(self.place(m) for m in marks.split()) for marks in (save, write, backward)]
        event = Event("aten::add_.Tensor", stacks[1], optimizer=optimizer)
        return Incident(Conflict("version", Event("AddmmBackward0", stacks[0]), (event,), "AddmmBackward0", stacks[2]))

    def apply(self, rewrite: Rewrite) -> Program:
        text = self.code
        for edit in sorted(rewrite.edits, key=lambda e: (e.start, e.end), reverse=True):
            text = text[: edit.start] + edit.new + text[edit.end :]
        return Program(text, self.path)


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Program]:
    """Turn (indented) code into a program of its own file."""
    numbers = iter(range(sys.maxsize))

    def make(code: str) -> Program:
        return Program(textwrap.dedent(code).lstrip("\n"), str(tmp_path / f"program{next(numbers)}.py"))

    return make
