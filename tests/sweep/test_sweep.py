"""`sweep` on this machine: every entry once, nothing changed, taken up again after an interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deinplace.errors import DeinplaceError
from deinplace.sweep import Entry, read, shard

Result = subprocess.CompletedProcess[str]
Sweep = Callable[..., Result]


def _results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text().splitlines()]


def _git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_repository_once_and_none_changed(
    tmp_path: Path, repositories: Callable[[int], list[Path]], sweep: Sweep
) -> None:
    first, second = repositories(2)
    (second / "model.py").write_text("x = 1\n")
    before = (first / "model.py").read_bytes()

    done = sweep([first, second, "absent"])

    assert done.returncode == 1
    records = _results(tmp_path)
    assert [r["state"] for r in records] == ["done", "done", "failed"]
    assert records[0]["findings"] == {"fixable": 1}
    assert records[1]["findings"] == {}
    assert "no such folder" in records[2]["reason"]
    assert (first / "model.py").read_bytes() == before
    patch = json.loads((tmp_path / "out" / "records" / f"{records[0]['key']}.json").read_text())["patch"]
    assert "-    y += 1" in patch
    assert "+    y = y + 1" in patch


def test_done_is_not_done_again(tmp_path: Path, repositories: Callable[[int], list[Path]], sweep: Sweep) -> None:
    folders = repositories(2)
    sweep([folders[0]])
    record = next((tmp_path / "out" / "records").iterdir())
    stamp = record.stat().st_mtime_ns

    done = sweep(folders)

    assert "1 of 2 were done before" in done.stderr
    assert record.stat().st_mtime_ns == stamp
    assert len(_results(tmp_path)) == 2


def test_a_record_cut_short_is_done_again(
    tmp_path: Path, repositories: Callable[[int], list[Path]], sweep: Sweep
) -> None:
    folders = repositories(1)
    sweep(folders)
    record = next((tmp_path / "out" / "records").iterdir())
    record.write_bytes(record.read_bytes()[:40])

    done = sweep(folders)

    assert "done before" not in done.stderr
    assert json.loads(record.read_text())["state"] == "done"


def test_failed_entries_wait_for_the_flag(
    tmp_path: Path, repositories: Callable[[int], list[Path]], sweep: Sweep
) -> None:
    late = tmp_path / "late"
    assert sweep([late]).returncode == 1
    late.mkdir()
    (late / "model.py").write_text("x = 1\n")

    assert "done before" in sweep([late]).stderr
    assert sweep([late], "--retry-failed").returncode == 0
    assert [r["state"] for r in _results(tmp_path)] == ["done"]


def test_interrupted_then_taken_up_again(
    tmp_path: Path, repositories: Callable[[int], list[Path]], command: Callable[..., list[str]], sweep: Sweep
) -> None:
    folders = repositories(5)
    child = subprocess.Popen(command(folders, "--jobs", "1"), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    records = tmp_path / "out" / "records"
    end = time.monotonic() + 60
    while time.monotonic() < end and len(list(records.glob("*.json"))) < 2:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)

    assert child.returncode == 130, err
    kept = {path.name: path.stat().st_mtime_ns for path in records.glob("*.json")}
    assert 2 <= len(kept) < 5
    assert f"{len(kept)} of 5 were done before" in sweep(folders).stderr
    assert len(list(records.glob("*.json"))) == len(_results(tmp_path)) == 5
    assert {name: (records / name).stat().st_mtime_ns for name in kept} == kept


def test_a_revision_of_a_repository(tmp_path: Path, repositories: Callable[[int], list[Path]], sweep: Sweep) -> None:
    (folder,) = repositories(1)
    _git(folder, "init", "-q")
    _git(folder, "add", "model.py")
    _git(folder, "commit", "-qm", "faulty")
    old = _git(folder, "rev-parse", "HEAD")
    (folder / "model.py").write_text("x = 1\n")
    _git(folder, "commit", "-qam", "clean")
    new = _git(folder, "rev-parse", "HEAD")

    sweep([f"{folder} rev={old}", f"file://{folder}", f"{folder} rev=absent"])

    records = _results(tmp_path)
    assert [r["revision"] for r in records] == [old, new, ""]
    assert [r["findings"] for r in records[:2]] == [{"fixable": 1}, {}]
    assert records[2]["state"] == "failed"
    assert "git fetch" in records[2]["reason"]


def test_code_runs_only_where_the_line_says_so(
    tmp_path: Path, repositories: Callable[[int], list[Path]], sweep: Sweep
) -> None:
    quiet, loud = repositories(2)
    for folder in (quiet, loud):
        (folder / "main.py").write_text(
            f"import pathlib\npathlib.Path({str(tmp_path / folder.name)!r} + '.ran').touch()\n"
            "import torch\nfrom model import f\nf(torch.ones(2, requires_grad=True)).sum().backward()\n"
        )

    sweep([quiet, f'{loud} run="{sys.executable} main.py"'])

    assert not (tmp_path / "repo0.ran").exists()
    assert (tmp_path / "repo1.ran").exists()
    assert [r["findings"] for r in _results(tmp_path)] == [{"fixable": 1}, {"fixable": 1}]


def test_a_repository_that_takes_too_long(
    tmp_path: Path, repositories: Callable[[int], list[Path]], sweep: Sweep
) -> None:
    (folder,) = repositories(1)
    sweep([f'{folder} run="sleep 60"'], "--timeout", "3")
    (record,) = _results(tmp_path)
    assert (record["state"], record["reason"]) == ("timeout", f"{Path(sys.executable).name} took longer than 3 s")


def test_two_sweeps_at_once_do_not_mix(
    tmp_path: Path, repositories: Callable[[int], list[Path]], command: Callable[..., list[str]], sweep: Sweep
) -> None:
    folders = repositories(3)
    child = subprocess.Popen(command(folders, "--jobs", "1"), cwd=tmp_path)
    lock = tmp_path / "out" / ".lock-all"
    end = time.monotonic() + 30
    while time.monotonic() < end and not lock.exists():
        time.sleep(0.02)
    time.sleep(0.3)

    second = sweep(folders)

    assert child.wait(60) == 1
    assert second.returncode == 2
    assert "another sweep writes to it" in second.stderr
    assert len(_results(tmp_path)) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("https://example.org/a b=1", "write rev="),
        ("a path=../b", "must lie inside"),
        ("a path=/etc", "must lie inside"),
        ("a rev=--upload-pack=x", "is no revision"),
        ("--upload-pack=x", "neither a folder"),
        ("ext::sh://x", "addresses are taken"),
        ("a gpus=-1", "not negative"),
        ("a 'b", "No closing quotation"),
        ("# nothing", "lists no repository"),
    ],
)
def test_a_line_that_is_refused(tmp_path: Path, line: str, message: str) -> None:
    listing = tmp_path / "list.txt"
    listing.write_text(line)
    with pytest.raises(DeinplaceError, match=message):
        read(listing)


def test_shards_are_a_partition() -> None:
    items = [Entry(str(n)) for n in range(11)]
    parts = [shard(items, f"{i}/3") for i in (1, 2, 3)]
    assert sorted((e for part in parts for e in part), key=lambda e: int(e.location)) == items
    for bad in ("0/3", "4/3", "1", "a/b", "1/0"):
        with pytest.raises(DeinplaceError, match="write I/N"):
            shard(items, bad)
