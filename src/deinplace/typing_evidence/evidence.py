"""Asks type checkers about sites that the analysis leaves open, and puts their answers into its report."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from deinplace.analysis.records import Write
from deinplace.analysis.report import Report
from deinplace.analysis.source import Source, span_of
from deinplace.model import Span
from deinplace.typing_evidence.checkers import CHECKERS, SECONDS, Checker, CheckerError, Revealed
from deinplace.typing_evidence.classes import Classes
from deinplace.typing_evidence.environment import Environment, environment
from deinplace.typing_evidence.kinds import Kind, kind
from deinplace.typing_evidence.questions import Question, about
from deinplace.typing_evidence.tree import Tree

Key = tuple[str, ...]
_ARRAYS = ("ndarray", "numpy.")
"""Types whose items are no tensors, so that a write to an item is a write to them."""
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
    try:
        with Tree() as tree:
            tree.write(sources, asked)
            return _reveal(tree, env, asked, found, Classes(sources, (*tree.roots, *env.packages)), seconds, every)
    except OSError as error:
        why = f"types: no copy of the files can be made: {error.strerror}: {error.filename}"
        return Answers((Answer(),) * len(asked), (why,))


def _reveal(
    tree: Tree,
    env: Environment,
    asked: tuple[Question, ...],
    checkers: Sequence[Checker],
    classes: Classes,
    seconds: float,
    every: bool,
) -> Answers:
    """Run the checkers one after the other."""
    notes: list[str] = []
    spent: dict[str, float] = {}
    told: dict[str, Revealed] = {}
    answers = [Answer()] * len(asked)
    for checker in checkers:
        open_paths = {q.path for q, a in zip(asked, answers, strict=True) if every or a.kind == "unknown"}
        names = [name for name, file in tree.asked.items() if file.path in open_paths]
        if not names:
            continue
        start = time.monotonic()
        try:
            told[checker.name] = checker.reveal(tree, env, names, seconds)
        except CheckerError as error:
            notes.append(f"types: {error}")
        spent[checker.name] = time.monotonic() - start
        answers = [together(q, told, classes) for q in asked]
    return Answers(tuple(answers), tuple(notes), spent)


def together(question: Question, told: Mapping[str, Revealed], classes: Classes) -> Answer:
    """What all checkers together say: the first that is sure, unless another is sure of the opposite."""
    sure = [a for name, revealed in told.items() if (a := _of(name, question, revealed, classes)).kind != "unknown"]
    if len({a.kind == "other" for a in sure}) > 1:
        return Answer("unknown", " but ".join(a.why for a in sure), contradicted=True)
    return sure[0] if sure else Answer()


def _of(checker: str, question: Question, revealed: Revealed, classes: Classes) -> Answer:
    """One checker's answer. A container that is no tensor is written itself, or holds what is."""
    answer = Answer()
    for part in question.parts:
        texts = revealed.get((question.path, span_of(part)), frozenset())
        kinds = {kind(text, classes) for text in texts}
        if len(kinds) != 1:
            return Answer()
        answer = Answer(kinds.pop(), f"{checker} says `{_short(' or '.join(sorted(texts)))}`")
        if answer.kind != "other" or all(text.startswith(_ARRAYS) for text in texts):
            return answer
        if question.spread and any(text.startswith(("tuple", "list")) for text in texts):
            return Answer()
    return answer


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class TypeEvidence:
    """Refines reports of the analysis by what checkers say of the files as they are.

    Reports of files that were rewritten in memory get what is already known of the same statements. Without
    `all_sites` only writes that may be faults are asked about.
    """

    sources: Mapping[str, Source]
    python: str
    all_sites: bool = False
    notes: tuple[str, ...] = ()
    _answers: dict[Key, Answer] = field(default_factory=dict, repr=False)

    def __call__(self, report: Report) -> Report:
        """The report with the kinds that checkers are sure of; writes to other things than tensors are left out."""
        self._ask(report)
        return _refined(report, self._answers) if self._answers else report

    def _ask(self, report: Report) -> None:
        """Ask about writes that no report had before."""
        wanted = (w for w in _open(report, self.all_sites) if _key(w) not in self._answers and id(w.node) in self._own)
        questions = {(_key(w), q) for w in wanted if (q := about(w.place.path, w.form, w.node)) is not None}
        ordered = sorted(questions, key=lambda pair: (pair[0], pair[1].span))
        found = ask(self.sources, [q for _, q in ordered], self.python)
        self.notes = tuple(dict.fromkeys((*self.notes, *found.notes)))
        for (key, _), answer in zip(ordered, found.given, strict=True):
            known = self._answers.setdefault(key, answer)
            if known.kind != answer.kind:
                self._answers[key] = Answer()

    @cached_property
    def _own(self) -> set[int]:
        """The nodes of the files as they are."""
        return {id(node) for source in self.sources.values() for node in ast.walk(source.tree)}


def _open(report: Report, every: bool) -> list[Write]:
    """Writes of whatever may be no tensor: those that hit a save or may be refused, or all."""
    made = [w for writes in report.writes.values() for w in writes] if every else [h.write for h in report.hits]
    if not every:
        made += [w for writes in report.writes.values() for w in writes if w.leaf or w.view == "multi"]
    return [w for w in made if w.kind != "tensor" and w.form != "step" and w.node is not None]


def _key(write: Write) -> Key:
    """A write's identity across edits that move lines."""
    text = ast.unparse(write.node) if write.node is not None else ""
    return write.place.path, write.place.function, write.form, text


def _refined(report: Report, answers: Mapping[Key, Answer]) -> Report:
    others: dict[tuple[str, Span], str] = dict(report.others)

    def seen(write: Write) -> Write | None:
        if write.kind == "tensor" or write.form == "step":
            return write
        answer = answers.get(_key(write), Answer())
        if answer.kind in ("tensor", "subclass"):
            return replace(write, kind="tensor" if answer.kind == "tensor" else "likely", why=answer.why)
        if answer.kind == "other":
            others[write.place.path, write.place.span] = answer.why
            return None
        return write

    writes = {unit: [w for w in map(seen, made) if w is not None] for unit, made in report.writes.items()}
    hits = [replace(h, write=w) for h in report.hits if (w := seen(h.write)) is not None]
    return replace(report, writes=writes, hits=hits, others=others)
