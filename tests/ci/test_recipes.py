"""Every command of ours in docs/ci.md, run in a repository; every YAML block, read."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ci.conftest import ROOT
from programs import NET
from programs import NET_FIXED as FIXED

TEXT = (ROOT / "docs" / "ci.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line for line in SHELL if line] + [
    line.strip().removeprefix("- ").removeprefix("run: ")
    for block in BLOCKS
    for line in block.splitlines()
    if re.match(r"\s*- (run: )?deinplace ", line)
]


def test_the_yaml_is_yaml() -> None:
    assert len(BLOCKS) == 7
    for block in BLOCKS:
        assert yaml.safe_load(block)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / target).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_runs(command: str, project: Path, environment: dict[str, str]) -> None:
    (project / "tests").mkdir()
    (project / "tests" / "test_net.py").write_text(
        "import net\n\n\ndef test_it():\n    assert net.x.grad is not None\n"
    )
    (project / "conftest.py").write_text("")
    if "--baseline" in command:
        made = "deinplace check --write-baseline deinplace-baseline.json"
        subprocess.run(["bash", "-c", made], cwd=project, env=environment, check=True, capture_output=True)
    result = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command], cwd=project, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == ("gitlab" in command), result.stdout + result.stderr
    text = (project / "net.py").read_text()
    if "fix" in command and "--diff" not in command:
        assert text == FIXED
    elif "--add-ignore" in command:
        assert "# deinplace: ignore[DIP102]" in text
    else:
        assert text == NET
    for name in re.findall(r"(?:--output-file |=)([\w-]+\.(?:json|md|xml))", command):
        held = (project / name).read_text()
        assert json.loads(held) if name.endswith(".json") else "DIP102" in held
