"""Asks type checkers about sites that the analysis leaves open, and puts their answers into its report."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from deinplace.analysis.machine import Write
from deinplace.analysis.run import Report
from deinplace.analysis.source import Source
from deinplace.model import Span
from deinplace.typing_evidence.checkers import CHECKERS, SECONDS, CheckerError, Revealed
from deinplace.typing_evidence.classes import Classes
from deinplace.typing_evidence.environment import environment
from deinplace.typing_evidence.kinds import Kind, kind
from deinplace.typing_evidence.questions import Question, about
from deinplace.typing_evidence.tree import Tree

Mode = Literal["auto", "on", "off"]
INSTALL = "pip install 'deinplace[types]'"


@dataclass(frozen=True)
class Answer:
    """What the checkers say of one site; `why` names the checker and the type."""

    kind: Kind = "unknown"
    why: str = ""
    contradicted: bool = False


@dataclass(frozen=True)
class Answers:
    """Answers in the order of the questions, and what kept checkers from answering."""

    given: tuple[Answer, ...]
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def ask(
    sources: Mapping[str, Source],
    questions: Iterable[Question],
    python: str,
    seconds: float = SECONDS,
    every: bool = False,
) -> Answers:
    """Ask ty, then pyrefly about files where something stays open; with `every` both about all.

    Nothing of the project or the environment `python` is run.
    """
    asked = tuple(questions)
    if not asked:
        return Answers(())
    found = [checker for checker in CHECKERS if checker.find() is not None]
    if not found:
        return Answers((Answer(),) * len(asked), (f"types: no checker is installed: {INSTALL}",))
    env = environment(python)
    if not env.has_torch:
        why = f"types: {env.python} has no torch, so a checker knows nothing of tensors; --python names another"
        return Answers((Answer(),) * len(asked), (why,))
    notes: list[str] = []
    spent: dict[str, float] = {}
    with Tree() as tree:
        tree.write(sources, asked)
        classes = Classes(sources, env.packages)
        told: dict[str, Revealed] = {}
        answers = [Answer()] * len(asked)
        for checker in found:
            open_paths = {q.path for q, a in zip(asked, answers, strict=True) if every or a.kind == "unknown"}
            names = [name for name, file in tree.asked.items() if file.path in open_paths]
            if not names:
                continue
            import time

            start = time.monotonic()
            try:
                told[checker.name] = checker.reveal(tree, env, names, seconds)
            except CheckerError as error:
                notes.append(f"types: {error}")
            spent[checker.name] = time.monotonic() - start
            answers = [_answer(q, told, classes) for q in asked]
    return Answers(tuple(answers), tuple(notes), spent)


def _answer(question: Question, told: Mapping[str, Revealed], classes: Classes) -> Answer:
    """What all checkers together say: the first that is sure, unless another is sure of the opposite."""
    sure = [a for name, revealed in told.items() if (a := _of(name, question, revealed, classes)).kind != "unknown"]
    if len({a.kind for a in sure}) > 1:
        return Answer("unknown", " but ".join(a.why for a in sure), contradicted=True)
    return sure[0] if sure else Answer()


def _of(checker: str, question: Question, revealed: Revealed, classes: Classes) -> Answer:
    """One checker's answer. A container that is no tensor is written itself, or holds what is."""
    from deinplace.analysis.source import span_of

    answer = Answer()
    for part in question.parts:
        texts = revealed.get((question.path, span_of(part)), frozenset())
        kinds = {kind(text, classes) for text in texts}
        if len(kinds) != 1:
            return Answer()
        answer = Answer(kinds.pop(), f"{checker} says `{_short(' or '.join(sorted(texts)))}`")
        if answer.kind != "other":
            return answer
    return answer


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class TypeEvidence:
    """Refines reports of the analysis. The first report is asked about; later ones, of rewritten files, reuse that."""

    sources: Mapping[str, Source]
    python: str
    mode: Mode = "auto"
    notes: tuple[str, ...] = ()
    _answers: dict[tuple[str, ...], Answer] | None = field(default=None, repr=False)

    def __call__(self, report: Report) -> Report:
        """The report with the kinds that the checkers are sure of; writes to other things than tensors are left out."""
        if self._answers is None:
            self._answers = self._ask(report)
        return _refined(report, self._answers) if self._answers else report

    def _ask(self, report: Report) -> dict[tuple[str, ...], Answer]:
        questions: dict[tuple[str, ...], list[Question]] = {}
        for write in _open(report):
            if write.place.path in self.sources and (q := about(write.place.path, write.form, write.node)) is not None:
                questions.setdefault(_key(write), []).append(q)
        flat = [(key, q) for key, several in questions.items() for q in dict.fromkeys(several)]
        found = ask(self.sources, [q for _, q in flat], self.python)
        self.notes = found.notes
        out: dict[tuple[str, ...], Answer] = {}
        for (key, _), answer in zip(flat, found.given, strict=True):
            known = out.setdefault(key, answer)
            if known.kind != answer.kind:
                out[key] = Answer()
        return out


def _open(report: Report) -> list[Write]:
    return [w for writes in report.writes.values() for w in writes if w.kind != "tensor" and w.form != "step"]


def _key(write: Write) -> tuple[str, ...]:
    """A write's identity across edits that move lines."""
    text = ast.unparse(write.node) if write.node is not None else ""
    return write.place.path, write.place.function, write.form, text


def _refined(report: Report, answers: Mapping[tuple[str, ...], Answer]) -> Report:
    others: dict[tuple[str, Span], str] = dict(report.others)

    def seen(write: Write) -> Write | None:
        if write.kind == "tensor" or write.form == "step":
            return write
        answer = answers.get(_key(write), Answer())
        if answer.kind == "tensor":
            return replace(write, kind="tensor", why=answer.why)
        if answer.kind == "other":
            others[write.place.path, write.place.span] = answer.why
            return None
        return write

    writes = {unit: [w for w in map(seen, made) if w is not None] for unit, made in report.writes.items()}
    hits = [replace(h, write=w) for h in report.hits if (w := seen(h.write)) is not None]
    return replace(report, writes=writes, hits=hits, others=others)
