"""Runs the shell steps of an action or a workflow as GitHub's runner does: same shell, same flags, same files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


@dataclass
class Runner:
    """One job: its folders, and what its steps have put out."""

    temp: Path
    environment: dict[str, str]
    context: dict[str, str]
    """Values of expressions, such as `github.action_path`."""
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    def step(self, step: Mapping[str, Any], cwd: Path, **overridden: str) -> subprocess.CompletedProcess[str]:
        """Run one step's script, and keep its outputs and its summary."""
        assert "${{" not in step["run"], "text from outside must not become part of a script"
        files = {name: self.temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for path in files.values():
            path.write_text("")
        script = self.temp / "script.sh"
        script.write_text(step["run"])
        own = {name: self.value(str(value)) for name, value in step.get("env", {}).items()}
        result = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=cwd,
            env={
                **self.environment,
                **own,
                **overridden,
                "RUNNER_TEMP": str(self.temp),
                **{name: str(path) for name, path in files.items()},
            },
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        self.outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        self.summary = files["GITHUB_STEP_SUMMARY"].read_text()
        return result

    def value(self, text: str) -> str:
        """`text` with its expressions evaluated; one that the test has not given is an error."""
        return _EXPRESSION.sub(lambda match: self.context[match[1]], text)


def load(path: Path) -> Any:
    """A workflow or an action; the key `on` stays a string, which YAML 1.1 takes for a truth value."""
    return yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)


def named(steps: list[dict[str, Any]], start: str) -> dict[str, Any]:
    """The step whose name starts so."""
    return next(step for step in steps if step.get("name", "").startswith(start))
