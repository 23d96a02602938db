"""The two workflows: what they may do, and the trusted one's shell steps against bare repositories on disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ci.conftest import ROOT, Git
from ci.runner import Runner, load, named
from ci.test_ci_apply import GOOD
from programs import NET
from programs import NET_FIXED as FIXED

FIRST, SECOND = load(ROOT / "docs/ci/deinplace.yml"), load(ROOT / "docs/ci/deinplace-apply.yml")
STEPS = SECOND["jobs"]["apply"]["steps"]
GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
case "$1" in api) echo 7 ;; esac
"""


def test_the_job_that_runs_reviewed_code_can_only_read() -> None:
    assert FIRST["on"] == "pull_request"
    assert FIRST["permissions"] == {"contents": "read"}
    (job,) = FIRST["jobs"].values()
    assert "permissions" not in job
    assert "secrets" not in (ROOT / "docs/ci/deinplace.yml").read_text()
    checkout = next(step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["persist-credentials"] == "false"


def test_the_trusted_job_runs_none_of_it() -> None:
    assert list(SECOND["on"]) == ["workflow_run"]
    assert SECOND["permissions"] == {}
    assert not [step for step in STEPS if "checkout" in step.get("uses", "")]
    for step in STEPS:
        assert "${{" not in step.get("run", "")
        assert not re.search(r"\b(make|pytest|pip install [^\"]*-[re]|npm)\b", step.get("run", ""))


@pytest.mark.parametrize("workflow", [FIRST, SECOND], ids=["first", "second"])
def test_everything_used_is_pinned(workflow: dict[str, dict[str, dict[str, list[dict[str, str]]]]]) -> None:
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}|OWNER/deinplace@COMMIT", step["uses"])


class Job:
    """The trusted job, on its way through its steps."""

    def __init__(self, runner: Runner, git: Git, project: Path, tmp_path: Path) -> None:
        self.runner, self.git, self.tmp_path = runner, git, tmp_path
        self.bare = tmp_path / "bare.git"
        git(tmp_path, "clone", "-q", "--bare", str(project), str(self.bare))
        git(self.bare, "config", "uploadpack.allowAnySHA1InWant", "true")
        self.head = git(project, "rev-parse", "HEAD").strip()
        runner.environment |= {"HEAD_SHA": self.head, "HEAD_BRANCH": "main"}

    def run(self, name: str) -> int:
        step = named(STEPS, name)
        url = {"HEAD_URL": self.bare.as_uri()} if "HEAD_URL" in step.get("env", {}) else {}
        result = self.runner.step(step, self.tmp_path, **url)
        self.said = result.stdout + result.stderr
        return result.returncode

    def artifact(self, patch: str) -> None:
        folder = self.runner.temp / "artifact"
        folder.mkdir()
        (folder / "report.patch").write_text(patch)
        (folder / "report.json").write_text('{"findings": []}')


@pytest.fixture
def job(environment: dict[str, str], git: Git, project: Path, tmp_path: Path) -> Job:
    temp = tmp_path / "runner"
    temp.mkdir()
    context = {
        "github.token": "secret",
        "github.server_url": "https://host.invalid",
        "github.event.workflow_run.head_repository.full_name": "o/r",
        "github.repository": "o/r",
    }
    return Job(Runner(temp, environment, context), git, project, tmp_path)


def test_a_good_patch_is_committed_and_pushed(job: Job) -> None:
    job.artifact(GOOD)
    assert job.run("Fetch") == 0, job.said
    assert job.run("Check") == 0, job.said
    assert job.runner.outputs == {"changed": "true"}
    assert "```diff" in job.runner.summary
    assert job.run("Push") == 0, job.said
    assert job.git(job.bare, "show", "main:net.py") == FIXED
    assert job.git(job.bare, "rev-parse", "main^").strip() == job.head
    assert "Deinplace-Rules:" in job.git(job.bare, "log", "-1", "--format=%B", "main")
    assert "secret" not in job.git(job.runner.temp / "tree", "config", "--list")


def test_a_branch_that_moved_meanwhile_is_not_overwritten(job: Job, project: Path) -> None:
    job.artifact(GOOD)
    assert job.run("Fetch") == job.run("Check") == 0
    job.git(project, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    job.git(project, "push", "-q", str(job.bare), "main")
    assert job.run("Push") != 0
    assert job.git(job.bare, "show", "main:net.py") == NET


@pytest.mark.parametrize("patch", [GOOD.replace("net.py", ".github/workflows/a.py"), GOOD.replace("y += x", "y += z")])
def test_a_bad_patch_stops_the_job(patch: str, job: Job) -> None:
    job.artifact(patch)
    assert job.run("Fetch") == 0
    assert job.run("Check") == 2
    assert job.runner.outputs == {}
    assert job.git(job.bare, "rev-parse", "main").strip() == job.head


def test_an_empty_patch_changes_nothing(job: Job) -> None:
    job.artifact("")
    assert job.run("Fetch") == job.run("Check") == 0
    assert job.runner.outputs == {}


def test_a_fork_gets_a_comment(job: Job, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text(GH)
    (tools / "gh").chmod(0o755)
    log = tmp_path / "gh.log"
    job.runner.environment |= {"PATH": f"{tools}:{job.runner.environment['PATH']}", "GH_LOG": str(log)}
    job.artifact(GOOD)
    assert job.run("Fetch") == job.run("Check") == job.run("Comment") == 0, job.said
    asked, commented = log.read_text().splitlines()
    assert asked.startswith(f"api repos/o/r/commits/{job.head}/pulls")
    assert commented == f"pr comment 7 --body-file {job.runner.temp}/summary.md"
    assert "y = y + x" in (job.runner.temp / "summary.md").read_text()


def test_conditions_keep_forks_and_the_default_branch_from_being_pushed_to() -> None:
    push, comment = named(STEPS, "Push")["if"], named(STEPS, "Comment")["if"]
    assert "env.HEAD_REPOSITORY == github.repository" in push
    assert "env.HEAD_BRANCH != github.event.repository.default_branch" in push
    assert "env.HEAD_REPOSITORY != github.repository" in comment
