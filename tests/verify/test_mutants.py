"""Wrong rewrites, made on purpose: what two runs recorded refutes every one, and confirms the right one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deinplace.rules import all_rules
from deinplace.rules.base import Rule
from deinplace.verify import wording
from deinplace.verify.drivers import Driver, Laboratory, Run, Settings
from deinplace.verify.recording import Comparison, compare, noise_floor
from deinplace.verify.trial import Bench, Result

from .mutants import PROGRAMS

RUNNER = """
import json, multiprocessing, random, sys
import torch

def go(path):
    random.seed(0)  # each forked process has its own start
    exec(compile(open(path).read(), path, "exec"), {"__name__": "program"})

def main():
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # loads what torch loads late: once for all
    context = multiprocessing.get_context("fork")
    codes = []
    for path in json.load(open(sys.argv[1])):
        child = context.Process(target=go, args=(path,))
        child.start()
        child.join()
        codes.append(child.exitcode)
    print(json.dumps(codes))

main()
"""


class Runs(NamedTuple):
    """What each program's own process recorded, by rule and name; the originals twice."""

    original: dict[str, tuple[Run, Run]]
    other: dict[tuple[str, str], Run]
    codes: dict[tuple[str, str], int]


def run(lab: Laboratory, folder: Path, texts: list[Path], settings: Settings) -> tuple[list[Run], list[int]]:
    """Run each program in a process of its own, all under one probe."""
    (folder / "programs.json").write_text(json.dumps([str(path) for path in texts]))
    (folder / "runner.py").write_text(RUNNER)
    done = lab.run(Driver((sys.executable, "runner.py", "programs.json"), str(folder), timeout=250), settings)
    assert done.exit_code == 0, done.stderr
    children = [process for process in done.processes if process.account["child"]]
    assert len(children) == len(texts), done.stderr
    return [Run(0, "", "", 0.0, (child,)) for child in children], json.loads(done.stdout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("mutants")
    intents: dict[str, str] = {}
    originals: list[Path] = []
    others: dict[tuple[str, str], Path] = {}
    for code, program in PROGRAMS.items():
        path = folder / f"{code}.py"
        path.write_text(program.filled(program.before))
        originals += [path, path]
        if program.intent:
            intents[f"{path.resolve()}:{program.line}"] = program.intent
        for number, (name, text) in enumerate({"right": program.right, **program.wrong}.items()):
            others[code, name] = folder / f"{code}_{number}.py"
            others[code, name].write_text(program.filled(text))
    kinds = ["leaf", "leaf-view", "multi-view", "out-grad"]
    with Laboratory() as lab:
        emulate = {"intents": intents, "kinds": kinds}
        first, codes = run(lab, folder, originals, Settings(watch=True, record=True, emulate=emulate))
        assert not any(codes), "under copy-on-write every original runs to its end"
        second, codes = run(lab, folder, list(others.values()), Settings(record=True))
        pairs = dict(zip(PROGRAMS, zip(first[::2], first[1::2], strict=True), strict=True))
        named = dict(zip(others, second, strict=True))
        yield Runs(pairs, named, dict(zip(others, codes, strict=True)))


def compared(rule: Rule, name: str, runs: Runs) -> Comparison:
    first, second = runs.original[rule.code]
    noise = noise_floor(first, second)
    assert not noise.unstable and not noise.differences
    return compare(second, runs.other[rule.code, name], noise, reordered=rule.reorders)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda r: f"{r.code}-{r.name}")
def test_every_mutant_is_refuted(rule: Rule, runs: Runs) -> None:
    if rule.changes_gradients:  # there is nothing to compare with: such a rewrite is never confirmed
        with Laboratory() as lab:
            driver = Driver(("python",), ".")
            bench = Bench(lab, driver, {}, None, Comparison(), {})
            assert wording.verdict(Result(True, True, ""), bench, driver).status == "unconfirmed"
        return
    assert rule.code in PROGRAMS, "write a program with mutants for this rule"
    right = compared(rule, "right", runs)
    assert runs.codes[rule.code, "right"] == 0 and not right.hard, [str(d) for d in right.hard]
    assert right.gradients
    survived = []
    for name in PROGRAMS[rule.code].wrong:
        hard = compared(rule, name, runs).hard
        failed = runs.codes[rule.code, name] != 0
        why = "it fails" if failed else str(hard[0]) if hard else ""
        print(f"{rule.code} {rule.name}: {name}: {f'refuted: {why}' if why else 'SURVIVED'}")
        if not why:
            survived.append(name)
    assert survived == []
