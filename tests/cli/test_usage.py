"""Flags, settings and their mistakes: one clear line on standard error, exit code 2."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import deinplace
from deinplace.config import Config, load
from deinplace.errors import DeinplaceError

Write = Callable[[str, str], Path]


def test_version(cli: Callable) -> None:
    for flags in (("--version",), ("--version", "fix")):
        result = cli(*flags)
        assert (result.returncode, result.stdout) == (0, f"deinplace {deinplace.__version__}\n")


def test_help_lists_the_commands(cli: Callable) -> None:
    result = cli("--help")
    assert result.returncode == 0
    for command in ("run", "fix", "check", "explain", "rules"):
        assert f"\n  {command} " in result.stdout
    assert "Exit codes: 0 clean" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing command"),
        (("bogus",), "No such command 'bogus'"),
        (("fix", "--bogus"), "No such option: --bogus"),
        (("fix", "--verify", "maybe"), "'maybe' is not one of 'auto', 'require', 'off'"),
        (("fix", "--output-format", "xml"), "'xml' is not one of 'full', 'concise', 'json'"),
        (("fix", "--max-runs", "0"), "--max-runs"),
        (("fix", "--max-steps", "two"), "--max-steps"),
        (("fix", "--verify", "require", "--no-harness"), "--run"),
        (("run",), "Missing argument"),
        (("run", "--bogus", "train.py"), "No such option: --bogus"),
        (("run", "nope.py"), "nope.py: no such script"),
        (("fix", "nope.py"), "nope.py: no such file or folder"),
        (("check", "nope.py"), "nope.py: no such file or folder"),
        (("fix", "."), "no Python files in ."),
        (("explain", "DIP99999"), "neither a rule nor"),
    ],
)
def test_a_mistake_is_one_clear_line(cli: Callable, arguments: tuple[str, ...], words: str) -> None:
    result = cli(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("deinplace: ")


def test_an_unknown_rule_is_refused_with_the_right_one(cli: Callable, write: Write) -> None:
    write("a.py", "x = 1\n")
    known = cli("rules").stdout.split()[0]
    result = cli("fix", "a.py", "--select", known[:-1] + "x")
    assert result.returncode == 2
    assert "unknown rule" in result.stderr
    assert "did you mean DIP" in result.stderr


def test_explain_prints_the_page_of_every_rule(cli: Callable) -> None:
    listed = [line.split() for line in cli("rules").stdout.splitlines()]
    assert listed
    for code, name in listed:
        by_code, by_name = cli("explain", code), cli("explain", name)
        assert by_code.returncode == 0
        assert by_code.stdout == by_name.stdout
        assert by_code.stdout.startswith(f"{code} {name}\n\n")
        assert "What it does" in by_code.stdout or code.startswith("DIP9"), "a rule about comments"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("max-run", "3", "unknown key `max-run`; did you mean `max-runs`?"),
        ("max_runs", "3", "did you mean `max-runs`?"),
        ("zzz", "3", "known keys: all, baseline, cache"),
        ("max-runs", "0", "`max-runs` must be a positive whole number, not 0"),
        ("max-runs", "1.5", "must be a positive whole number"),
        ("timeout", "'5'", "must be a positive number"),
        ("unsafe", "'yes'", "`unsafe` must be true or false, not 'yes'"),
        ("select", "'DIP102'", "`select` must be a list of strings"),
        ("verify", "'never'", "`verify` must be one of auto, require, off"),
        ("run", "3", "`run` must be a string"),
    ],
)
def test_a_bad_setting_names_file_key_and_remedy(cli: Callable, write: Write, key: str, value: str, words: str) -> None:
    write("a.py", "x = 1\n")
    write("pyproject.toml", f"[tool.deinplace]\n{key} = {value}\n")
    result = cli("fix", "a.py")
    assert result.returncode == 2
    assert words in result.stderr
    assert "pyproject.toml" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_toml_that_does_not_parse(cli: Callable, write: Write) -> None:
    write("a.py", "x = 1\n")
    write("deinplace.toml", "select = [\n")
    result = cli("fix", "a.py")
    assert result.returncode == 2
    assert "deinplace.toml: is not TOML" in result.stderr


def test_the_nearest_settings_win_and_flags_override_them(tmp_path: Path, write: Write) -> None:
    write("pyproject.toml", "[tool.deinplace]\nmax-runs = 3\ntimeout = 5\nselect = ['DIP']\n")
    write("pkg/pyproject.toml", "[project]\nname = 'x'\n")
    found = load(str(tmp_path / "pkg"), {"timeout": None, "verify": "off"})
    assert (found.max_runs, found.timeout, found.select, found.verify) == (3, 5.0, ("DIP",), "off")
    assert found.root == str(tmp_path)
    write("pkg/deinplace.toml", "max-runs = 7\n")
    found = load(str(tmp_path / "pkg"), {"timeout": 1.0})
    assert (found.max_runs, found.timeout, found.select) == (7, 1.0, ())


def test_every_setting_can_stand_in_a_file(tmp_path: Path) -> None:
    values = {
        "select": '["DIP102"]', "ignore": "[]", "extend-select": "[]", "exclude": '["a"]', "extend-exclude": '["b"]',
        "force-exclude": "true", "respect-gitignore": "false", "run": '"python a.py"', "python": '"python3"',
        "all": "true", "unsafe": "true", "verify": '"off"', "timeout": "3", "max-steps": "2", "max-runs": "9",
        "output-format": '"json"',
    }  # fmt: skip
    text = "".join(f"{key} = {value}\n" for key, value in values.items())
    (tmp_path / "deinplace.toml").write_text(text)
    found, plain = load(str(tmp_path), {}), Config()
    for key, value in tomllib.loads(text).items():
        held = getattr(found, key.replace("-", "_"))
        assert (list(held) if isinstance(held, tuple) else held) == value
        assert key == "ignore" or key == "extend-select" or held != getattr(plain, key.replace("-", "_"))


def test_an_unreadable_setting_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("tool.deinplace = 3\n")
    with pytest.raises(DeinplaceError, match="must be a table"):
        load(str(tmp_path), {})


def test_a_bug_says_so_and_leaves_a_log(cli: Callable, tmp_path: Path) -> None:
    # a standard stream that was closed before the start is as good as a bug of our own
    result = cli("rules", env={"XDG_STATE_HOME": str(tmp_path / "state")}, preexec_fn=_close_stdout)
    assert result.returncode == 2
    assert f"internal error in deinplace {deinplace.__version__}" in result.stderr
    (log,) = (tmp_path / "state").rglob("*.log")
    assert str(log) in result.stderr
    assert "Traceback" in log.read_text()


def _close_stdout() -> None:
    import os

    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
