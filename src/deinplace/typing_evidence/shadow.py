"""A file's shadow: line by line the same, with `reveal_type` around what is asked and modules called by forward."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

from deinplace.analysis.source import Source
from deinplace.model import Span
from deinplace.typing_evidence.questions import Question

_CALL = "reveal_type("
_SUPPRESSES = re.compile(r"(#.*?\b(?:type|ty|pyrefly|pyre|pyre-ignore|pyright|mypy|zuban)\s*:\s*)(ignore|strict|basic)")
_OWN_CALL = re.compile(rb"\bself\.\w+\s*\(")
_FIXME = re.compile(r"(#\s*pyre-)(ignore|fixme)")
_SCRIPT = re.compile(r"^# /// ", re.MULTILINE)
Reveal = tuple[int, int]
"""Where the argument of a `reveal_type` starts in the shadow: 1-based line, 1-based column in code points."""


@dataclass(frozen=True)
class Shadow:
    """A file's shadow text, and which expression each reveal is of."""

    text: str
    reveals: dict[Reveal, Span] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class _Insert:
    """`text` before offset `at`. At one place closing comes first; then the outer, longer, expression opens first."""

    at: int
    rank: int
    length: int
    text: str
    marks: tuple[tuple[int, Span], ...] = ()


def shadow(source: Source, questions: Iterable[Question]) -> Shadow:
    """The shadow of one file. Where it would not be Python, the file as it is, which answers nothing."""
    plain, asked = _quiet(source.text), tuple(questions)
    calls = module_calls(source) if _OWN_CALL.search(source.data) else []
    if not asked and not calls:
        return Shadow(plain)
    quoted = _quoted(source.tree)
    inserts = _inserts(source, (q for q in asked if id(q.expr) not in quoted))
    inserts |= {_Insert(source.bounds(c.func)[1], 1, 0, ".forward") for c in calls if id(c) not in quoted}
    if not inserts:
        return Shadow(plain)
    made = _spliced(plain, sorted(inserts))
    return made if _compiles(made.text) else Shadow(plain)


def _inserts(source: Source, questions: Iterable[Question]) -> set[_Insert]:
    out: set[_Insert] = set()
    for question in questions:
        if question.statement is not None:
            made = _before(source, question)
            out |= {made} if made is not None else set()
            continue
        start, end = source.bounds(question.expr)
        bare = isinstance(question.expr, ast.Yield | ast.YieldFrom)
        out.add(_Insert(start, 2, start - end, _CALL + "(" * bare, ((len(_CALL), question.span),)))
        out.add(_Insert(end, 0, 0, ")" + ")" * bare))
    return out


def _before(source: Source, question: Question) -> _Insert | None:
    """Reveals in front of an augmented assignment, whose target cannot be wrapped."""
    text, marks = "", []
    for part in question.parts:
        try:
            inner = ast.unparse(part)
        except RecursionError:
            return None
        if "\n" in inner or "\r" in inner:
            return None
        marks.append((len(text) + len(_CALL), Span(*_plain(part))))
        text += f"{_CALL}{inner}); "
    assert question.statement is not None
    return _Insert(source.bounds(question.statement)[0], 1, 0, text, tuple(marks))


def _plain(node: ast.expr) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def _spliced(text: str, inserts: list[_Insert]) -> Shadow:
    """The text with all inserts in place, and where their reveals came to stand."""
    pieces: list[str] = []
    reveals: dict[Reveal, Span] = {}
    done, line, column = 0, 1, 1

    def put(piece: str) -> None:
        nonlocal line, column
        ends = [m.end() for m in re.finditer(r"\r\n|\r|\n", piece)]
        line += len(ends)
        column = len(piece) - ends[-1] + 1 if ends else column + len(piece)
        pieces.append(piece)

    for insert in inserts:
        put(text[done : insert.at])
        done = insert.at
        for offset, span in insert.marks:
            reveals[line, column + offset] = span
        put(insert.text)
    put(text[done:])
    return Shadow("".join(pieces), reveals)


def _quiet(text: str) -> str:
    """The text without comments and decorators that keep a checker silent, each as long as it was."""
    text = _SUPPRESSES.sub(lambda m: m[1] + "-" * len(m[2]), text)
    text = _FIXME.sub(lambda m: m[1] + "-" * len(m[2]), text)
    return _SCRIPT.sub("# --- ", text) if "# /// " in text else text


def _quoted(tree: ast.Module) -> set[int]:
    """Nodes inside f-strings, whose positions are not the file's."""
    return {id(n) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for n in ast.walk(node)}


def module_calls(source: Source) -> list[ast.Call]:
    """Calls of `self.m` where the class, as far as the file shows, stores something it made in `m`: a module."""
    out: list[ast.Call] = []
    for cls in (n for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef)):
        stored = {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        methods = {n.name for n in cls.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        calls: list[ast.Call] = []
        for node in ast.walk(cls):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                stored |= {name for t in node.targets if (name := _own(t))}
            elif isinstance(node, ast.AnnAssign) and (name := _own(node.target)):
                stored.add(name)
            elif isinstance(node, ast.Call) and _own(node.func):
                calls.append(node)
        out += [c for c in calls if (name := _own(c.func)) in stored and name not in methods]
    return out


def _own(node: ast.expr) -> str:
    """`m` for `self.m`."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def _compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<shadow>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
