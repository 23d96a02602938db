"""What makes a finding the same finding after other lines moved, and the file that lists findings to live with."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from deinplace.errors import DeinplaceError
from deinplace.model import Finding

VERSION = 1
Line = Callable[[str, int], str | None]
"""Gives a file's 1-based line, or None where it is not known."""


def fingerprints(findings: Sequence[Finding], line: Line, name: Callable[[str], str]) -> list[str]:
    """For each finding a digest of its rule, its file's `name`, and the text of the line that it is on.

    Line numbers do not enter, so that code may move; of several equal ones in a file each gets a number of its own.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    out = []
    for finding in findings:
        text = " ".join((line(finding.path, finding.span.line) or "").split())
        key = (finding.rule, name(finding.path), text)
        seen[key] += 1
        out.append(hashlib.sha256("\0".join((*key, str(seen[key]))).encode("utf-8", "replace")).hexdigest())
    return out


def read(path: Path) -> frozenset[str]:
    """The fingerprints that a baseline file lists.

    Raises:
        DeinplaceError: the file cannot be read, or is not a baseline.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DeinplaceError(f"{path}: the baseline cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DeinplaceError(f"{path}: is not a baseline: {error}") from None
    if not isinstance(data, dict) or data.get("baseline_version") != VERSION:
        raise DeinplaceError(f"{path}: is not a baseline of version {VERSION}; write it anew with --write-baseline")
    entries = data.get("findings")
    marks = [e.get("fingerprint") if isinstance(e, dict) else None for e in entries or ()]
    if not isinstance(entries, list) or not all(isinstance(mark, str) for mark in marks):
        raise DeinplaceError(f"{path}: is not a baseline: `findings` must be a list of fingerprints")
    return frozenset(str(mark) for mark in marks)


def render(findings: Iterable[Finding], marks: Iterable[str], name: Callable[[str], str]) -> str:
    """A baseline file that lists these findings; what stands beside the fingerprints is for people."""
    entries: list[dict[str, Any]] = [
        {"path": name(f.path), "rule": f.rule, "name": f.name, "fingerprint": mark}
        for f, mark in zip(findings, marks, strict=True)
    ]
    entries.sort(key=lambda e: (e["path"], e["rule"], e["fingerprint"]))
    return json.dumps({"baseline_version": VERSION, "findings": entries}, indent=1) + "\n"
