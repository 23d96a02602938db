"""A notebook's own code as the program that shows a fault and proves a rewrite."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import deinplace.probe
from deinplace.errors import DeinplaceError
from deinplace.files import load
from deinplace.notebooks.reports import located
from deinplace.notebooks.source import Notebook
from deinplace.verify.drivers import Driver, DriverError

_RUNNER = Path(deinplace.probe.__file__).resolve().parent / "notebook.py"


def driver(notebook: Notebook, arguments: Sequence[str], python: str, timeout: float, max_steps: int | None) -> Driver:
    """Runs the cells in order in the notebook's folder, as Jupyter does, in the interpreter `python`."""
    path = Path(notebook.path)
    command = (python, str(_RUNNER), notebook.path, *arguments)
    title = shlex.join((path.name, *arguments))
    texts = ((notebook.path, notebook.data),)
    return Driver(command, str(path.parent), python, timeout, max_steps, title, texts=texts)


def named(path: str) -> Notebook:
    """The notebook at `path`.

    Raises:
        DeinplaceError: there is none that could be run.
    """
    if not Path(path).is_file():
        raise DeinplaceError(f"{path}: no such notebook")
    real = str(Path(path).resolve())
    sources, problems = load((real,))
    source = sources.get(real)
    if not isinstance(source, Notebook):
        raise DeinplaceError(f"{path}: {problems[0].message if problems else 'is no notebook'}")
    return source


@contextlib.contextmanager
def lines_named_by_cell(notebook: Notebook) -> Iterator[None]:
    """Errors of a driver that name lines of the notebook name cells instead."""
    try:
        yield
    except DriverError as error:
        raise DriverError(located(error.message, {notebook.path: notebook.text}), detail=error.detail) from None
