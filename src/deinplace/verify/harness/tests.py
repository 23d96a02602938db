"""The second rung: tests of the project that import the files in question."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from deinplace.analysis.source import Source
from deinplace.probe.errors import classify
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
            command = ("python", "-m", "pytest", "-q", "-rfE", "--color=no", "-p", "no:randomly", name)
            found.append(Harness("tests", f"pytest {name}", root, targets, command=command))
    return found[:MOST]


def passing(harness: Harness, output: str) -> Harness | None:
    """The tests of a file less those that fail by themselves, by what a run printed; None where nothing would be left.

    Tests that fail with an in-place error are what is looked for: they stay.
    """
    failed = [node for node, why in _failed(output) if classify(why) is None]
    if not failed or "--deselect" in harness.command or not all("::" in node for node in failed):
        return None
    if re.search(r"\b[1-9]\d* passed\b", output) is None and len(failed) == sum(1 for _ in _failed(output)):
        return None
    words = (word for node in failed for word in ("--deselect", node))
    count = f"{len(failed)} test{'s' * (len(failed) > 1)}"
    title = f"{harness.title} without {count} of it that {'fail' if len(failed) > 1 else 'fails'} anyway"
    return replace(harness, title=title, command=(*harness.command, *words))


def _failed(output: str) -> Iterator[tuple[str, str]]:
    """Tests in pytest's summary of failures, each with the reason; parameters may hold what ends a name elsewhere."""
    for line in output.splitlines():
        found = re.fullmatch(r"(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - (.*))?", line)
        if found is not None:
            yield found[1], found[2] or ""


def is_test(path: str) -> bool:
    """Whether pytest would take a file for one of tests."""
    name = Path(path).name
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
