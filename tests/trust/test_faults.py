"""Kills, full disks, rivals and programs that misbehave: a file is the old one or the new one, and time limits hold."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deinplace.errors import DeinplaceError
from deinplace.verify.drivers import KEPT, Driver, Laboratory, Run, Settings
from deinplace.writing import write_atomic

OLD = (
    "import torch\n\n\ndef f():\n    a = torch.ones(3, requires_grad=True)\n    x = torch.exp(a)\n    x += a\n"
    "    return x\n"
)
NEW = OLD.replace("x += a", "x = x + a")
WORDS = [sys.executable, "-m", "deinplace", "fix", ".", "--all", "--verify", "off"]


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = str(tmp_path_factory.mktemp("cache"))
    return {**os.environ, "OMP_NUM_THREADS": "1", "DEINPLACE_CACHE_DIR": cache}


def fill(folder: Path, files: int, text: str = OLD) -> None:
    for number in range(files):
        (folder / f"m{number}.py").write_text(text)


def texts(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("*.py"))]


# ---- writing


def test_kills_at_any_moment_tear_no_file(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killer.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "tree"), "30", str(os.getpid())], capture_output=True, text=True,
        timeout=200, check=True,
    )  # fmt: skip
    seen = json.loads(done.stdout)
    assert seen["whole"], "fix has something to write"
    assert (seen["torn"], seen["left"]) == (0, 0)
    assert seen["none"] + seen["some"] + seen["all"] == 30
    assert seen["some"], "kills came between two files"


def test_what_a_kill_leaves_is_no_obstacle(tmp_path: Path, environment: dict[str, str]) -> None:
    fill(tmp_path, 2)
    (tmp_path / ".m0.py.abc.tmp").write_text("def half(:")
    result = subprocess.run(WORDS, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert texts(tmp_path) == [NEW, NEW]


def test_files_that_may_not_grow(tmp_path: Path, environment: dict[str, str]) -> None:
    long = OLD + f"# {'x' * 4000}\n"
    fill(tmp_path, 2, long)
    result = subprocess.run(
        [*WORDS, "--quiet"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        preexec_fn=_no_large_files,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("m0.py: cannot be written: File too large; nothing was changed")
    assert "Traceback" not in result.stderr
    assert texts(tmp_path) == [long, long]
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".py"] == []


def _no_large_files() -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system with hardly any room, where this user may make one."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(full: Path) -> None:
    path = full / "a.py"
    path.write_bytes(b"x = 1\n")
    filler = os.open(full / "filler", os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while os.write(filler, b"0" * 1024):
            pass
    os.close(filler)
    with pytest.raises(DeinplaceError, match=r"a\.py: cannot be written: No space left on device; nothing was changed"):
        write_atomic(str(path), b"y" * 8000, b"x = 1\n", str(full))
    assert path.read_bytes() == b"x = 1\n"
    assert sorted(p.name for p in full.iterdir()) == ["a.py", "filler"]


def test_a_disk_that_may_only_be_read(full: Path, environment: dict[str, str]) -> None:
    fill(full, 2)
    subprocess.run(["mount", "-o", "remount,ro", str(full)], check=True)
    result = subprocess.run(WORDS, cwd=full, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("m0.py: is not writable; nothing was written")
    assert texts(full) == [OLD, OLD]


def test_two_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    fill(tmp_path, 8)
    rivals = [
        subprocess.Popen(
            WORDS, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = [(*rival.communicate(timeout=100), rival.returncode) for rival in rivals]
    assert all(code in (0, 2) for _, _, code in said), said
    assert any(code == 0 for _, _, code in said)
    for _, err, code in said:
        if code == 2:
            assert "changed while deinplace was at work" in err.splitlines()[-1]
            assert "Traceback" not in err
    left = texts(tmp_path)
    assert set(left) <= {OLD, NEW} and len(left) == 8
    subprocess.run(WORDS, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert texts(tmp_path) == [NEW] * 8
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".py"] == []


# ---- programs that misbehave


def ran(folder: Path, text: str, timeout: float = 20.0) -> Run:
    (folder / "prog.py").write_text(text)
    driver = Driver(("python", "prog.py"), str(folder), sys.executable, timeout)
    with Laboratory() as lab:
        run = lab.run(driver, Settings(watch=True, record=True))
    assert not lab.folder.exists()
    return run


WAYS_OUT = {
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", -signal.SIGKILL),
    "leaves at once": ("import os\nos._exit(7)\n", 7),
    "reads at address 0": ("import ctypes\nctypes.string_at(0)\n", -signal.SIGSEGV),
    "aborts": ("import os\nos.abort()\n", -signal.SIGABRT),
    "closes its output": ("import os, sys\nsys.stdout.close(); os.close(1); os.close(2)\nsys.exit(3)\n", 3),
    "turns into another": ("import os\nos.execv('/bin/sh', ['sh', '-c', 'exit 5'])\n", 5),
    "raises in the end": ("import atexit\natexit.register(lambda: 1 / 0)\n", 0),
    "drops its files": ("import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['DEINPLACE_PROBE']))\n", 0),
    "prints no text": ("import sys\nsys.stdout.buffer.write(bytes(range(256)))\n", 0),
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_the_way_a_program_ends_is_seen(name: str, tmp_path: Path) -> None:
    text, code = WAYS_OUT[name]
    assert ran(tmp_path, text).exit_code == code


def test_an_account_that_is_cut_short_counts_for_nothing(tmp_path: Path) -> None:
    text = (
        "import glob, os\nfolder = os.path.dirname(os.environ['DEINPLACE_PROBE'])\n"
        "if os.fork() == 0:\n    open(f'{folder}/1.json', 'w').write('{\"pid\": 1,')\n"
        "    open(f'{folder}/2.json', 'w').write('[]')\n    open(f'{folder}/3.json', 'wb').write(b'\\xff')\n"
        "    os.kill(os.getpid(), 9)\nos.wait()\n"
    )
    run = ran(tmp_path, text)
    assert run.exit_code == 0
    assert [p.account["pid"] for p in run.processes if p.account.get("argv")]
    assert run.failure is None
    assert not run.gather("conflicts")


def test_much_output_is_read_and_kept_in_part(tmp_path: Path) -> None:
    start = time.monotonic()
    run = ran(tmp_path, "import sys\nfor _ in range(50):\n    sys.stdout.write('x' * 2**20)\nprint('last')\n")
    assert run.exit_code == 0
    assert run.stdout.endswith("last\n")
    assert len(run.stdout) <= 2 * KEPT
    assert time.monotonic() - start < 20


STUBBORN = {
    "ignores signals": "import signal, time\nfor s in (15, 2, 1):\n    signal.signal(s, signal.SIG_IGN)\n",
    "has children": "import os, time\nfor _ in range(3):\n    os.fork()\n",
    "is a daemon": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n",
}


@pytest.mark.parametrize("name", STUBBORN)
def test_time_limits_hold(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "beat"
    loop = f"while True:\n    open({str(mark)!r}, 'a').write('.')\n    time.sleep(0.05)\n"
    start = time.monotonic()
    run = ran(tmp_path, STUBBORN[name] + loop, 1.5)
    assert run.exit_code is None
    assert time.monotonic() - start < 15
    beats = mark.stat().st_size
    time.sleep(0.3)
    assert mark.stat().st_size == beats, "all that it started has ended"


def test_a_daemon_that_a_program_leaves_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        open({str(pid)!r}, 'w').write(str(os.getpid()))\n        time.sleep(60)\n    os._exit(0)\n"
        f"while not os.path.exists({str(pid)!r}):\n    time.sleep(0.01)\n"
    )
    start = time.monotonic()
    try:
        assert ran(tmp_path, text, 50.0).exit_code == 0
        assert time.monotonic() - start < 25
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_what_a_killed_program_showed_is_told(tmp_path: Path, environment: dict[str, str]) -> None:
    text = OLD.replace("    return x\n", "    x.sum().backward()\n")
    text += "\n\nimport os\nf()\nos.kill(os.getpid(), 9)\n"
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "deinplace", "run", "--python", sys.executable, "train.py"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 128 + signal.SIGKILL
    said = result.stdout + result.stderr
    assert "train.py:6" in said and "train.py:7" in said
    assert "the program was ended by SIGKILL" in said
