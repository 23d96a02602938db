"""`deinplace run`: both lines are named, the program keeps its streams, arguments and exit code, nothing is changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from programs import CLEAN, FAILING, OTHER_ERROR, TRAINING

Write = Callable[[str, str], Path]


def test_both_lines_are_named_and_nothing_is_changed(cli: Callable, write: Write, tmp_path: Path) -> None:
    path = write("train.py", FAILING)
    result = cli("run", "train.py")
    assert result.returncode == 1
    assert result.stdout.startswith("step 0\nstep 1\ndone\n"), "the program's own output comes first and whole"
    assert "train.py:17: " in result.stdout
    assert "backward needs the output of relu (train.py:9), but train.py:10 `y += x` overwrote it" in result.stdout
    assert "float32 (2, 4)" in result.stdout
    assert "Found 1 in-place fault" in result.stdout
    assert path.read_text() == FAILING
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]


def test_json_alone_on_standard_output(cli: Callable, write: Write) -> None:
    write("train.py", FAILING)
    result = cli("run", "--output-format", "json", "train.py")
    report = json.loads(result.stdout)
    schema = json.loads(files("deinplace.report").joinpath("report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)
    assert "step 0\nstep 1\ndone\n" in result.stderr
    (finding,) = report["findings"]
    conflict = finding["conflict"]
    assert (conflict["save"]["path"], conflict["save"]["line"]) == ("train.py", 9)
    assert [(w["path"], w["line"], w["source"]) for w in conflict["writes"]] == [("train.py", 10, "y += x")]
    assert next((p["path"], p["line"]) for p in conflict["backward"]) == ("train.py", 17)
    assert conflict["save"]["tensor"] == {"shape": [2, 4], "dtype": "float32", "device": "cpu"}


def test_json_into_a_file_leaves_the_streams_alone(cli: Callable, write: Write, tmp_path: Path) -> None:
    write("train.py", FAILING)
    result = cli("run", "--output-format", "json", "--output-file", "out.json", "train.py")
    assert result.stdout == "step 0\nstep 1\ndone\n"
    assert json.loads((tmp_path / "out.json").read_text())["command"] == "run"


@pytest.mark.parametrize("code", [0, 3])
def test_streams_arguments_and_exit_code_are_the_programs(cli: Callable, write: Write, code: int) -> None:
    write("clean.py", CLEAN)
    result = cli("run", "clean.py", str(code), "--help", "--output-format", "xml", input="typed\n")
    assert result.returncode == code
    assert f"arguments ['{code}', '--help', '--output-format', 'xml'] stdin typed\n" in result.stdout
    assert "to stderr\n" in result.stderr
    assert "Found no in-place faults" in result.stdout


def test_a_module_and_a_command(cli: Callable, write: Write) -> None:
    write("pkg/__init__.py", "")
    write("pkg/train.py", FAILING)
    for arguments in (("-m", "pkg.train"), ("--", sys.executable, "-m", "pkg.train"), (sys.executable, "pkg/train.py")):
        result = cli("run", *arguments)
        assert result.returncode == 1
        assert "(pkg/train.py:9), but pkg/train.py:10 `y += x` overwrote it" in result.stdout


def test_a_program_that_fails_for_another_reason_keeps_its_traceback_and_code(cli: Callable, write: Write) -> None:
    write("other.py", OTHER_ERROR)
    result = cli("run", "other.py")
    assert result.returncode in (1, 2)
    assert "KeyError: 'no such sample'" in result.stderr


def test_max_steps_stops_a_run(cli: Callable, write: Write) -> None:
    write("train.py", TRAINING)
    result = cli("run", "--max-steps", "1", "train.py")
    assert result.returncode == 1
    assert "step 1" not in result.stdout
    assert "train.py:10 `y += x` overwrote it" in result.stdout


def test_a_command_that_does_not_exist(cli: Callable) -> None:
    result = cli("run", "--", "no-such-command-here", "train.py")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "deinplace: command not found: no-such-command-here\n"
