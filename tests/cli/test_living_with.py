"""Standard input, baselines, comments put beside findings, and counts."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import NET
from programs import NET_FIXED as FIXED

from deinplace.analysis.source import Source
from deinplace.ignores import add
from deinplace.model import Finding, Span


def test_fix_is_a_filter(cli: Callable, tmp_path: Path) -> None:
    result = cli("fix", "-", "--stdin-filename", "pkg/net.py", input=NET)
    assert (result.returncode, result.stdout) == (0, FIXED)
    assert "pkg/net.py:6:5: DIP102 [fixed]" in result.stderr
    assert list(tmp_path.iterdir()) == []
    again = cli("fix", "-q", "-", input=FIXED)
    assert (again.returncode, again.stdout, again.stderr) == (0, FIXED, "")


def test_fix_of_standard_input_runs_nothing(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "deinplace.toml").write_text('run = "touch ran"\n')
    assert cli("fix", "-", input=NET).stdout == FIXED
    assert not (tmp_path / "ran").exists()


def test_the_diff_of_standard_input(cli: Callable) -> None:
    result = cli("fix", "--diff", "-", "--stdin-filename", "net.py", input=NET)
    assert result.returncode == 1
    assert "--- a/net.py\n+++ b/net.py\n" in result.stdout


def test_check_reads_standard_input(cli: Callable) -> None:
    result = cli("check", "--output-format", "concise", "-", "--stdin-filename", "net.py", input=NET)
    assert result.returncode == 1
    assert result.stdout.startswith("net.py:6:5: DIP102 ")


def test_standard_input_that_is_no_python_comes_to_nothing(cli: Callable) -> None:
    result = cli("fix", "-", input="def (:\n")
    assert (result.returncode, result.stdout) == (2, "")
    assert "stdin.py:1: is not valid Python" in result.stderr


@pytest.mark.parametrize("arguments", [("-", "a.py"), ("a.py", "--stdin-filename", "b.py")])
def test_standard_input_stands_alone(arguments: tuple[str, ...], cli: Callable) -> None:
    result = cli("check", *arguments, input=NET)
    assert result.returncode == 2
    assert "`-` stands alone" in result.stderr


def test_a_baseline_hides_what_was_there_and_shows_what_is_new(cli: Callable, tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text(NET)
    made = cli("check", "--write-baseline", "known.json")
    assert (made.returncode, made.stdout) == (0, "")
    assert "known.json: 1 findings listed" in made.stderr
    assert [e["rule"] for e in json.loads((tmp_path / "known.json").read_text())["findings"]] == ["DIP102"]
    hidden = cli("check", "--baseline", "known.json")
    assert hidden.returncode == 0, hidden.stdout
    assert "DIP102" not in hidden.stdout
    net.write_text("# moved\n\n" + NET.replace("    y += x\n", "    y += x\n    y = torch.exp(y)\n    y += 1\n"))
    (tmp_path / "deinplace.toml").write_text('baseline = "known.json"\n')
    new = cli("check", "--output-format", "concise")
    assert new.returncode == 1
    assert [line.split(":")[1] for line in new.stdout.splitlines() if "DIP102" in line] == ["10"]


def test_fix_mends_what_the_baseline_lists(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    cli("check", "--write-baseline", "known.json")
    assert cli("fix", "--baseline", "known.json").returncode == 0
    assert (tmp_path / "net.py").read_text() == FIXED


@pytest.mark.parametrize(
    "text", [None, "{", "[]", '{"baseline_version": 9}', '{"baseline_version": 1, "findings": [3]}']
)
def test_a_bad_baseline_is_an_error(text: str | None, cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    if text is not None:
        (tmp_path / "known.json").write_text(text)
    result = cli("check", "--baseline", "known.json")
    assert result.returncode == 2
    assert "known.json: " in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_comments_silence_what_is_there(cli: Callable, tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_bytes(NET.replace("y += x", "y += x  # why\n    z = 1").replace("\n", "\r\n").encode())
    assert cli("check", "--add-ignore").returncode == 0
    text = net.read_bytes().decode()
    assert "    y += x  # why  # deinplace: ignore[DIP102]\r\n" in text
    again = cli("check")
    assert (again.returncode, "DIP" in again.stdout) == (0, False), again.stdout


def test_statistics_count_by_rule(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    result = cli("check", "--statistics")
    assert re.search(r"^1 DIP102 augmented-assignment$", result.stdout, re.MULTILINE)
    document = cli("check", "--statistics", "--output-format", "json")
    assert json.loads(document.stdout)["findings"]
    assert document.stderr == "1 DIP102 augmented-assignment\n"


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("x += 1\n", 1, "x += 1  # deinplace: ignore[DIP102]\n"),
        ("x += 1", 1, "x += 1  # deinplace: ignore[DIP102]"),
        ("x += 1 # a\n", 1, "x += 1 # a  # deinplace: ignore[DIP102]\n"),
        ("x += 1  # deinplace: ignore[DIP105] old\n", 1, "x += 1  # deinplace: ignore[DIP102, DIP105] old\n"),
        ("f(\n  x,\n)\n", 1, "f(  # deinplace: ignore[DIP102]\n  x,\n)\n"),
        ('x += f("""a\nb""")\n', 1, 'x += f("""a\nb""")  # deinplace: ignore[DIP102]\n'),
        ("é = 1; x += 1\n", 1, "é = 1; x += 1  # deinplace: ignore[DIP102]\n"),
    ],
)
def test_where_the_comment_goes(before: str, line: int, after: str) -> None:
    source = Source.parse("/a.py", before.encode())
    node = ast.parse(before).body[-1]
    span = Span(line, 0, node.end_lineno or line, node.end_col_offset or 0)
    changes, problems = add({"/a.py": source}, [Finding("DIP102", "n", "/a.py", span, "m", "advised")])
    assert problems == ()
    assert [change.after for change in changes] == [after]


def test_a_line_that_cannot_hold_a_comment_is_told() -> None:
    source = Source.parse("/a.py", b"x = 1; y = \\\n  2\n")
    finding = Finding("DIP102", "n", "/a.py", Span(1, 0, 1, 5), "m", "advised")
    changes, problems = add({"/a.py": source}, [finding])
    assert changes == ()
    assert problems[0].line == 1


@pytest.mark.parametrize(
    "comment",
    ["# deinplace: ignore[DIP102] on purpose", "# deinplace: ignore[augmented-assignment]", "# noqa: DIP102"],
)
@pytest.mark.parametrize("run", [(), ("--run", f"{sys.executable} net.py")], ids=["static", "run"])
def test_fix_leaves_alone_what_a_comment_silences(
    comment: str, run: tuple[str, ...], cli: Callable, tmp_path: Path
) -> None:
    text = NET.replace("y += x", f"y += x  {comment}")
    (tmp_path / "net.py").write_text(text)
    result = cli("fix", "--output-format", "json", *run)
    assert (tmp_path / "net.py").read_text() == text
    assert result.returncode == 0, result.stdout
    assert [f["state"] for f in json.loads(result.stdout)["findings"]] == ["suppressed"]


def test_a_comment_for_another_rule_silences_nothing(cli: Callable, tmp_path: Path) -> None:
    text = NET.replace("y += x", "y += x  # deinplace: ignore[DIP101]")
    (tmp_path / "net.py").write_text(text)
    cli("fix")
    assert (tmp_path / "net.py").read_text() == text.replace("y += x", "y = y + x")
