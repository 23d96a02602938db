"""A shadow is Python, keeps every line where it was, and knows where its reveals stand, whatever the statement."""

from __future__ import annotations

import ast
import re
import textwrap

import pytest

from deinplace.analysis.census import candidates
from deinplace.analysis.index import Index
from deinplace.analysis.source import Source
from deinplace.typing_evidence import Question, of_candidate
from deinplace.typing_evidence.shadow import Shadow, module_calls, shadow

FORMS = {
    "one-line-suite": "def f(a, x):\n    if a: x += 1\n    else: x -= 1; x *= 2",
    "semicolons": "def f(x, y): x += 1; y.add_(x); x[0] = y; return x",
    "continuation": "def f(x):\n    x \\\n        += 1\n    x[0,\n      1] += 2\n    y = x.add_(\n        1\n    )",
    "chained-over-lines": "def f(x):\n    return (x\n            .add_(1)  # one\n            .mul_(2))",
    "receiver-in-brackets": "def f(x, y):\n    (x + y).add_(1)\n    (z := x * y).mul_(2)\n    (x if y else z).sub_(1)",
    "lambda": "act = lambda x, y=None: x.add_(1).mul_(y)",
    "comprehension": "def f(xs):\n    return [x.add_(1) for x in xs], {k: v.mul_(2) for k, v in xs}",
    "decorator": "@register.add_(1)\ndef f(x): x += 1",
    "match": "def f(x):\n    match x:\n        case [a, *b] if a.add_(1): a += 1\n        case _: x[0] = 1",
    "async": "async def f(x):\n    async for y in x: y += 1\n    (await x).add_(1)\n    async with x.f_() as z: z *= 2",
    "yield": "def f(x):\n    (yield).add_(1)\n    (yield x).add_(1)\n    x += yield",
    "class-body": "class A:\n    n = 0; n += 1\n    x.add_(1)",
    "strings": 'def f(x):\n    x["""a\nb"""] = 1\n    d["""a\nb"""] += 1\n    s = """x.add_(1)\n"""; x += s',
    "f-string": "def f(x):\n    x += f'{x.add_(1)}'\n    return f'''{x.mul_(2)}\n{x}''', x.add_(1)",
    "out": "def f(x, y):\n    torch.add(x, y, out=y)\n    torch.add(x, y, out=(y))\n    torch.max(x, 0, out=(x, y))",
    "flag": "def f(x):\n    F.relu(x, inplace=True); F.relu(\n  input=x, inplace=True)\n    F.relu(*x, inplace=True)",
    "part": "def f(m, x):\n    m.weight.data = x; m.weight.data[0] += x\n    m.a.b.data.copy_(x)",
    "tabs-and-wide": "def f(x, ñ):\n\tñ += 1; s = 'é漢😀'; x.add_(ñ); ñ[x] = 1",
    "nested-receivers": "def f(self, x):\n    self.m(x).add_(self.m(x).mul_(2)).sub_(1)\n    self.m(x)[0] += 1",
    "global": "def f():\n    global x\n    x += 1",
    "loop-else": "def f(x):\n    for y in x: y += 1\n    else: x += 1\n    while x: x -= 1",
    "try": "def f(x):\n    try: x += 1\n    except* ValueError: x -= 1\n    finally: x *= 2",
    "type-ignore": "def f(x):\n    x += 1  # type: ignore[operator]\n    x.add_(1)  # ty: ignore\n    x -= 1  # noqa",
}


def shadowed(text: str) -> tuple[Source, list[Question], Shadow]:
    text = "import torch\nimport torch.nn.functional as F\n" + text + "\n"
    source = Source.parse("/p/a.py", text.encode())
    module = Index({source.path: source}).modules[source.path]
    asked = [
        q for c in candidates(source, module) if (q := of_candidate(source, c.span, c.form, module.imports)) is not None
    ]
    return source, asked, shadow(source, asked)


def skeleton(text: str) -> str:
    """What is left of a shadow without what shadows add."""
    tree = ast.parse(text)

    class Bare(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and node.func.id == "reveal_type":
                return node.args[0]
            if isinstance(node.func, ast.Attribute) and node.func.attr == "forward":
                node.func = node.func.value
            return node

        def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
            call = node.value
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "reveal_type":
                return None
            self.generic_visit(node)
            return node

    return ast.unparse(Bare().visit(tree))


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_of_statement(text: str) -> None:
    source, asked, made = shadowed(text)
    assert asked
    assert made.reveals, "the shadow was no Python"
    assert made.text.count("\n") == source.text.count("\n")
    assert skeleton(made.text) == ast.unparse(source.tree)
    lines = made.text.split("\n")
    for line, column in made.reveals:
        assert lines[line - 1][: column - 1].endswith(("reveal_type(", "reveal_type(("))
    assert len(made.reveals) == len(re.findall(r"\breveal_type\(", made.text))


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_reveals_are_of_what_was_asked(text: str) -> None:
    source, asked, made = shadowed(text)
    wanted = {ast.unparse(part).strip("()") for q in asked for part in q.parts}
    calls = [n for n in ast.walk(ast.parse(made.text)) if isinstance(n, ast.Call)]
    named = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "reveal_type"]
    got = {skeleton(ast.unparse(n.args[0])).strip("()\n") for n in named}
    assert got <= wanted
    by_span = {span: ast.unparse(source.by_span[span][-1]).strip("()") for span in made.reveals.values()}
    assert set(by_span.values()) <= wanted


def test_line_ends_of_every_kind_stay() -> None:
    source = Source.parse("/p/a.py", b"import torch\r\ndef f(x):\r\n    x += 1\r\n    x[0] = 1\r\n")
    module = Index({source.path: source}).modules[source.path]
    asked = [of_candidate(source, c.span, c.form, module.imports) for c in candidates(source, module)]
    made = shadow(source, [q for q in asked if q is not None])
    assert set(made.reveals) == {(3, 17), (4, 17)}
    assert made.text.count("\r\n") == 4 and made.text.replace("\r\n", "").find("\n") == -1


def test_comments_that_silence_a_checker_lose_that_power_in_place() -> None:
    _, _, made = shadowed("# type: ignore\n# /// script\n# ///\ndef f(x):\n    x += 1  # pyrefly: ignore-errors")
    assert "type: ------" in made.text and "pyrefly: ------" in made.text
    assert "# /// script" not in made.text


def test_modules_are_called_by_forward_and_methods_are_not() -> None:
    text = textwrap.dedent("""
        class A:
            scale: Scale
            def __init__(self, fn):
                self.conv = Conv(); self.fn = fn; self.step = make()
            def step(self, x): ...
            def forward(self, x):
                return self.conv(self.step(self.fn(self.scale(x)))), self.other(x), f"{self.conv(x)}"
    """)
    source = Source.parse("/p/a.py", text.encode())
    assert sorted(ast.unparse(c.func) for c in module_calls(source)) == ["self.conv", "self.conv", "self.scale"]
    assert "self.conv.forward(self.step(self.fn(self.scale.forward(x))))" in shadow(source, ()).text
