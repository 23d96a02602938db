"""The second rung: tests of the project that import the files in question."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from deinplace.analysis.source import Source
from deinplace.verify.harness.copies import root_of
from deinplace.verify.harness.imports import module_of, tests_of
from deinplace.verify.harness.model import Harness, Target

MOST = 6
"""Test files that are run at most."""


def tests(sources: Mapping[str, Source], wanted: Sequence[Target], cwd: str) -> list[Harness]:
    """One harness for each test file: one that fails for a reason of its own costs the others nothing."""
    files: dict[str, dict[str, str]] = {}
    for path in dict.fromkeys(path for path, _ in wanted if path in sources):
        root = root_of(path, os.path.realpath(cwd))
        files.setdefault(root, {})[module_of(path, root)[1]] = path
    found = []
    for root, modules in files.items():
        for test, module in tests_of(root, modules):
            targets = tuple(target for target in wanted if target[0] == modules[module])
            name = os.path.relpath(test, root)
            command = ("python", "-m", "pytest", "-q", "-p", "no:randomly", name)
            found.append(Harness("tests", f"pytest {name}", root, targets, command=command))
    return found[:MOST]


def is_test(path: str) -> bool:
    """Whether pytest would take a file for one of tests."""
    name = Path(path).name
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
