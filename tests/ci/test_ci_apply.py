"""Patches from an untrusted job: what `fix` writes is applied, and everything else is refused, changing nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ci.conftest import Git
from programs import NET
from programs import NET_FIXED as FIXED

Apply = Callable[..., subprocess.CompletedProcess[str]]
EDIT = "@@ -5,3 +5,3 @@\n     y = torch.relu(x)\n-    y += x\n+    y = y + x\n     return y\n"
GOOD = f"--- a/net.py\n+++ b/net.py\n{EDIT}"


@pytest.fixture
def apply(project: Path, git: Git, environment: dict[str, str], tmp_path: Path) -> Apply:
    """Runs `ci-apply` on a patch, for the commit that is checked out."""

    def run(patch: str | bytes | Path, *flags: str, head: str = "") -> subprocess.CompletedProcess[str]:
        path = patch if isinstance(patch, Path) else tmp_path / "artifact.patch"
        if not isinstance(patch, Path):
            path.write_bytes(patch.encode() if isinstance(patch, str) else patch)
        head = head or git(project, "rev-parse", "HEAD").strip()
        command = [sys.executable, "-m", "deinplace", "ci-apply", str(path), "--head", head, *flags]
        return subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip

    return run


def refused(result: subprocess.CompletedProcess[str], words: str, project: Path, git: Git) -> None:
    """The command said why, and neither the files nor the index nor the history changed."""
    assert result.returncode == 2, result.stdout
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""
    assert git(project, "rev-list", "--count", "HEAD").strip() == "1"
    assert (project / "net.py").read_text() == NET


def test_what_fix_prints_is_applied(apply: Apply, project: Path, git: Git, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "deinplace", "fix", "--diff", "--output-format", "patch"]
    made = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    result = apply(made.stdout)
    assert (result.returncode, result.stderr) == (0, "")
    assert "changed net.py" in result.stdout
    assert (project / "net.py").read_text() == FIXED
    assert git(project, "diff", "--cached", "--name-only") == "net.py\n"


def test_what_git_diff_prints_is_applied(apply: Apply, project: Path, git: Git) -> None:
    (project / "net.py").write_text(FIXED)
    patch = git(project, "diff")
    git(project, "checkout", "-q", "--", ".")
    assert apply(patch).returncode == 0
    assert (project / "net.py").read_text() == FIXED


def test_a_name_with_a_space_and_an_accent(apply: Apply, project: Path, git: Git) -> None:
    git(project, "mv", "net.py", "net é 1.py")
    git(project, "commit", "-q", "--amend", "-m", "moved")
    assert apply(GOOD.replace("net.py", "net é 1.py")).returncode == 0
    assert (project / "net é 1.py").read_text() == FIXED


def test_a_notebook_is_applied_where_it_stays_one(apply: Apply, project: Path, git: Git) -> None:
    (project / "a.ipynb").write_text('{\n "cells": []\n}\n')
    git(project, "add", ".")
    git(project, "commit", "-q", "--amend", "-m", "first")
    head = "--- a/a.ipynb\n+++ b/a.ipynb\n@@ -1,3 +1,3 @@\n {\n"
    broken = apply(head + '- "cells": []\n+ "cells": [\n }\n')
    refused(broken, "a.ipynb: is broken", project, git)
    assert apply(head + '- "cells": []\n+ "cells": [1]\n }\n').returncode == 0


def test_an_empty_patch_is_nothing_to_do(apply: Apply, project: Path) -> None:
    result = apply("")
    assert result.returncode == 0
    assert "nothing to do" in result.stdout


def test_a_commit_carries_trailers_and_is_not_answered(apply: Apply, project: Path, git: Git, tmp_path: Path) -> None:
    findings = [
        {"code": "DIP102", "state": "fixable", "verification": {"status": "confirmed"}},
        {"code": "x\n\nSigned-off-by: someone", "state": "fixable", "verification": {"status": "confirmed"}},
        {"code": "DIP105", "state": "advised", "verification": None},
    ]
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"findings": findings}))
    hook = project / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    assert apply(GOOD, "--report", str(report), "--commit").returncode == 0
    said = git(project, "log", "-1", "--format=%B")
    assert "Deinplace-Rules: DIP102\nDeinplace-Verification: confirmed" in said
    assert "Signed-off-by" not in said
    assert not (project / "ran").exists()
    assert git(project, "show", "HEAD:net.py") == FIXED
    again = apply(GOOD)
    assert again.returncode == 0
    assert "made by deinplace" in again.stdout


def test_the_summary_shows_the_patch_in_a_fence(apply: Apply, tmp_path: Path) -> None:
    assert apply(GOOD, "--summary", str(tmp_path / "s.md")).returncode == 0
    assert "```diff\n--- a/net.py\n" in (tmp_path / "s.md").read_text()


@pytest.mark.parametrize(
    "name",
    ["../net.py", "a/../net.py", "/etc/net.py", "./net.py", "a//net.py", "C:\\net.py", "..\\net.py", "c:net.py",
     "dir./net.py", "\x1bnet.py"],
)  # fmt: skip
def test_a_path_that_escapes(name: str, apply: Apply, project: Path, git: Git) -> None:
    refused(apply(GOOD.replace("net.py", name)), repr(name), project, git)


@pytest.mark.parametrize(
    "name", [".github/a.py", ".GitHub/scripts/a.py", "sub/.github/a.py", ".git/hooks/a.py", "GIT~1/a.py"]
)
def test_a_path_under_the_hosts_own_folder(name: str, apply: Apply, project: Path, git: Git) -> None:
    refused(apply(GOOD.replace("net.py", name)), "is ever changed", project, git)


@pytest.mark.parametrize("name", ["notes.txt", "setup.cfg", "Makefile", "net.py.sh", "a.yml", "py"])
def test_a_file_that_is_not_python(name: str, apply: Apply, project: Path, git: Git) -> None:
    refused(apply(GOOD.replace("net.py", name)), "only .py and .ipynb files", project, git)


def test_a_symbolic_link_in_the_commit(apply: Apply, project: Path, git: Git) -> None:
    (project / "link.py").symlink_to("net.py")
    git(project, "add", ".")
    git(project, "commit", "-q", "--amend", "-m", "first")
    refused(apply(GOOD.replace("net.py", "link.py")), "link.py: is a symbolic link", project, git)


def test_a_folder_that_is_a_symbolic_link(apply: Apply, project: Path, git: Git, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "net.py").write_text(NET)
    (project / "sub").symlink_to(tmp_path / "outside")
    git(project, "add", ".")
    git(project, "commit", "-q", "--amend", "-m", "first")
    refused(apply(GOOD.replace("net.py", "sub/net.py")), "sub/net.py: is not in the commit", project, git)
    assert (tmp_path / "outside" / "net.py").read_text() == NET


def test_a_patch_that_makes_a_symbolic_link(apply: Apply, project: Path, git: Git) -> None:
    made = "diff --git a/l.py b/l.py\nnew file mode 120000\n--- /dev/null\n+++ b/l.py\n@@ -0,0 +1 @@\n+/etc/passwd\n"
    refused(apply(made), "only edits of lines", project, git)


@pytest.mark.parametrize(
    "patch",
    [
        "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n",
        "--- a/net.py\n+++ /dev/null\n@@ -1,11 +0,0 @@\n" + "".join(f"-{line}\n" for line in NET.splitlines()),
        "diff --git a/net.py b/other.py\nsimilarity index 100%\nrename from net.py\nrename to other.py\n",
        "diff --git a/net.py b/net.py\nold mode 100644\nnew mode 100755\n",
        "diff --git a/net.py b/net.py\nGIT binary patch\nliteral 0\n\n",
        "Subject: hello\n\n" + GOOD,
        GOOD + "-- \n2.43.0\n",
    ],
    ids=["new", "deleted", "renamed", "mode", "binary", "mail", "trailing"],
)
def test_more_than_edits_of_lines(patch: str, apply: Apply, project: Path, git: Git) -> None:
    refused(apply(patch), "line", project, git)


def test_a_new_file_that_poses_as_an_old_one(apply: Apply, project: Path, git: Git) -> None:
    refused(apply("--- a/new.py\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"), "new.py: is not in the commit", project, git)


@pytest.mark.parametrize("old", ["other.py", "net.py\t2020-01-01"])
def test_names_that_differ(old: str, apply: Apply, project: Path, git: Git) -> None:
    refused(apply(GOOD.replace("a/net.py", f"a/{old}")), "names of the file differ", project, git)


def test_a_second_section_hidden_in_a_hunk(apply: Apply, project: Path, git: Git) -> None:
    hidden = GOOD + "--- a/.github/x.py\n+++ b/.github/x.py\n@@ -1 +1 @@\n-a\n+b\n"
    refused(apply(hidden), ".github", project, git)
    short = GOOD.replace("-5,3 +5,3", "-5,9 +5,9")
    refused(apply(short), "ends too early", project, git)


def test_a_patch_that_is_too_large(apply: Apply, project: Path, git: Git, tmp_path: Path) -> None:
    refused(apply(GOOD + "x" * 2_000_000), "is larger than", project, git)
    sparse = tmp_path / "sparse.patch"
    with sparse.open("wb") as stream:
        stream.truncate(1 << 40)
    refused(apply(sparse), "is larger than", project, git)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "missing"])
def test_an_artifact_that_is_no_plain_file(kind: str, apply: Apply, project: Path, git: Git, tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    if kind == "link":
        (tmp_path / "target").write_text(GOOD)
        path.symlink_to(tmp_path / "target")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    refused(apply(path), "cannot be read" if kind == "missing" else "is not a plain file", project, git)


def test_a_patch_for_another_commit(apply: Apply, project: Path, git: Git) -> None:
    refused(apply(GOOD, head="0" * 40), "but the patch is for 0000", project, git)
    refused(apply(GOOD, head="main"), "give the whole id", project, git)
    refused(apply(GOOD, head="--help"), "", project, git)


def test_a_patch_that_does_not_apply(apply: Apply, project: Path, git: Git) -> None:
    refused(apply(GOOD.replace("-    y += x", "-    y += z")), "patch does not apply", project, git)


def test_a_checkout_with_changes_of_its_own(apply: Apply, project: Path, git: Git) -> None:
    (project / "notes.txt").write_text("changed\n")
    result = apply(GOOD)
    assert result.returncode == 2
    assert "changes of its own" in result.stderr
    assert (project / "net.py").read_text() == NET


def test_a_patch_that_breaks_the_file(apply: Apply, project: Path, git: Git) -> None:
    refused(apply(GOOD.replace("+    y = y + x", "+    y = = x")), "net.py: is broken", project, git)


@pytest.mark.parametrize(
    "data", [b"\0" * 100, b"\xff\xfe" + GOOD.encode("utf-16-le"), GOOD.replace("\n", "\r\n").encode()]
)
def test_bytes_that_are_no_patch(data: bytes, apply: Apply, project: Path, git: Git) -> None:
    refused(apply(data), "", project, git)


def test_a_report_that_is_no_report(apply: Apply, project: Path, git: Git, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for text in ("[1]", "{", "[" * 100_000):
        path.write_text(text)
        refused(apply(GOOD, "--report", str(path)), "report.json: is not", project, git)
