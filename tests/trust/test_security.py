"""Who runs code, and when; what sources and file names may do to a reader; who can read what is left behind."""

from __future__ import annotations

import os
import pty
import re
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deinplace.verify.drivers import Driver, Laboratory, Settings

MARK = "from pathlib import Path\nPath({!r}, __file__.rpartition('/')[2]).write_text('ran')\n"
FAULTY = "import torch\n\n\ndef f(a: torch.Tensor):\n    x = torch.exp(a)\n    x += a\n    return x.sum()\n"
CANARIES = (
    "conftest.py", "setup.py", "sitecustomize.py", "usercustomize.py", "noxfile.py", "__main__.py", "plugin.py",
    # names of what deinplace itself imports, early or late
    "torch.py", "numpy.py", "typer.py", "click.py", "rich.py", "libcst.py", "pathspec.py", "platformdirs.py", "yaml.py",
    "nbformat.py", "difflib.py", "multiprocessing.py", "tomllib.py", "_pytest.py", "ty.py", "pyrefly.py",
)  # fmt: skip
SETTINGS = (
    "[tool.pytest.ini_options]\naddopts = '-p plugin'\n\n[project.entry-points.pytest11]\nplugin = 'plugin'\n\n"
    "[build-system]\nrequires = []\nbuild-backend = 'plugin'\nbackend-path = ['.']\n"
)
TICKS = "`|`@team<script>alert(1)</script>"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    keep = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR", "VIRTUAL_ENV", "PYTHONPATH")}
    return {**keep, "OMP_NUM_THREADS": "1", "DEINPLACE_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "100"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def run(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deinplace", *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# ---- who runs code


STATIC = {
    "check": ("check", "."),
    "check, json": ("check", ".", "--output-format", "json", "--no-cache"),
    "fix": ("fix", ".", "--all", "--verify", "off"),
    "no harness": ("fix", ".", "--no-harness"),
    "dry run": ("fix", ".", "--diff", "--verify", "off"),
    "config": ("config",),
    "explain": ("explain", "DIP102"),
}


@pytest.mark.parametrize("name", STATIC)
def test_no_code_of_the_project_is_run(name: str, project: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    for canary in CANARIES:
        (project / canary).write_text(MARK.format(str(marks)) + FAULTY)
    (project / ".venv/bin").mkdir(parents=True)
    for tool in ("python", "ty", "pyrefly", "git"):
        (project / ".venv/bin" / tool).write_text(f"#!/bin/sh\ntouch {marks}/{tool}\n")
        (project / ".venv/bin" / tool).chmod(0o755)
    (project / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.0\n")
    (project / "pyproject.toml").write_text(SETTINGS)
    (project / "net.py").write_text(MARK.format(str(marks)) + FAULTY)
    result = run(project, environment, *STATIC[name])
    assert result.returncode in (0, 1), result.stderr
    assert not any(marks.iterdir())


def test_a_canary_sings(project: Path, tmp_path: Path) -> None:
    (project / "rich.py").write_text(MARK.format(str(tmp_path)))
    subprocess.run([sys.executable, "-c", "import rich"], cwd=project, check=True)
    assert (tmp_path / "rich.py").read_text() == "ran"


def test_a_harness_is_fenced_in_unless_asked_otherwise(
    project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    text = f"{FAULTY}\nif __name__ == '__main__':\n    open({str(outside / 'x')!r}, 'w')\n"
    (project / "net.py").write_text(text)
    result = run(project, environment, "fix", ".", "--harness-timeout", "40")
    assert result.returncode in (0, 1), result.stderr
    assert not any(outside.iterdir())


# ---- links


def test_a_link_out_of_the_tree_is_neither_read_nor_written(
    project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    secret = tmp_path / "secret.py"
    text = FAULTY.replace("    return", "    zebra = x\n    return")
    secret.write_text(text)
    (project / "link.py").symlink_to(secret)
    (project / "folder").symlink_to(tmp_path, target_is_directory=True)
    (project / "net.py").write_text(FAULTY)
    result = run(project, environment, "fix", ".", "--all", "--verify", "off", "--report", "html=page.html")
    assert result.returncode in (0, 1), result.stderr
    page = (project / "page.html").read_text()
    assert "net.py" in page and "zebra" not in page + result.stdout
    assert secret.read_text() == text


def test_a_report_replaces_a_link_and_leaves_what_it_leads_to(
    project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (project / "report.json").symlink_to(victim)
    (project / "net.py").write_text(FAULTY)
    run(project, environment, "check", ".", "--output-format", "json", "--output-file", "report.json")
    assert victim.read_text() == "kept"
    assert "net.py" in (project / "report.json").read_text()


# ---- readers


@pytest.fixture
def hostile(project: Path) -> Path:
    """Sources and names that try to be markup, commands and orders."""
    text = FAULTY.replace("x += a", "x += a['\x1b[8m\x1b]0;owned\x07</pre><script>alert(1)</script>`|`::error::no']")
    for name in (f"{TICKS.replace('/', '')}.py", "a\n::error::forged.py", "b\x1b[8m.py"):
        (project / name).write_text(text)
    (project / "cookie.py").write_text("# coding: \u001b\n# coding: no-such\n")
    (project / "broken.py").write_text("def f(:\n  '<script>alert(2)</script>'\n")
    return project


def test_documents_hold_text_and_no_markup(hostile: Path, environment: dict[str, str]) -> None:
    kinds = ("html", "markdown", "github", "concise")
    reports = [word for kind in kinds for word in ("--report", f"{kind}={kind}.txt")]
    result = run(hostile, environment, "check", ".", *reports)
    assert result.returncode in (1, 2), result.stderr
    texts = {kind: (hostile / f"{kind}.txt").read_text() for kind in kinds}
    assert "<script>alert" not in texts["html"].replace("</script><script>", "")
    assert "&lt;script&gt;alert(1)" in texts["html"]
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", texts["markdown"], flags=re.DOTALL)
    assert "<script>" not in prose and "@team" not in prose
    for kind in ("github", "concise"):
        lines = [line for line in texts[kind].splitlines() if "forged" in line]
        assert lines and not any(line.startswith("::error::forged") for line in lines)
    assert not any(line.startswith("::error::") for line in result.stdout.splitlines())


def test_a_terminal_gets_no_orders_from_sources(hostile: Path, environment: dict[str, str]) -> None:
    shown = on_a_terminal([sys.executable, "-m", "deinplace", "check", "."], hostile, environment)
    assert "net" in shown or "cookie" in shown
    assert "\x1b[8m" not in shown and "\x1b]0;" not in shown and "\x07" not in shown
    shown = on_a_terminal(
        [sys.executable, "-m", "deinplace", "fix", ".", "--all", "--verify", "off", "--diff", "--unsafe"],
        hostile,
        environment,
    )
    assert "\x1b[8m" not in shown and "\x1b]0;" not in shown
    assert "+    x = x + a['\N{REPLACEMENT CHARACTER}" in re.sub(r"\x1b\[[0-9;]*m", "", shown)


def on_a_terminal(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What a command prints where it believes to be looked at."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        command, cwd=folder, env={**environment, "TERM": "xterm"}, stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    data, deadline = b"", time.monotonic() + 100
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 0.2)[0]:
            continue
        try:
            piece = os.read(ours, 2**16)
        except OSError:  # Linux says so where the other end is closed
            break
        if not piece:
            break
        data += piece
    os.close(ours)
    assert child.wait(10) in (0, 1, 2)
    return data.decode("utf-8", "replace")


# ---- what is left behind


def private(path: Path) -> bool:
    return stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_cache_is_its_owners_alone(project: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    (project / "net.py").write_text(FAULTY)
    run(project, environment, "check", ".")
    made = list((tmp_path / "cache").rglob("*"))
    assert any(path.is_file() for path in made)
    assert [path for path in (tmp_path / "cache", *made) if not private(path)] == []


def test_the_files_of_a_run_are_its_owners_alone(project: Path) -> None:
    (project / "prog.py").write_text("print(1)\n")
    with Laboratory() as lab:
        run_ = lab.run(Driver(("python", "prog.py"), str(project), python=sys.executable), Settings(record=True))
        assert run_.attached
        assert private(lab.folder)
    assert not lab.folder.exists()


def test_the_log_of_a_bug_is_its_owners_alone(project: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    state = tmp_path / "state"
    with open("/dev/full", "w") as full:
        subprocess.run(
            [sys.executable, "-m", "deinplace", "rules"], cwd=project,
            env={**environment, "XDG_STATE_HOME": str(state)}, stdout=full, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    (log,) = state.rglob("*.log")
    assert private(log)
