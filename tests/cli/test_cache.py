"""`check` remembers: what it says is the same, warm or cold, and what changed is looked at again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import NET

Write = Callable[[str, str], Path]


@pytest.fixture
def check(cli: Callable, tmp_path: Path) -> Callable:
    def run(*arguments: str) -> tuple[int, list[str]]:
        result = cli("check", ".", "--types", "off", "--output-format", "json", "--cache-dir", "held", *arguments)
        data = json.loads(result.stdout)
        return result.returncode, [f"{Path(f['path']).name}:{f['code']}" for f in data["findings"]]

    return run


def entries(tmp_path: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in (tmp_path / "held").rglob("*.json")}


def test_warm_is_as_cold(check: Callable, cli: Callable, write: Write, tmp_path: Path) -> None:
    write("net.py", NET)
    write("bad.py", "def f(:\n")
    first = cli("check", ".", "--types", "off", "--cache-dir", "held")
    held = entries(tmp_path)
    assert len(held) == 3, "one for each group of files, and one for all of them"
    again = cli("check", ".", "--types", "off", "--cache-dir", "held")
    without = cli("check", ".", "--types", "off", "--no-cache")
    assert (first.returncode, first.stdout, first.stderr) == (again.returncode, again.stdout, again.stderr)
    assert first.stdout == without.stdout
    assert "net.py:6" in first.stdout and "is not valid Python" in first.stdout + first.stderr
    assert entries(tmp_path) == held


def test_what_changed_is_looked_at_again(check: Callable, write: Write, tmp_path: Path) -> None:
    write("net.py", NET)
    assert check() == (1, ["net.py:DIP102"])
    write("net.py", NET.replace("y += x", "y = y + x"))
    assert check() == (0, [])
    write("other.py", NET)
    assert check() == (1, ["other.py:DIP102"])
    assert check("--select", "DIP101") == (0, []), "settings are a part of the key"


def test_a_file_that_another_one_uses_is_a_part_of_it(check: Callable, write: Write) -> None:
    write("helper.py", "import torch\n\n\ndef act(y):\n    return y + 1\n")
    write("net.py", "from helper import act\n" + NET.replace("y += x", "act(y)"))
    assert check() == (0, [])
    write("helper.py", "import torch\n\n\ndef act(y):\n    y += 1\n    return y\n")
    assert check() == (1, ["helper.py:DIP102"])


def test_an_entry_that_is_cut_is_written_again(check: Callable, write: Write, tmp_path: Path) -> None:
    write("net.py", NET)
    first = check()
    held = entries(tmp_path)
    for path, text in held.items():
        path.write_text(text[: len(text) // 2])
    assert check() == first
    assert entries(tmp_path) == held


def test_many_files_in_several_processes(check: Callable, write: Write) -> None:
    for n in range(70):
        write(f"net{n:02}.py", NET.rpartition("\n\n")[0] + "\n")
    one, several = check("--jobs", "1", "--no-cache"), check("--jobs", "3", "--no-cache")
    assert one == several
    assert len(one[1]) == 70
