"""Bad input and bad luck: one clear line, a telling exit code, and every file as it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs import ENDLESS, FAILING, NO_BACKWARD, OTHER_ERROR

Write = Callable[[str, str], Path]


SYNTAX, PYTHON_2 = "def f(:\n    pass\n", "import torch\nprint 'hello'\n"


def last_line(stderr: str) -> str:
    return stderr.splitlines()[-1]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("python nope.py", "nope.py"),
        ("no-such-command train.py", "command not found: no-such-command"),
        ("python 'train.py", "No closing quotation"),
        ("python -I train.py", "could not attach"),
        (" ", "no command"),
    ],
)
def test_a_driver_that_cannot_start(cli: Callable, write: Write, run: str, words: str) -> None:
    write("train.py", FAILING)
    result = cli("fix", ".", "--run", run)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in last_line(result.stderr)
    assert "internal error" not in result.stderr


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("more", [(), ("--run", "python train.py")], ids=["harnesses", "command"])
def test_an_interpreter_that_is_not_there(cli: Callable, write: Write, more: tuple[str, ...]) -> None:
    write("train.py", FAILING)
    result = cli("fix", ".", "--python", "/nowhere/python", *more)
    assert (result.returncode, result.stdout) == (2, "")
    assert "/nowhere/python" in last_line(result.stderr)


@pytest.mark.usefixtures("untouched")
def test_a_driver_that_fails_for_another_reason(cli: Callable, write: Write) -> None:
    write("train.py", OTHER_ERROR)
    result = cli("fix", ".", "--run", "python train.py")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback (most recent call last)" in result.stderr
    assert "in broken\n" in result.stderr
    assert "another reason" in last_line(result.stderr)
    assert "KeyError: 'no such sample'" in last_line(result.stderr)


@pytest.mark.usefixtures("untouched")
def test_a_driver_that_never_reaches_backward(cli: Callable, write: Write) -> None:
    write("train.py", NO_BACKWARD)
    result = cli("fix", ".", "--run", "python train.py")
    assert (result.returncode, result.stdout) == (2, "")
    assert "never reaches a backward" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("untouched")
def test_a_driver_that_does_not_end(cli: Callable, write: Write) -> None:
    write("train.py", ENDLESS)
    result = cli("fix", ".", "--run", "python train.py", "--timeout", "8")
    assert (result.returncode, result.stdout) == (2, "")
    assert "did not end within 8 s" in last_line(result.stderr)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("text", "words"), [(SYNTAX, "is not valid Python (line 1"), (PYTHON_2, "is Python 2 (line 2")]
)
def test_a_file_that_is_not_python_3(cli: Callable, write: Write, text: str, words: str) -> None:
    write("bad.py", text)
    for command in (("fix", "bad.py"), ("fix", "bad.py", "--run", "python bad.py"), ("check", ".")):
        result = cli(*command)
        assert result.returncode == 2
        assert f"bad.py:{words[-1]}: {words}" in result.stdout + result.stderr
        assert "Traceback" not in result.stderr


def test_a_broken_file_does_not_keep_the_others_from_being_mended(cli: Callable, write: Write) -> None:
    bad, path = write("bad.py", SYNTAX), write("train.py", FAILING)
    result = cli("fix", ".", "--run", "python train.py")
    assert result.returncode == 1, "the file that could not be read is a finding that is left"
    assert "bad.py:1: is not valid Python" in result.stdout
    assert "y = y + x" in path.read_text()
    assert bad.read_text() == SYNTAX


@pytest.mark.usefixtures("untouched")
def test_a_folder_without_python_files(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/readme.md").write_text("x")
    result = cli("fix", "docs", "--run", "python train.py")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "deinplace: no Python files in docs\n"


@pytest.fixture
def strangers_folder() -> Iterator[Path]:
    """A folder that another user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="deinplace-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_a_file_that_may_not_be_read(strangers_folder: Path, environment: dict[str, str]) -> None:
    secret = strangers_folder / "secret.py"
    secret.write_text("x = 1\n")
    secret.chmod(0)
    stranger = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    options: dict[str, object] = {
        "cwd": strangers_folder,
        "env": {**environment, "HOME": str(strangers_folder)},
        **stranger,
    }
    try:
        able = subprocess.run([sys.executable, "-c", "import deinplace"], capture_output=True, check=False, **options)  # type: ignore[call-overload]
    except PermissionError:
        pytest.skip("another user may not start this interpreter")
    if able.returncode:
        pytest.skip("another user may not read this installation")
    command = [sys.executable, "-m", "deinplace", "fix", "."]
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert result.returncode == 2
    assert "secret.py: cannot be read: Permission denied; left as it is" in result.stdout
    assert secret.stat().st_size == 6


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("command", "number"),
    [
        (("fix", ".", "--run", "python train.py"), signal.SIGINT),
        (("run", "train.py"), signal.SIGINT),
        (("fix", ".", "--run", "python train.py"), signal.SIGTERM),
        (("fix", ".", "--run", "python train.py"), signal.SIGHUP),
    ],
    ids=["fix", "run", "terminated", "hung-up"],
)
def test_an_interrupt_in_the_middle(
    write: Write, tmp_path: Path, environment: dict[str, str], command: tuple[str, ...], number: signal.Signals
) -> None:
    write("train.py", ENDLESS)
    temporary = tmp_path / ".tmp"
    temporary.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-m", "deinplace", *command], cwd=tmp_path, env={**environment, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(child.pid, number)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert list(temporary.glob("deinplace-*")) == []
    assert last_line(stderr) == "deinplace: interrupted; no file was left half-written"
    (tmp_path / "started").unlink()
    time.sleep(0.3)
    assert not (tmp_path / "started").exists(), "the program must not live on"


def test_a_tree_that_changes_under_us(cli: Callable, write: Write, tmp_path: Path) -> None:
    # the program itself appends to a file that the patch touches, as a generator or an editor would
    text = FAILING + "with open(__file__, 'a') as file:\n    file.write('# touched\\n')\n"
    path = write("train.py", text)
    result = cli("fix", ".", "--run", "python train.py")
    assert result.returncode == 2
    assert "train.py: changed while deinplace was at work; nothing was written" in last_line(result.stderr)
    assert "    y += x  #" in path.read_text()
    assert path.read_text().startswith(text)


ODD = {
    "nul": (b"import torch\nx = 1\0\nx += 1\n", "holds NUL bytes"),
    "utf16": ("import torch\nx += 1\n".encode("utf-16"), "holds NUL bytes"),
    "mark": (b"\xef\xbb\xbf# coding: latin-1\nx = 1\n", "byte order mark"),
    "cookie": (b"# coding: klingon\nx += 1\n", "unknown encoding: klingon"),
    "no_text": (b"# coding: rot13\nx += 1\n", "is not text in rot13"),
    "no_utf8": (b'import torch\nx = "\xff\xfe"\nx += 1\n', "is not text in utf-8"),
    "parentheses": (b"x = " + b"(" * 10_000 + b"1" + b")" * 10_000 + b"\nx += 1\n", "is not valid Python"),
    "indented": (b"".join(b" " * n + b"if 1:\n" for n in range(500)) + b" " * 500 + b"x += 1\n", "is not valid Python"),
    "sum": (b"x = " + b" + ".join([b"x"] * 30_000) + b"\nx += 1\n", "left as it is"),
    "minus": (b"x = " + b"-" * 30_000 + b"1\nx += 1\n", "left as it is"),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and links of POSIX")
@pytest.mark.parametrize("command", [("check",), ("fix", "--diff", "--verify", "off")], ids=["check", "fix"])
def test_each_odd_file_gets_one_reason_and_the_others_go_on(
    cli: Callable, write: Write, tmp_path: Path, command: tuple[str, ...]
) -> None:
    write("good.py", "import torch\ny = torch.exp(torch.ones(3, requires_grad=True))\ny += 1\ny.sum().backward()\n")
    write("empty.py", "")
    for name, (data, _) in ODD.items():
        (tmp_path / f"{name}.py").write_bytes(data)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "again").symlink_to(".", target_is_directory=True)
    (tmp_path / "folder.py").mkdir()
    result = cli(*command, ".")
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    said = (result.stdout + result.stderr).splitlines()
    assert any("good.py" in line for line in said)
    for name, (_, words) in ODD.items():
        assert [words in line for line in said if line.startswith(f"{name}.py")] == [True], name
    assert not [line for line in said if line.startswith(("pipe", "loop", "zero", "again", "folder", "empty"))]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and devices of POSIX")
def test_a_pipe_or_a_device_that_is_named_is_not_read(cli: Callable, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    result = cli("check", "pipe.py", "/dev/zero")
    assert result.returncode == 2
    for name in ("pipe.py", "/dev/zero"):
        assert f"{name}: is a pipe, a socket or a device, no file; not read" in result.stdout + result.stderr
