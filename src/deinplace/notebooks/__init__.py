"""Jupyter notebooks: read as one module, edited cell by cell, and named by their cells in every report."""

from __future__ import annotations

from deinplace.notebooks.source import Notebook, read

SUFFIX = ".ipynb"

__all__ = ["SUFFIX", "Notebook", "read"]
