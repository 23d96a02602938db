"""Runs the code cells of a notebook in order, as a kernel would, without a kernel: `python notebook.py NB.ipynb ARGS`.

The module that stands for the notebook comes from the run's overlay. Each cell is compiled by itself, as `from
__future__` lines and top-level `await` in any of them ask for; all share one `__main__`.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    del sys.path[0]  # this folder: its modules must not hide the user's

import __future__

import ast
import builtins
import importlib
import inspect
import io
import json
import linecache
import os
import traceback
from contextlib import redirect_stderr
from types import CodeType, ModuleType, TracebackType
from typing import Any

_FEATURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


def main(path: str) -> int:
    """Run the notebook; the exit code is 1 where a cell fails, as the rest would not run either."""
    with open(os.environ["DEINPLACE_PROBE"], encoding="utf-8") as file:
        settings = json.load(file)
    overlay = importlib.import_module("_deinplace_probe.overlay").Overlay(settings["overlay"], settings["functions"])
    cells = importlib.import_module("_deinplace_probe.cells")
    shell = importlib.import_module("_deinplace_probe.shell")
    with open(overlay.texts[path], encoding="utf-8", newline="") as file:
        text = file.read()
    tree = overlay.tree(path, text)
    linecache.cache[path] = (len(text), None, cells.restored(text).splitlines(keepends=True), path)
    sys.path.insert(0, os.path.dirname(path))
    os.environ.setdefault("MPLBACKEND", "agg")  # a window would wait for somebody to close it
    main_module = ModuleType("__main__")
    sys.modules["__main__"] = main_module
    machine = _Machine(path, main_module.__dict__, shell.install(main_module.__dict__))
    found = cells.cells(text)
    hook = sys.excepthook
    for cell in found:
        body = [node for node in tree.body if cell.first - 1 <= node.lineno <= cell.last]
        if cell.broken or "skip-execution" in cell.tags:
            continue
        try:
            machine.run(shell.calls(body))
        except Exception as error:  # noqa: BLE001  whatever a cell raises ends the run, and is shown
            if "raises-exception" in cell.tags:
                continue
            _show(hook, error, path, text, cells)
            return 1
    return 0


class _Machine:
    """What cells share: their names, the `__future__` of earlier ones, and the results that IPython keeps."""

    def __init__(self, path: str, names: dict[str, Any], magic: Any) -> None:
        self.path, self.names, self.flags = path, names, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        names[magic.__name__] = magic
        names.update(_="", __="", ___="", In=[""], Out={})
        self.loop: Any = None

    def run(self, body: list[ast.stmt]) -> None:
        """Run a cell. The value of an expression at its end is shown and kept, unless it is None."""
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        if body:
            self._execute(ast.Module(body, []), "exec")
        if isinstance(last, ast.Expr):
            value = self._execute(ast.Expression(last.value), "eval")
            if value is not None:
                names = self.names
                names["___"], names["__"], names["_"] = names["__"], names["_"], value
                names["Out"][len(names["Out"]) + 1] = value
                print(repr(value))

    def _execute(self, tree: ast.Module | ast.Expression, mode: str) -> Any:
        code: CodeType = compile(tree, self.path, mode, flags=self.flags, dont_inherit=True)
        self.flags |= code.co_flags & _FEATURES
        value = eval(code, self.names)
        if not code.co_flags & inspect.CO_COROUTINE:
            return value
        if self.loop is None:
            import asyncio

            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(value)


def _show(hook: Any, error: BaseException, path: str, text: str, cells: Any) -> None:
    """Tell the probe of the error that ends the run, and print its traceback with cells in the place of lines."""
    trace: TracebackType | None = error.__traceback__
    with redirect_stderr(io.StringIO()):
        hook(type(error), error, trace)
    shown = traceback.TracebackException(type(error), error, trace)
    found = cells.cells(text)
    one: traceback.TracebackException | None = shown
    while one is not None:
        kept = []
        for frame in one.stack:
            if frame.filename == __file__:
                continue
            if frame.filename == path and frame.lineno:
                _ = frame.line
                cell = cells.cell_at(found, frame.lineno)
                frame.filename, frame.lineno = f"{path}:cell {cell.number}", frame.lineno - cell.first + 1
                if hasattr(frame, "end_lineno"):
                    frame.end_lineno = frame.lineno
            kept.append(frame)
        one.stack = traceback.StackSummary.from_list(kept)
        one = one.__cause__ or one.__context__
    print("".join(shown.format()), end="", file=sys.stderr)


if __name__ == "__main__":
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    sys.argv = sys.argv[1:]
    sys.exit(main(os.path.realpath(sys.argv[0])))
