"""What users of such tools expect, row by row of the table of conventions: verbs, flags, formats, exit codes, words.

Mostly in this process, and from the source alone: `test_fix.py` and `tests/verify` run programs.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
import yaml
from programs import NET
from programs import NET_FIXED as FIXED

import deinplace
from deinplace.cli import _guarded
from deinplace.cli.app import command
from deinplace.cli.progress import Clock, progress, steps
from deinplace.config import FORMATS
from deinplace.model import Finding, Outcome, Rewrite, Span, Verdict
from deinplace.report import words
from deinplace.rules import all_rules

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Said:
    """What a command said, and the code it would exit with."""

    code: int
    out: str
    err: str


Cli = Callable[..., Said]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in the test's own folder, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, stdin: str = "") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        capfd.readouterr()
        code = _guarded(list(arguments))
        sys.stdout.flush()
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


def codes(said: Said) -> list[str]:
    return re.findall(r"^\S+:\d+:\d+: (DIP\d+)", said.out, re.MULTILINE)


def test_verbs(here: Cli, net: Path) -> None:
    known = set(command().commands)
    assert {"check", "fix", "run", "verify", "explain", "rules", "config"} <= known
    assert here("check").code == 1  # paths default to .


def test_dry_run(here: Cli, net: Path) -> None:
    said = here("fix", "--diff", "--no-harness")
    assert said.code == 1
    assert said.out.startswith("--- a/net.py\n+++ b/net.py\n")
    assert net.read_text() == NET
    net.write_text(FIXED)
    assert here("fix", "--diff", "--no-harness").code == 0


def test_selection(here: Cli, net: Path) -> None:
    assert codes(here("check", "--select", "DIP102")) == ["DIP102"]
    assert codes(here("check", "--select", "DIP1")) == ["DIP102"]
    assert codes(here("check", "--select", "augmented-assignment")) == ["DIP102"]
    assert codes(here("check", "--ignore", "DIP1")) == []
    assert codes(here("check", "--select", "DIP2", "--extend-select", "DIP102")) == ["DIP102"]


def test_selection_of_what_may_be_fixed(here: Cli, net: Path) -> None:
    for flags in (("--unfixable", "DIP1"), ("--fixable", "DIP2"), ("--unfixable", "DIP102,clone-where-saved")):
        said = here("fix", "--no-harness", *flags)
        assert (said.code, net.read_text()) == (1, NET)
        assert "DIP102" in said.out and "= reason: not-fixable" in said.out  # reported all the same
    assert here("fix", "--no-harness", "--fixable", "augmented-assignment").code == 0
    assert net.read_text() == FIXED


def test_selection_by_settings(here: Cli, net: Path, tmp_path: Path) -> None:
    (tmp_path / "deinplace.toml").write_text('unfixable = ["DIP1"]\nharness = false\n')
    assert here("fix").code == 1
    assert net.read_text() == NET


def test_selection_per_file(here: Cli, net: Path, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    other = tmp_path / "tests" / "net.py"
    other.write_text(NET)
    for pattern in ("tests/**", "tests/", "tests/*.py", "/tests"):
        (tmp_path / "deinplace.toml").write_text(f'[per-file-ignores]\n"{pattern}" = ["augmented-assignment"]\n')
        said = here("check", "--output-format", "concise", "-v")
        assert re.findall(r"^(\S+):6:5: DIP102( \[suppressed\])?", said.out, re.MULTILINE) == [
            ("net.py", ""),
            ("tests/net.py", " [suppressed]"),
        ], pattern
    assert here("check", "tests").code == 0
    assert here("fix", "--no-harness").code == 0
    assert (net.read_text(), other.read_text()) == (FIXED, NET)
    (tmp_path / "deinplace.toml").write_text('per-file-ignores = {"a.py" = ["DIP999"]}\n')
    assert "unknown rule 'DIP999'" in here("check").err


def test_safety_words(here: Cli, net: Path) -> None:
    assert "'maybe' is not one of 'auto', 'require', 'off'" in here("fix", "--verify", "maybe").err
    unsafe = finding("unsafe")
    assert words.summary(Outcome("fix", (unsafe, unsafe))) == "Found 2 in-place faults (2 unsafe: --unsafe)"


def test_config(here: Cli, net: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.deinplace]\nselect = ["DIP2"]\n')
    (inner / "deinplace.toml").write_text('select = ["DIP101"]\n')
    assert tomllib.loads(here("config").out)["select"] == ["DIP2"]
    os.chdir(inner)  # the nearest wins; the fixture goes back
    assert tomllib.loads(here("config").out)["select"] == ["DIP101"]
    (inner / "deinplace.toml").write_text("extend-slect = []\n")
    said = here("config")
    assert (said.code, said.out) == (2, "")
    assert "unknown key `extend-slect`; did you mean `extend-select`?" in said.err
    jsonschema.Draft202012Validator.check_schema(json.loads(here("config", "--schema").out))


def test_files(here: Cli, net: Path, tmp_path: Path) -> None:
    for folder in (".venv", "build", "node_modules", "site-packages", ".git", "ignored"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text(NET)
    (tmp_path / ".gitignore").write_text("ignored/\n")
    assert codes(here("check")) == ["DIP102"]
    assert len(codes(here("check", "--no-respect-gitignore"))) == 2
    assert codes(here("check", "--extend-exclude", "net.py")) == []
    assert codes(here("check", "build/net.py")) == ["DIP102"]
    assert codes(here("check", "--force-exclude", "build/net.py")) == []


def test_stdin(here: Cli) -> None:
    said = here("fix", "-", "--stdin-filename", "a/b.py", stdin=NET)
    assert (said.code, said.out) == (0, FIXED)
    assert "a/b.py:6:5: DIP102" in said.err
    assert "confirmed" not in said.err.replace("unconfirmed", "")
    asked = here("fix", "-", "--run", "python train.py", stdin=NET)
    assert (asked.code, asked.out) == (0, FIXED)
    assert "standard input is not verified: --run is left out" in asked.err


def test_output(here: Cli, net: Path, tmp_path: Path) -> None:
    wanted = "full concise json sarif github gitlab junit rdjson markdown html".split()  # noqa: SIM905
    assert set(wanted) <= set(FORMATS)
    for kind in wanted:
        said = here("check", "--output-format", kind, "--output-file", f"report.{kind}")
        assert said.code == 1 and said.out == ""
        assert "DIP102" in (tmp_path / f"report.{kind}").read_text()
    line = here("check", "--output-format", "concise").out.splitlines()[0]
    assert re.match(r"net\.py:6:5: DIP102 (\[\*\] )?\w", line)
    assert json.loads((tmp_path / "report.sarif").read_text())["version"] == "2.1.0"
    full = here("check").out
    assert "6 |     y += x\n  |     ^^^^^^" in full


def test_exit_codes(here: Cli, net: Path) -> None:
    assert here("check").code == 1
    assert here("check", "--exit-zero").code == 0
    assert here("check", "nope.py").code == 2
    assert here("check", "--bogus").code == 2
    assert here("fix", "--no-harness", "--exit-non-zero-on-fix").code == 1
    assert here("fix", "--no-harness").code == 0
    assert here("check").code == 0


def test_suppression(here: Cli, net: Path) -> None:
    for comment in ("deinplace: ignore[DIP102] on purpose", "noqa: DIP102", "deinplace: ignore[augmented-assignment]"):
        net.write_text(NET.replace("y += x", f"y += x  # {comment}"))
        assert here("check").code == 0
        before = net.read_text()
        assert here("fix", "--no-harness").code == 0
        assert net.read_text() == before
    net.write_text(NET.replace("y += x", "y += x  # deinplace: ignore"))
    assert codes(here("check")) == ["DIP102", "DIP900"]  # never a blanket form


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("z = y + 1  # deinplace: ignore[DIP102] because\n", "z = y + 1\n"),
        ("z = y + 1  # noqa: DIP102\n", "z = y + 1\n"),
        ("z = y + 1  # noqa: E501, DIP102\n", "z = y + 1  # noqa: E501\n"),
        ("z = y + 1  # why  # deinplace: ignore[DIP102]  # type: ignore\n", "z = y + 1  # why  # type: ignore\n"),
        ("# deinplace: ignore[inplace-method]\nz = y + 1\n", "z = y + 1\n"),
        ("y += 1  # deinplace: ignore[DIP102, DIP105]\n", "y += 1  # deinplace: ignore[DIP102]\n"),
        ("y += 1  # deinplace: ignore[DIP102, DIP999]\n", "y += 1  # deinplace: ignore[DIP102]\n"),
        ("# deinplace: off\n\n# deinplace: on\nz = y\n", "\nz = y\n"),
        ("z = y\n# deinplace: file-ignore[DIP106]\n", "z = y\n"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_unused_suppressions_are_reported_and_removed(here: Cli, net: Path, before: str, after: str, end: str) -> None:
    net.write_bytes(before.replace("\n", end).encode())
    assert codes(here("check")) == ["DIP901"]
    said = here("check", "--remove-unused-ignores")
    assert net.read_bytes().decode() == after.replace("\n", end)
    assert (said.code, "removed 1 unused suppression" in said.out) == (0, True), said.out
    assert here("check").code == 0


@pytest.mark.parametrize(
    "line",
    [
        "y += 1  # deinplace: ignore[DIP102]",  # a run may show that it is needed
        "z = y * y  # deinplace: ignore[clone-where-saved]",
        "opt.step()  # deinplace: ignore[DIP201]",
        "s = '# deinplace: ignore[DIP101]'",
    ],
)
def test_suppressions_that_a_run_may_need_stay(here: Cli, net: Path, line: str) -> None:
    net.write_text(f"import torch\n\n\ndef f(y, opt):\n    {line}\n    return y\n")
    before = net.read_text()
    said = here("check", "--remove-unused-ignores")
    assert (said.code, codes(said), net.read_text()) == (0, [], before)


def test_legacy_repositories(here: Cli, net: Path) -> None:
    assert here("check", "--write-baseline", "known.json").code == 0
    assert here("check", "--baseline", "known.json").code == 0
    assert here("check", "--add-ignore").code == 0
    assert "# deinplace: ignore[DIP102]" in net.read_text()
    assert here("check").code == 0


def test_colour(here: Cli, net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in here("check").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in here("check").out
    assert "\x1b[" not in here("check", "--color", "never").out


def test_progress_only_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with progress(quiet=False, verbose=False) as tell:
        tell("trying x (1 of 3)")
    assert capfd.readouterr() == ("", "")
    leader, follower = os.openpty()
    held = sys.stderr
    with os.fdopen(follower, "w") as sys.stderr, progress(quiet=False, verbose=False) as tell:
        tell("trying [x] (2 of 3)")
    sys.stderr = held
    shown = os.read(leader, 65536).decode()
    os.close(leader)
    assert "trying [x]" in shown and "━" in shown


def test_progress_has_an_estimate() -> None:
    clock = Clock()
    assert steps("trying `x` (3 of 8)") == (2, 8)
    assert steps("running again") == (0, 0)
    assert clock.left(0, 4, 100.0) == ""
    assert clock.left(1, 4, 110.0) == "about 30 s left"
    assert clock.left(3, 4, 160.0) == "about 20 s left"
    assert clock.left(0, 0, 170.0) == ""
    assert clock.left(0, 3, 180.0) == ""
    assert clock.left(1, 3, 300.0) == "about 4 min left"


def finding(state: str, status: str = "") -> Finding:
    verdict = Verdict(status, "") if status else None  # type: ignore[arg-type]
    rewrite = Rewrite("DIP102", "t", (), "safe", 1, "/a.py")
    span = Span(1, 0, 1, 1)
    return Finding("DIP102", "n", "/a.py", span, "m", state, rewrite=rewrite, verdict=verdict)  # type: ignore[arg-type]


def test_summary() -> None:
    fixed = [finding("fixed", "confirmed")] * 6 + [finding("fixed", "unconfirmed")]
    rest = [finding("unsafe")] * 3 + [finding("rolled-back", "refuted")] * 2
    assert words.summary(Outcome("fix", tuple(fixed + rest), written=True)) == (
        "Found 12 in-place faults (7 fixed: 6 confirmed, 1 unconfirmed; 3 unsafe: --unsafe; 2 rolled back)"
    )


def test_summary_gives_every_site_that_is_left_a_reason(here: Cli, net: Path, tmp_path: Path) -> None:
    net.write_text(NET.replace("y += x", "KEEP.append(y)\n    y += x").replace("x = torch", "KEEP = []\nx = torch"))
    here("fix", "--no-harness", "--diff", "--output-format", "json", "--output-file", "fix.json")
    here("check", "--output-format", "json", "--output-file", "check.json")
    for name in ("fix.json", "check.json"):
        found = json.loads((tmp_path / name).read_text())["findings"]
        assert found
        assert all(f["reason"] for f in found if f["state"] not in ("fixed", "fixable"))


def test_errors(here: Cli, net: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for arguments in (("check", "nope.py"), ("check", "--select", "nope"), ("run", "nope.py")):
        said = here(*arguments)
        assert said.code == 2
        assert said.err.startswith("deinplace: ") and said.err.count("\n") == 1
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("deinplace.cli.sources.gather", lambda *_: 1 / 0)
    said = here("fix")
    assert said.code == 2
    assert f"internal error in deinplace {deinplace.__version__}: ZeroDivisionError" in said.err
    log = re.search(r"its traceback is in (\S+);", said.err)
    assert log is not None and "ZeroDivisionError" in Path(log[1]).read_text()
    assert net.read_text() == NET


def test_pre_commit() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert set(hooks) == {"deinplace", "deinplace-fix"}
    assert all(hook["require_serial"] for hook in hooks.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [need for need in project["dependencies"] if need.startswith("torch")]


def test_github_action() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert scripts and not any("${{" in script for script in scripts)
    uses = [step["uses"] for step in action["runs"]["steps"] if "uses" in step]
    assert all(re.search(r"@[0-9a-f]{40}\b", each) for each in uses)


def test_versioning() -> None:
    assert len({rule.code for rule in all_rules()}) == len({rule.name for rule in all_rules()}) == len(all_rules())
    text = (ROOT / "CHANGELOG.md").read_text()
    assert all(word in text for word in ("preview", "more eager", "never reused", "## Unreleased"))
    # tests/rules/test_codes.py: the ledger of codes, rules in preview, retired rules


def test_json_per_finding(here: Cli, net: Path, tmp_path: Path) -> None:
    here("fix", "--no-harness", "--diff", "--output-format", "json", "--output-file", "r.json")
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["schema_version"] == 1
    (found,) = document["findings"]
    assert {
        "path",
        "range",
        "code",
        "name",
        "message",
        "severity",
        "evidence",
        "rewrite",
        "verification",
        "memory",
    } <= set(found)
    assert found["range"]["start"] == {"line": 6, "column": 5}
    assert {"edits", "applicability"} <= set(found["rewrite"])
    verification = "status oracle driver device dtype seed tolerance max_abs_error max_rel_error reason".split()  # noqa: SIM905
    assert set(verification) <= set(found["verification"])
    assert found["verification"]["status"] == "unconfirmed"
