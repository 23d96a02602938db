"""What the installed versions of ty and pyrefly answer; a new version that prints otherwise fails here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deinplace.analysis.imports import import_map
from deinplace.analysis.source import Source
from deinplace.typing_evidence.checkers import CHECKERS, PYREFLY, TY, Checker, Revealed
from deinplace.typing_evidence.environment import environment
from deinplace.typing_evidence.evidence import ask
from deinplace.typing_evidence.questions import Question, of_candidate
from deinplace.typing_evidence.tree import Tree

PROGRAM = """\
import numpy as np
import torch
from missing import Strange, anything
from torch import Tensor, nn

from .helper import Scale, halved


class Own(torch.Tensor): ...


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.count = nn.Conv2d(3, 3, 3), 0
        self.scale = Scale()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x, y: Tensor | None = None):
        a = self.conv.weight; a += 1
        s = self.scale(a); s.add_(1).mul_(2)  # type: ignore
        self.weight += 1; self.count += 1
        h = halved(a); "é漢"; h[0] = 1
        x += 1
        y += 1
        n = np.zeros(3); n += 1; n[0] += 1
        items = [a, a]; items += [a]; items[0] += 1
        either = a if x else 1; either += 1
        o = Own(); o.mul_(2)
        what = anything(); what += 1
        odd = Strange(); odd.add_(1)
        for part in a.chunk(2): part.mul_(2)
        torch.add(a, a, out=h)
        return lambda z=3: a.add_(z)
"""
HELPER = """\
import torch
from torch import nn


class Scale(nn.Module):
    def forward(self, x) -> torch.Tensor:
        return x


def halved(x: torch.Tensor):
    return x / 2
"""
WANTED = {
    "a": "tensor", "s": "tensor", "s.add_(1)": "tensor", "self.weight": "tensor", "self.count": "other", "h": "tensor",
    "x": "unknown", "y": "tensor", "n": "other", "items": "tensor", "either": "unknown", "o": "subclass",
    "what": "unknown", "odd": "unknown", "part": "tensor",
}  # fmt: skip
TY_SAYS = {
    "a": {"Tensor"}, "s": {"Tensor"}, "s.add_(1)": {"Tensor"}, "self.weight": {"Parameter"}, "x": {"Unknown"},
    "h": {"Unknown"}, "y": {"Tensor | None"}, "self.count": {"int"}, "o": {"Own"}, "what": {"Unknown"},
    "part": {"Tensor"}, "n": {"ndarray[tuple[int], dtype[float64]]"},
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("project") / "pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "helper.py").write_text(HELPER)
    main = folder / "main.py"
    main.write_text(PROGRAM)
    return {str(main): Source.parse(str(main), main.read_bytes())}


@pytest.fixture(scope="module")
def questions(project: Mapping[str, Source]) -> list[Question]:
    from deinplace.analysis.census import candidates
    from deinplace.analysis.index import Index

    index = Index(project)
    found = []
    for path, source in project.items():
        for site in candidates(source, index.modules[path]):
            question = of_candidate(source, site.span, site.form, import_map(source.tree, ""))
            if question is not None:
                found.append(question)
    return found


def installed(checker: Checker) -> Checker:
    if checker.find() is None:
        pytest.skip(f"{checker.name} is not installed: pip install 'deinplace[types]'")
    return checker


@pytest.fixture(scope="module")
def revealed(project: Mapping[str, Source], questions: list[Question]) -> dict[str, Revealed]:
    out = {}
    with Tree() as tree:
        tree.write(project, questions)
        for checker in CHECKERS:
            if checker.find() is not None:
                out[checker.name] = checker.reveal(tree, environment(sys.executable), list(tree.asked))
    assert not tree.folder.exists()
    return out


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda c: c.name)
def test_each_expression_that_is_reached_is_answered(
    checker: Checker, revealed: dict[str, Revealed], questions: list[Question]
) -> None:
    installed(checker)
    asked = {(q.path, q.span) for q in questions}
    assert asked <= set(revealed[checker.name])


def texts(project: Mapping[str, Source], revealed: Revealed) -> dict[str, set[str]]:
    said: dict[str, set[str]] = {}
    for (path, span), found in revealed.items():
        said.setdefault(project[path].segment(span), set()).update(found)
    return said


def test_ty_prints_types_so(project: Mapping[str, Source], revealed: dict[str, Revealed]) -> None:
    installed(TY)
    said = texts(project, revealed["ty"])
    assert {name: said[name] for name in TY_SAYS} == TY_SAYS


def test_pyrefly_prints_qualified_types(project: Mapping[str, Source], revealed: dict[str, Revealed]) -> None:
    installed(PYREFLY)
    said = texts(project, revealed["pyrefly"])
    assert said["s"] == said["h"] == {"torch._tensor.Tensor"}
    assert said["y"] == {"torch._tensor.Tensor | None"}
    assert said["x"] == {"Unknown"}
    assert said["self.weight"] == {"torch.nn.parameter.Parameter"}
    assert said["o"] == {"pkg.main.Own"}
    assert said["n"] == {"numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]"}
    assert said["self.count"] == {"int"}


@pytest.mark.parametrize("every", [False, True], ids=["second-only-where-open", "both"])
def test_together_they_decide(project: Mapping[str, Source], questions: list[Question], every: bool) -> None:
    for checker in CHECKERS:
        installed(checker)
    found = ask(project, questions, sys.executable, every=every)
    said: dict[str, set[str]] = {}
    for question, answer in zip(questions, found.given, strict=True):
        said.setdefault(project[question.path].segment(question.span), set()).add(answer.kind)
        assert (answer.kind == "unknown") == (not answer.why)
    assert found.notes == ()
    assert said == {name: {wanted} for name, wanted in WANTED.items()}


def test_only_python_files_are_copied_and_privately(project: Mapping[str, Source], questions: list[Question]) -> None:
    (Path(next(iter(project))).parent / "secret.toml").write_text("[tool]")
    with Tree() as tree:
        tree.write(project, questions)
        assert tree.folder.stat().st_mode & 0o077 == 0
        assert sorted(p.name for p in tree.project.rglob("*.*")) == ["__init__.py", "helper.py", "main.py"]
        assert "reveal_type" not in (tree.project / "pkg" / "helper.py").read_text()
