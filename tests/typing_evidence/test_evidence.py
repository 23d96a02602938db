"""Answers in reports of the analysis and on the command line; what is absent, slow or broken decides nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from deinplace.analysis.records import Write
from deinplace.analysis.run import analyse
from deinplace.analysis.source import Source
from deinplace.typing_evidence import CHECKERS, TypeEvidence, ask
from deinplace.typing_evidence.checkers import TY, Checker, CheckerError
from deinplace.typing_evidence.classes import Classes
from deinplace.typing_evidence.environment import environment
from deinplace.typing_evidence.evidence import together
from deinplace.typing_evidence.questions import Question, about
from deinplace.typing_evidence.tree import Tree

needs_checkers = pytest.mark.skipif(
    not all(c.find() for c in CHECKERS), reason="needs ty and pyrefly: pip install 'deinplace[types]'"
)
PROGRAM = """\
import torch
from lib import made, counted, own


def f(x):
    y = made(x)
    y += 1
    n = counted(x)
    n += 1
    x += 1
    o = own()
    o += 1
    return y, n, o
"""
LIB = """\
import torch
from gone import anything


class Own(torch.Tensor): ...


def made(x) -> torch.Tensor:
    return anything(x)


def counted(x) -> int:
    return anything(x)


def own() -> Own:
    return anything()
"""


def project(folder: Path, text: str = PROGRAM) -> dict[str, Source]:
    """A program that is looked at, and beside it a module that only the checkers see."""
    (folder / "lib.py").write_text(LIB)
    path = folder / "main.py"
    path.write_text(text)
    return {str(path): Source.parse(str(path), path.read_bytes())}


def kinds(writes: list[Write]) -> dict[int, tuple[str, str]]:
    return {w.place.span.line: (w.kind, w.why) for w in writes}


@needs_checkers
def test_reports_get_the_kinds_that_checkers_are_sure_of(tmp_path: Path) -> None:
    sources = project(tmp_path)
    report = analyse(sources, lenient=True)
    unit = (str(tmp_path / "main.py"), "f")
    assert {kind for kind, _ in kinds(report.writes[unit]).values()} == {"unknown"}
    evidence = TypeEvidence(sources, sys.executable, all_sites=True)
    refined = evidence(report)
    found = kinds(refined.writes[unit])
    assert found[7] == ("tensor", "ty says `Tensor`")
    assert found[10][0] == "unknown"
    assert found[12] == ("likely", "pyrefly says `lib.Own`"), (
        "a class of the program's own may do anything in its operators"
    )
    assert 9 not in found
    assert refined.others[str(tmp_path / "main.py"), report.writes[unit][1].place.span] == "ty says `int`"
    assert evidence.notes == ()


@needs_checkers
def test_files_that_were_edited_in_memory_get_what_is_known_of_the_same_statements(tmp_path: Path) -> None:
    sources = project(tmp_path)
    evidence = TypeEvidence(sources, sys.executable, all_sites=True)
    evidence(analyse(sources, lenient=True))
    path = str(tmp_path / "main.py")
    moved = PROGRAM.replace("    y += 1\n", "    pass\n    y += 1\n    new = x\n    new += 1\n")
    later = {**sources, path: Source.parse(path, moved.encode())}
    found = kinds(evidence(analyse(later, lenient=True)).writes[path, "f"])
    assert found[8][0] == "tensor"
    assert found[10][0] == "unknown"
    assert 12 not in found


def test_only_writes_that_may_be_faults_are_asked_about_by_default(tmp_path: Path) -> None:
    sources = project(tmp_path)
    evidence = TypeEvidence(sources, "/nowhere/python")
    report = analyse(sources, lenient=True)
    assert evidence(report) == report
    assert evidence.notes == ()


def one_question(folder: Path) -> tuple[dict[str, Source], Question]:
    sources = project(folder)
    report = analyse(sources, lenient=True)
    write = next(w for writes in report.writes.values() for w in writes)
    question = about(write.place.path, write.form, write.node)
    assert question is not None
    return sources, question


@needs_checkers
def test_an_environment_without_torch_is_said_once_and_nothing_is_started(tmp_path: Path) -> None:
    sources, question = one_question(tmp_path)
    found = ask(sources, [question], "/nowhere/python")
    assert [a.kind for a in found.given] == ["unknown"]
    assert len(found.notes) == 1 and "has no torch" in found.notes[0]
    assert not found.seconds


@needs_checkers
def test_neither_the_project_nor_its_environment_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, env = tmp_path / "work", tmp_path / "env"
    packages = env / "lib" / "python3.12" / "site-packages"
    for folder in (work, packages / "torch", env / "bin", tmp_path / "home" / ".config" / "ty"):
        folder.mkdir(parents=True)
    betray = f"open({str(tmp_path / 'started')!r}, 'w').close()\n"
    python = env / "bin" / "python"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    python.chmod(0o755)
    (env / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.4\n")
    (packages / "torch" / "__init__.py").write_text(f"{betray}class Tensor: ...\n")
    (packages / "sitecustomize.py").write_text(betray)
    (packages / "evil.pth").write_text(f"import os; {betray}")
    (work / "pyproject.toml").write_text("[tool.pyrefly]\nthis is = broken\n[tool.ty]\n")
    (tmp_path / "home" / ".config" / "ty" / "ty.toml").write_text("this is = broken\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TY_CONFIG_FILE", str(work / "pyproject.toml"))
    sources = project(work, "# /// script\n# dependencies = []\n# ///\n" + betray + PROGRAM)
    report = analyse(sources, lenient=True)
    evidence = TypeEvidence(sources, str(python), all_sites=True)
    found = [w for writes in evidence(report).writes.values() for w in writes if w.kind == "tensor"]
    assert len(found) == 1
    assert evidence.notes == ()
    assert not (tmp_path / "started").exists()


@needs_checkers
def test_a_script_named_like_a_library_hides_it_from_nobody(tmp_path: Path) -> None:
    sources = project(tmp_path)
    other = tmp_path / "scripts" / "torch.py"
    other.parent.mkdir()
    other.write_text("class Tensor: ...\n")
    sources[str(other)] = Source.parse(str(other), other.read_bytes())
    evidence = TypeEvidence(sources, sys.executable, all_sites=True)
    refined = evidence(analyse(sources, lenient=True))
    assert "tensor" in {w.kind for writes in refined.writes.values() for w in writes}


def test_no_room_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, question = one_question(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    found = ask(sources, [question], sys.executable)
    assert [a.kind for a in found.given] == ["unknown"]
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("script", "message"),
    {
        "exit 3": "failed with exit code 3: it printed nothing",
        "echo oh dear >&2; exit 101": "failed with exit code 101: oh dear",
        "echo all is well": "gave no answer that can be read: all is well",
        "sleep 30 & sleep 30": "took longer than 1 seconds",
        "kill -9 $$": "failed with exit code -9",
    }.items(),
)
def test_a_checker_that_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    tool = tmp_path / "bin" / "broken-checker"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    sources, question = one_question(tmp_path)
    broken: Checker = replace(TY, name="broken-checker")
    with Tree() as tree:
        tree.write(sources, [question])
        with pytest.raises(CheckerError, match="broken-checker " + message):
            broken.reveal(tree, environment(sys.executable), list(tree.asked), seconds=1)
    assert not tree.folder.exists()


def test_a_checker_that_is_absent() -> None:
    with Tree() as tree, pytest.raises(CheckerError, match="is not installed"):
        replace(TY, name="no-such-checker").reveal(tree, environment(sys.executable), [])


SLOW = """\
import sys
from dataclasses import replace
from pathlib import Path
from deinplace.analysis.source import Source
from deinplace.typing_evidence.checkers import TY
from deinplace.typing_evidence.environment import environment
from deinplace.typing_evidence.tree import Tree

with Tree() as tree:
    tree.write({"/p/a.py": Source.parse("/p/a.py", b"x = 1")}, ())
    replace(TY, name="slow-checker").reveal(tree, environment(sys.executable), [])
"""


def test_an_interrupt_ends_the_checker_and_removes_the_copy(tmp_path: Path) -> None:
    tool, started = tmp_path / "bin" / "slow-checker", tmp_path / "pid"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}; exec sleep 60\n")
    tool.chmod(0o755)
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        [sys.executable, "-c", SLOW], env=os.environ | {"TMPDIR": str(tmp_path), "PATH": path}, stderr=subprocess.PIPE
    ) as child:
        while not started.exists():
            assert child.poll() is None
            time.sleep(0.05)
        assert list(tmp_path.glob("deinplace-types-*"))
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=20)
    assert b"KeyboardInterrupt" in error
    assert not list(tmp_path.glob("deinplace-types-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.parametrize(
    ("texts", "kind", "why"),
    [
        (("Tensor", "torch._tensor.Tensor"), "tensor", "ty says `Tensor`"),
        (("Unknown", "torch._tensor.Tensor | None"), "tensor", "pyrefly says `torch._tensor.Tensor | None`"),
        (("int", "Unknown"), "other", "ty says `int`"),
        (("Tensor", "int"), "unknown", "ty says `Tensor` but pyrefly says `int`"),
        (("Tensor | int", "Unknown"), "unknown", ""),
    ],
)
def test_one_checker_is_enough_and_two_that_contradict_each_other_are_none(
    tmp_path: Path, texts: tuple[str, str], kind: str, why: str
) -> None:
    sources, question = one_question(tmp_path)
    key = (question.path, question.span)
    told = {name: {key: frozenset({text})} for name, text in zip(("ty", "pyrefly"), texts, strict=True)}
    answer = together(question, told, Classes(sources))
    assert (answer.kind, answer.why) == (kind, why)
    assert answer.contradicted == (" but " in why)


def deinplace(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deinplace", *arguments]
    env = os.environ | {"NO_COLOR": "1"} | variables
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=env)


@needs_checkers
def test_commands_leave_no_shadow_behind(tmp_path: Path) -> None:
    text = "\n\ndef g(x: torch.Tensor):\n    y = x.relu()\n    y += 1\n    return y\n"
    project(tmp_path, PROGRAM + text)
    common = ("main.py", "--types", "on", "--python", sys.executable)
    checked = deinplace(tmp_path, "check", *common, TMPDIR=str(tmp_path))
    assert "relu saved its output" in checked.stdout
    fixed = deinplace(tmp_path, "fix", "--all", "--diff", "--no-harness", *common, TMPDIR=str(tmp_path))
    assert "+    y = y + 1" in fixed.stdout
    assert "n + 1" not in fixed.stdout
    assert not list(tmp_path.glob("deinplace-types-*"))
    assert "type" not in checked.stderr + fixed.stderr


def test_bad_values_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert deinplace(tmp_path, "check", ".", "--types", "maybe").returncode == 2
    (tmp_path / "deinplace.toml").write_text('types = "maybe"\n')
    result = deinplace(tmp_path, "check", ".")
    assert result.returncode == 2
    assert "`types` must be one of auto, on, off" in result.stderr
