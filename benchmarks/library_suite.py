"""A library's own tests, run on its sources as they are and on a rewritten copy: part of libraries.py (`--suite`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def compared(
    library: str, folder: Path, python: str, tests: Sequence[str], rewrite: Callable[[Path], object], work: Path
) -> int:
    """Print what passes before and after; 1 where a test's outcome differs.

    `folder` is an unpacked source distribution or a checkout; `rewrite` changes a package where it lies.
    """
    package = next((p for p in (folder / library, folder / "src" / library) if p.is_dir()), None)
    if package is None:
        raise SystemExit(f"libraries.py: {folder} holds no package {library}")
    outcomes: list[Mapping[str, str]] = []
    for name in ("before", "after"):
        copy = work / f"suite-{library}-{name}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", ".git"))
        if name == "after":
            rewrite(copy / package.relative_to(folder))
        outcomes.append(run(python, copy, copy / package.relative_to(folder).parent, tests))
        print(
            f"{name}: " + (", ".join(f"{n} {what}" for what, n in Counter(outcomes[-1].values()).items()) or "no test")
        )
    before, after = outcomes
    differs = sorted(t for t in before.keys() | after.keys() if before.get(t) != after.get(t))
    for test in differs:
        print(f"  {test}: {before.get(test, 'not run')} became {after.get(test, 'not run')}")
    print(f"{library}: {len(before)} tests, {len(differs)} with another outcome")
    return int(bool(differs) or not before)


def run(python: str, folder: Path, path: Path, tests: Sequence[str]) -> dict[str, str]:
    """The outcome of each test by its name."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--no-header"]
        command += ["-o", "addopts=", f"--junitxml={report}", *tests]
        env = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if not report.exists():
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            return {}
        return {f"{case.get('classname')}.{case.get('name')}": _outcome(case) for case in _cases(report)}


def _cases(report: Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(report).getroot().iter("testcase"))


def _outcome(case: ElementTree.Element) -> str:
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            return {"failure": "failed", "error": "in error", "skipped": "skipped"}[child.tag]
    return "passed"
