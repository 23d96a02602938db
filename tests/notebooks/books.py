"""Notebooks for tests, made by nbformat, and run in a real kernel by nbclient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import v4


def book(cells: Sequence[str], tags: dict[int, list[str]] | None = None) -> Any:
    """A notebook; a cell that begins with `md:` is text, the keys of `tags` are 1-based cells."""
    made = [v4.new_markdown_cell(c[3:]) if c.startswith("md:") else v4.new_code_cell(c) for c in cells]
    for number, names in (tags or {}).items():
        made[number - 1].metadata["tags"] = names
    for number, cell in enumerate(made):
        cell["id"] = f"cell-{number}"
    return v4.new_notebook(cells=made, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})


def put(path: Path, *cells: str, tags: dict[int, list[str]] | None = None) -> bytes:
    """Write a notebook as Jupyter does; its bytes."""
    nbformat.write(book(cells, tags), path)
    return path.read_bytes()


def sources(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, 4).cells]


class Kernel:
    """One real kernel that runs notebooks one after another, each in a clean namespace."""

    def __init__(self, folder: Path) -> None:
        self.client = NotebookClient(
            book([]), timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
        )

    def run(self, path: Path) -> dict[int, str]:
        """What each code cell prints or shows, by its 1-based number; stops where a cell fails, as Jupyter does.

        Raises:
            CellExecutionError: a cell failed.
        """
        self.client.nb = nbformat.read(path, 4)
        self.client.reset_execution_trackers()
        reset = v4.new_code_cell("get_ipython().reset(new_session=True)")
        self.client.nb.cells.append(reset)
        self.client.execute_cell(reset, len(self.client.nb.cells) - 1, store_history=False)
        shown = {}
        for number, cell in enumerate(self.client.nb.cells[:-1], 1):
            if cell.cell_type == "code":
                self.client.execute_cell(cell, number - 1)
                shown[number] = "".join(_text(output) for output in cell.outputs)
        return shown


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return str(output.get("data", {}).get("text/plain", ""))
