"""The composite action: each of its shell steps, run as the runner runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from ci.conftest import ROOT
from ci.runner import Runner, load, named
from programs import NET
from programs import NET_FIXED as FIXED

ACTION = load(ROOT / "action.yml")
STEPS = ACTION["runs"]["steps"]
DEFAULTS = {f"inputs.{name}": value["default"] for name, value in ACTION["inputs"].items()}


@pytest.fixture
def runner(environment: dict[str, str], tmp_path: Path) -> Runner:
    temp = tmp_path / "runner"
    temp.mkdir()
    context = {**DEFAULTS, "github.action_path": str(ROOT), "inputs.python": sys.executable}
    return Runner(temp, environment, context)


def test_inputs_never_become_part_of_a_script() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
    used = {value for step in STEPS for value in step["env"].values()}
    assert {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]} <= used


def test_the_first_step_installs_the_actions_own_commit(runner: Runner, tmp_path: Path) -> None:
    source = tmp_path / "action"
    source.mkdir()
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    runner.context |= {"inputs.python": str(python), "github.action_path": str(source)}
    result = runner.step(named(STEPS, "Install"), tmp_path)
    assert result.returncode == 0, result.stderr
    where = [
        str(python),
        "-c",
        "import deinplace, importlib.util as u; print(deinplace.__file__, u.find_spec('torch'))",
    ]
    found = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(tmp_path / "venv"))
    assert found.endswith(" None\n")


def test_nothing_is_installed_where_nothing_is_asked_for(runner: Runner, tmp_path: Path) -> None:
    runner.context |= {"inputs.install": "", "inputs.python": "/nonexistent"}
    assert runner.step(named(STEPS, "Install"), tmp_path).returncode == 0


def test_check_annotates_and_writes_the_summary(runner: Runner, project: Path) -> None:
    result = runner.step(named(STEPS, "Run"), project)
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("::error file=net.py,line=6,")
    assert "DIP102" in runner.summary
    assert runner.summary.startswith("## deinplace: found 1 in-place fault")
    assert runner.outputs["exit-code"] == "1"
    assert json.loads(Path(runner.outputs["report"]).read_text())["command"] == "check"
    assert json.loads(Path(runner.outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert (project / "net.py").read_text() == NET


def test_fix_leaves_the_checkout_alone_and_makes_a_patch(runner: Runner, project: Path) -> None:
    runner.context |= {"inputs.command": "fix", "inputs.run": f"{sys.executable} net.py", "inputs.verify": "require"}
    result = runner.step(named(STEPS, "Run"), project)
    assert result.returncode == 1, result.stderr
    assert "confirmed" in result.stdout
    assert "### Rewrites" in runner.summary
    assert (project / "net.py").read_text() == NET
    subprocess.run(["git", "apply", runner.outputs["patch"]], cwd=project, check=True)
    assert (project / "net.py").read_text() == FIXED


def test_a_clean_tree_exits_0_with_an_empty_patch(runner: Runner, project: Path) -> None:
    (project / "net.py").write_text(FIXED)
    result = runner.step(named(STEPS, "Run"), project)
    assert (result.returncode, runner.outputs["exit-code"]) == (0, "0")
    assert Path(runner.outputs["patch"]).read_text() == ""


def test_an_error_keeps_the_tools_exit_code(runner: Runner, project: Path) -> None:
    runner.context["inputs.paths"] = "nowhere"
    result = runner.step(named(STEPS, "Run"), project)
    assert (result.returncode, runner.outputs["exit-code"]) == (2, "2")
    assert "nowhere: no such file or folder" in result.stderr
    runner.context |= {"inputs.command": "run"}
    assert runner.step(named(STEPS, "Run"), project).returncode == 2


def test_check_imports_nothing_from_the_checkout(runner: Runner, project: Path) -> None:
    for name in ("deinplace", "typer", "json", "pip", "sitecustomize"):
        (project / f"{name}.py").write_text("open('pwned', 'w').close()\n")
    result = runner.step(named(STEPS, "Run"), project)
    assert result.returncode == 1, result.stderr
    runner.context |= {"inputs.install": "deinplace-is-installed-already; python_version < '3'"}
    assert runner.step(named(STEPS, "Install"), project).returncode == 0
    assert not (project / "pwned").exists()


@pytest.mark.parametrize(
    "text", ["$(touch pwned)", "`touch pwned`", "; touch pwned", '"; touch pwned; "', "--output-file=pwned"]
)
def test_inputs_are_words_and_nothing_else(text: str, runner: Runner, project: Path) -> None:
    for name in ("paths", "command"):
        runner.context = {**runner.context, f"inputs.{name}": text}
        assert runner.step(named(STEPS, "Run"), project).returncode == 2
    assert not (project / "pwned").exists()


def test_paths_and_arguments_are_split_by_line(runner: Runner, project: Path) -> None:
    (project / "a b.py").write_text(NET)
    runner.context |= {"inputs.paths": "a b.py\nnet.py\n", "inputs.arguments": "--ignore\nDIP101\n--exit-zero"}
    result = runner.step(named(STEPS, "Run"), project)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("::error file=") == 2
