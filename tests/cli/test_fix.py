"""`deinplace fix`: the smallest rewrite, proved and then written; a dry run writes nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
from programs import CLEAN, FAILING, FIXED_LINE, TRAINING

Write = Callable[[str, str], Path]
FIXED = FAILING.replace("    y += x  # overwrites what relu kept\n", FIXED_LINE)
RUN = ("--run", "python train.py")


def test_the_program_is_mended_and_runs(cli: Callable, write: Write, tmp_path: Path) -> None:
    path = write("train.py", FAILING)
    result = cli("fix", ".", *RUN)
    assert result.returncode == 0, result.stderr
    assert path.read_text() == FIXED
    assert "-    y += x  # overwrites what relu kept\n+    y = y + x  # overwrites what relu kept\n" in result.stdout
    assert "Found 1 in-place fault (1 fixed: 1 confirmed)" in result.stdout
    assert re.search(
        r"^1 rewrite, confirmed on cpu \(.*max \|error\| 0\), oracle: copy-on-write$", result.stdout, re.MULTILINE
    )
    assert result.stderr == ""
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True)


def test_a_second_run_finds_nothing(cli: Callable, write: Write) -> None:
    path = write("train.py", FIXED)
    result = cli("fix", ".", *RUN)
    assert result.returncode == 0
    assert "Found no in-place faults" in result.stdout
    assert path.read_text() == FIXED


def test_diff_writes_nothing_and_is_a_patch(cli: Callable, write: Write, tmp_path: Path) -> None:
    path = write("train.py", FAILING)
    result = cli("fix", ".", *RUN, "--diff")
    assert result.returncode == 1
    assert path.read_text() == FAILING
    assert "Found 1 in-place fault (1 fixable: 1 confirmed)" in result.stderr
    subprocess.run(["git", "apply", "-"], input=result.stdout, cwd=tmp_path, check=True, text=True)
    assert path.read_text() == FIXED


def test_the_json_report_is_valid_and_says_what_was_written(cli: Callable, write: Write, tmp_path: Path) -> None:
    write("train.py", FAILING)
    result = cli("fix", ".", *RUN, "--output-format", "json", "--output-file", "report.json")
    assert (result.returncode, result.stdout) == (0, "")
    report = json.loads((tmp_path / "report.json").read_text())
    schema = json.loads(files("deinplace.report").joinpath("report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)
    assert report["written"] is True
    assert report["verification"]["status"] == "confirmed"
    (finding,) = report["findings"]
    assert (finding["path"], finding["line"], finding["state"]) == ("train.py", 10, "fixed")
    assert (finding["rewrite"]["path"], finding["rewrite"]["line"]) == ("train.py", 10)
    assert [c["path"] for c in report["changes"]] == ["train.py"]


def test_exit_codes_can_be_chosen(cli: Callable, write: Write) -> None:
    write("train.py", FAILING)
    assert cli("fix", ".", *RUN, "--diff", "--exit-zero").returncode == 0
    assert cli("fix", ".", *RUN, "--exit-non-zero-on-fix").returncode == 1


def test_concise_and_quiet(cli: Callable, write: Write) -> None:
    write("train.py", FAILING)
    result = cli("fix", ".", *RUN, "--diff", "--output-format", "concise", "-q")
    assert re.fullmatch(r"train\.py:10:5: DIP\d+ \[\*\] backward needs the output of relu .*\n", result.stderr)
    assert result.stdout.startswith("--- a/train.py\n")


def test_colours_are_asked_for_or_not_there(cli: Callable, write: Write) -> None:
    write("train.py", FAILING)
    for flags, env, colored in (
        ((), {}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
    ):
        result = cli("run", *flags, "train.py", env=env)
        assert ("\x1b[" in result.stdout) is colored


def test_settings_of_the_project_are_used(cli: Callable, write: Write) -> None:
    path = write("train.py", TRAINING)
    write("pyproject.toml", "[tool.deinplace]\nrun = 'python train.py'\nmax-steps = 1\n")
    assert cli("fix").returncode == 0
    assert path.read_text() == TRAINING.replace("    y += x  # overwrites what relu kept\n", FIXED_LINE)


def test_only_the_files_that_were_named_are_changed(cli: Callable, write: Write) -> None:
    path = write("train.py", FAILING)
    write("other/clean.py", CLEAN)
    result = cli("fix", "other", *RUN)
    assert result.returncode == 1
    assert path.read_text() == FAILING
    assert "train.py:10" in result.stdout


def test_advice_names_the_file_that_would_have_to_be_changed(cli: Callable, write: Write, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    write("helper.py", "def act(x):\n    y = x.exp()\n    y += 1\n    return y\n")
    write(
        "app/train.py",
        "import sys\nsys.path.insert(0, '.')\nimport torch\nfrom helper import act\n"
        "w = torch.ones(3, requires_grad=True)\nact(w).sum().backward()\n",
    )
    result = cli("fix", "app", "--run", "python app/train.py")
    assert result.returncode == 1
    text = " ".join(result.stdout.split())
    assert f"help: the write is in {tmp_path / 'helper.py'}, which is not among the files to be changed" in text
    assert "Give the operation" not in text


def test_a_step_that_no_clone_evades_is_reported_by_the_rule_that_knows_it(cli: Callable, write: Write) -> None:
    write(
        "train.py",
        "import torch\nfrom torch import nn\nG, D = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))\n"
        "step_D = torch.optim.SGD(D.parameters(), 0.1)\n"
        "def discriminate(loss):\n    loss.backward(retain_graph=True)\n    step_D.step()\n"
        "def generate(loss):\n    loss.backward()\n"
        "def train():\n    fake = D(G(torch.ones(3, 2)))\n    discriminate(fake.mean())\n    generate(-fake.mean())\n"
        "train()\n",
    )
    result = cli("fix", ".", *RUN)
    assert result.returncode == 1
    assert "DIP201" in result.stdout and "DIP107" not in result.stdout
    assert "Run this backward before the step" in " ".join(result.stdout.split())


def test_without_a_program_nothing_is_called_confirmed(cli: Callable, write: Write) -> None:
    write("train.py", FAILING)
    result = cli("fix", ".", "--diff", "--no-harness")
    assert result.returncode in (0, 1)
    assert "confirmed" not in result.stderr.replace("unconfirmed", "")
    assert "internal error" not in result.stderr
