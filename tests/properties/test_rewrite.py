"""Augmented assignments of any shape keep their meaning, and edits put text where they say."""

from __future__ import annotations

import ast
from typing import Any

from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from deinplace.analysis.source import Source, SourceError
from deinplace.model import Edit, FileChange
from deinplace.rewrite.apply import apply, check, diff
from deinplace.rewrite.augment import assignment
from deinplace.rewrite.expression import clone
from deinplace.rewrite.statement import Refused, trimmed

PATH = "/tree/program.py"
OPERATORS = ["+", "-", "*", "//", "%", "|", "&", "^", "<<", ">>", "**", "/", "@"]
GAPS = st.sampled_from(["", " ", "  ", " \\\n  "])


class Number:
    """A number that writes down, in order, everything that is asked of it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Number(f"{self.text}.{name}")


def _binary(symbol: str) -> Any:
    def method(self: Number, other: Any) -> Number:
        return Number(f"({self.text}{symbol}{other.text if isinstance(other, Number) else other})")

    return method


for _name, _symbol in {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "or": "|", "and": "&", "xor": "^",
    "lshift": "<<", "rshift": ">>", "pow": "**", "truediv": "/", "matmul": "@", "lt": "<", "gt": ">",
}.items():  # fmt: skip
    setattr(Number, f"__{_name}__", _binary(_symbol))
for _name in ("neg", "invert", "pos"):
    setattr(Number, f"__{_name}__", lambda self, _name=_name: Number(f"{_name}({self.text})"))

ATOMS = st.sampled_from(
    ["a", "b", "(a)", "a.b", "(a, b)[0]", "[a, b][-1]", "f(a)", "f(\n    a,  # note\n)", "{1: b}[1]"]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from([*OPERATORS, "<", ">", "and", "or"]), inner),
        st.builds("{}{}".format, st.sampled_from(["-", "~", "not "]), inner),
        st.builds("{} if {} else {}".format, inner, inner, inner),
        st.builds("({})".format, inner),
        st.builds("(c := {})".format, inner),
        st.builds("f(lambda: {})".format, inner),
    ),
    max_leaves=6,
)
TARGETS = st.sampled_from(["x", "o.x", "d[0]", "d['k']", "o.d[1]", "g()[0]", "g().x", "d[h()]", "g()[h()]"])


def source_of(text: str) -> Source:
    return Source.parse(PATH, text.encode())


def world() -> tuple[dict[str, Any], list[str]]:
    calls: list[str] = []

    class Holder:
        def __init__(self) -> None:
            self.x, self.d = Number("ox"), [Number("od0"), Number("od1")]

    holder, table = Holder(), {0: Number("d0"), "k": Number("dk"), "h": Number("dh"), 1: Number("d1")}

    class Given(dict[Any, Any]):
        x = Number("gx")

    given_ = Given({0: Number("g0"), "h": Number("gh")})

    def f(value: Any) -> Any:
        calls.append("f")
        return value() if callable(value) and not isinstance(value, Number) else value

    def g() -> Any:
        calls.append("g")
        return given_

    def h() -> str:
        calls.append("h")
        return "h"

    names = {"x": Number("x"), "a": Number("a"), "b": Number("b"), "o": holder, "d": table, "f": f, "g": g, "h": h}
    return {**names, "given": given_}, calls


def shown(value: Any) -> Any:
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()} | ({"x": shown(value.x)} if hasattr(value, "x") else {})
    if isinstance(value, list):
        return [shown(v) for v in value]
    return None


def outcome(text: str) -> object:
    names, calls = world()
    try:
        exec(compile(text, PATH, "exec"), names)
    except TypeError as error:
        return type(error), calls
    holder = names["o"]
    return [shown(names[k]) for k in ("x", "d", "given")], shown(holder.x), shown(holder.d), calls


@settings(max_examples=300, deadline=None)
@given(TARGETS, st.sampled_from(OPERATORS), EXPRESSIONS, GAPS, st.sampled_from(["", "  # why", "; y = x"]))
def test_augmented_assignment_keeps_its_meaning(target: str, operator: str, value: str, gap: str, rest: str) -> None:
    text = f"{target}{gap}{operator}={gap}{value}{rest}\n"
    try:
        source = source_of(text)
    except SourceError:
        reject()
    node = source.tree.body[0]
    assert isinstance(node, ast.AugAssign)
    try:
        edits = assignment(source, node)
    except Refused as error:
        event(f"refused: {error}")
        return
    event("rewritten")
    after = apply(source, edits)
    check(source, after, edits)
    assert not any(isinstance(n, ast.AugAssign) for n in ast.walk(ast.parse(after)))
    assert outcome(after) == outcome(text)
    assert ("# why" in after) == ("# why" in text)
    assert ("# note" in after) == ("# note" in text)


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS)
def test_a_clone_binds_to_the_whole_expression(value: str) -> None:
    text = f"y = ({value})\n"
    try:
        source = source_of(text)
    except SourceError:
        reject()
    statement = source.tree.body[0]
    assert isinstance(statement, ast.Assign)
    after = ast.parse(apply(source, clone(source, statement.value))).body[0]
    assert isinstance(after, ast.Assign)
    call = after.value
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Attribute)
    assert call.func.attr == "clone"
    assert ast.dump(call.func.value) == ast.dump(statement.value)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=30)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_trimmed_edits_give_the_same_text(before: str, old: str, new: str, after: str) -> None:
    text = f"'''{before}{old}{after}'''"
    source = Source(PATH, text.encode(), text, "utf-8", False, ast.Module([], []))
    start = 3 + len(before)
    edit = trimmed(source, start, start + len(old), new)
    assert apply(source, [edit]) == f"'''{before}{new}{after}'''"
    assert len(edit.new) <= len(new)


WORDS = st.text("abc =.()", min_size=1, max_size=6)


@given(st.lists(st.tuples(st.integers(0, 40), WORDS), max_size=6))
def test_insertions_keep_their_order(places: list[tuple[int, str]]) -> None:
    text = "#" + "x" * 40
    source = Source(PATH, text.encode(), text, "utf-8", False, ast.Module([], []))
    distinct = list(dict.fromkeys(places))
    after = apply(source, [Edit(PATH, at, at, new) for at, new in distinct])
    pieces = ["".join(new for at, new in distinct if at == i) + text[i] for i in range(len(text))]
    assert after == "".join(pieces)


@given(st.lists(TEXTS, max_size=5), st.lists(TEXTS, max_size=5), st.booleans())
def test_a_diff_has_every_line(before: list[str], after: list[str], final: bool) -> None:
    old, new = "\n".join(before), "\n".join(after) + ("\n" if final else "")
    shown_ = diff(FileChange("/tree/a.py", old, new), "/tree")
    assert bool(shown_) == (old != new)
    if shown_:
        assert shown_.startswith("--- a/a.py\n+++ b/a.py\n@@")
        assert shown_.endswith("\n")
