"""Both hooks, run by the real pre-commit, which installs the package from a repository as it does for users."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ci.conftest import ROOT, Git
from programs import NET
from programs import NET_FIXED as FIXED

FILES = ("src", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")


@pytest.fixture
def package(tmp_path: Path, git: Git) -> Path:
    """This package's files as they are now, in a repository that hooks can be taken from."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name in FILES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "package")
    return folder


def test_the_manifest_is_one_that_pre_commit_takes() -> None:
    manifest = ROOT / ".pre-commit-hooks.yaml"
    command = [sys.executable, "-m", "pre_commit", "validate-manifest", str(manifest)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""
    hooks = yaml.safe_load(manifest.read_text())
    assert [hook["id"] for hook in hooks] == ["deinplace", "deinplace-fix"]
    assert all(hook["require_serial"] and hook["language"] == "python" for hook in hooks)


def test_both_hooks_do_their_work_without_torch(
    package: Path, project: Path, git: Git, environment: dict[str, str], tmp_path: Path
) -> None:
    hooks = [{"id": "deinplace"}, {"id": "deinplace-fix"}]
    repo = {"repo": str(package), "rev": git(package, "rev-parse", "HEAD").strip(), "hooks": hooks}
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [repo]}))
    (project / "build").mkdir()
    (project / "build" / "generated.py").write_text(NET)
    git(project, "add", "--force", ".")
    cache = tmp_path / "cache"

    def pre_commit(hook: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never", hook]
        return subprocess.run(
            command, cwd=project, env={**environment, "PRE_COMMIT_HOME": str(cache)}, capture_output=True, text=True,
            timeout=500, check=False,
        )  # fmt: skip

    found = pre_commit("deinplace")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "net.py:6:5: DIP102" in found.stdout
    assert "generated.py" not in found.stdout
    assert (project / "net.py").read_text() == NET
    fixed = pre_commit("deinplace-fix")
    assert fixed.returncode == 1, "pre-commit stops a commit where a hook rewrote something"
    assert "files were modified by this hook" in fixed.stdout
    assert (project / "net.py").read_text() == FIXED
    assert (project / "build" / "generated.py").read_text() == NET
    assert pre_commit("deinplace-fix").returncode == 0
    assert pre_commit("deinplace").returncode == 0
    installed = {path.name.split("-")[0].lower() for path in cache.rglob("site-packages/*")}
    assert "libcst" in installed
    assert not installed & {"torch", "numpy"}
