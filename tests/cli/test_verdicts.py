"""What was proved is not proved again while nothing has changed; what may have changed is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import FAILING, FIXED_LINE

from deinplace import cache, verdicts
from deinplace.model import FileChange, Finding, Outcome, Rewrite, Span, Verdict

Write = Callable[[str, str], Path]
RUN = ("--run", "python train.py")
PROVED = "and nothing has changed since; --no-cache runs it again"
FIXED = FAILING.replace("    y += x  # overwrites what relu kept\n", FIXED_LINE)


def test_what_a_dry_run_proved_is_written_without_another_run(cli: Callable, write: Write) -> None:
    path = write("train.py", FAILING)
    shown = cli("fix", ".", *RUN, "--diff")
    assert shown.returncode == 1
    assert PROVED not in " ".join((shown.stdout + shown.stderr).split())
    made = cli("fix", ".", *RUN)
    assert made.returncode == 0
    assert PROVED in " ".join(made.stdout.split())
    assert "1 fixed: 1 confirmed" in made.stdout
    assert path.read_text() == FIXED


@pytest.mark.slow
def test_json_says_that_nothing_ran(cli: Callable, write: Write) -> None:
    write("train.py", FAILING)
    first, again, without = (
        json.loads(cli("fix", ".", *RUN, "--diff", "--output-format", "json", *more).stdout)
        for more in ((), (), ("--no-cache",))
    )
    assert first["runs"] >= 3
    assert (again["runs"], again["findings"]) == (0, first["findings"])
    assert without["runs"] == first["runs"]


def test_what_may_change_the_proof_changes_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = cache.Cache(tmp_path / "held"), tmp_path / "other"
    project = tmp_path / "project"
    project.mkdir()
    other.mkdir()
    (project / "helper.py").write_text("SIZE = 3\n")
    keys = []

    def ask(*settings: object, source: bytes = b"a", more: tuple[Path, ...] = ()) -> str:
        return verdicts.question(store, {"/a.py": source}, project, settings, more).key

    keys += [ask(), ask(source=b"b"), ask("--unsafe"), ask(more=(other,))]
    (other / "lib.py").write_text("")
    keys.append(ask(more=(other,)))
    (project / "helper.py").write_text("SIZE = 4\n")
    keys.append(ask())
    (project / "settings.json").write_text("{}")
    keys.append(ask())
    monkeypatch.setenv("SIZE", "4")
    keys.append(ask())
    assert keys[0] == keys[3], "an empty folder holds nothing to import"
    assert len(set(keys)) == len(keys) - 1
    (project / "checkpoint.pt").write_bytes(b"0")
    (project / ".venv").mkdir()
    (project / ".venv" / "x.py").write_text("")
    assert ask() == keys[-1]


def _outcome(status: str = "confirmed", state: str = "fixed") -> Outcome:
    rewrite = Rewrite("DIP102", "", (), "safe", 1, "/a.py")
    verdict = Verdict(status, "")  # type: ignore[arg-type]
    found = Finding("DIP102", "", "/a.py", Span(1, 0, 1, 1), "", state, rewrite=rewrite, verdict=verdict)  # type: ignore[arg-type]
    return Outcome("fix", (found,), (FileChange("/a.py", "a", "b"),), runs=4)


def test_a_proof_lasts_a_day(tmp_path: Path) -> None:
    kept = verdicts.question(cache.Cache(tmp_path / "held"), {"/a.py": b"a"}, tmp_path, [])
    kept.keep(_outcome())
    held = kept.recall()
    assert held is not None
    assert held.notes == (f"proved just now by 4 runs of the program, {PROVED}",)
    import time

    assert kept.recall(time.time() + 2 * 3600 + 1) is not None
    assert kept.recall(time.time() + verdicts.DAY + 1) is None
    assert kept.recall(time.time() - 60) is None, "a clock that was set back"


@pytest.mark.parametrize(
    "outcome",
    [_outcome("unconfirmed"), _outcome("refuted", "rolled-back"), Outcome("fix")],
    ids=["unconfirmed", "refuted", "nothing"],
)
def test_only_what_was_confirmed_is_kept(tmp_path: Path, outcome: Outcome) -> None:
    kept = verdicts.question(cache.Cache(tmp_path / "held"), {"/a.py": b"a"}, tmp_path, [])
    kept.keep(outcome)
    assert kept.recall() is None


def test_too_many_files_are_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    for n in range(6):
        (tmp_path / "data" / f"{n}.bin").write_bytes(b"")
    store = cache.Cache(tmp_path / "held")
    assert verdicts.question(store, {}, tmp_path, []).key
    monkeypatch.setattr(verdicts, "_MOST", 5)
    assert not verdicts.question(store, {}, tmp_path, []).key
