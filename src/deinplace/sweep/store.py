"""The results of a sweep: one JSON file an entry, written once; what is there is not done again."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from deinplace.errors import DeinplaceError


class Store:
    """A folder of records.

    Raises:
        DeinplaceError: the folder cannot be made, or another sweep writes to it now.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = folder / "records"
        try:
            self.records.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeinplaceError(f"{folder}: cannot be made: {error.strerror}") from None

    @contextlib.contextmanager
    def locked(self, shard: str) -> Iterator[None]:
        """Keep a second sweep of the same part out of this folder while one is at work."""
        lock = FileLock(self.folder / f".lock-{shard.replace('/', '-')}")
        try:
            with lock.acquire(timeout=0):
                yield
        except Timeout:
            raise DeinplaceError(
                f"{self.folder}: another sweep writes to it; wait for it, or use another --out"
            ) from None

    def get(self, key: str) -> dict[str, Any] | None:
        """The record of a key; None where there is none, or one that was cut short."""
        try:
            record = json.loads((self.records / f"{key}.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and record.get("key") == key and "state" in record else None

    def put(self, record: dict[str, Any]) -> None:
        """Write a record in one step."""
        path = self.records / f"{record['key']}.json"
        self._replace(path, json.dumps(record, indent=1, sort_keys=True) + "\n")

    def summarise(self, keys: Sequence[str]) -> Path:
        """Write `results.jsonl`, one line for each key that has a record, in order, without reports and patches."""
        lines = []
        for key in keys:
            record = self.get(key)
            if record is not None:
                short = {k: v for k, v in record.items() if k not in ("report", "patch")}
                lines.append(json.dumps(short, sort_keys=True) + "\n")
        path = self.folder / "results.jsonl"
        self._replace(path, "".join(lines))
        return path

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(text, "utf-8")
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise DeinplaceError(f"{path}: cannot be written: {error.strerror}") from None
