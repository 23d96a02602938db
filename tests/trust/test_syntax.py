"""Whatever Python reads is read, kept byte for byte where it is not edited, and left alone the second time."""

from __future__ import annotations

import ast
import codecs
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deinplace.analysis.check import check as look
from deinplace.analysis.source import Source
from deinplace.files import load_bytes
from deinplace.model import Edit
from deinplace.rewrite.apply import CheckError, apply, check
from deinplace.rules import sites, static_candidates
from deinplace.rules.base import Project
from deinplace.verify import Options
from deinplace.verify.static import fix_statically

sys.path.insert(0, str(Path(__file__).parent))
from sources import text_of

PATH = "/tree/odd.py"
HEAD = "import torch\nimport torch.nn.functional as F\n"
FAULTY = "def f(a: torch.Tensor):\n    x = torch.exp(a)\n    x += a\n    return x.sum()\n"
DEEP = "(" * 60 + "a" + ")" * 60


def made(text: str) -> bytes:
    return (HEAD + text).encode()


ODD: dict[str, bytes] = {
    "crlf": made(FAULTY).replace(b"\n", b"\r\n"),
    "bare-cr": made(FAULTY).replace(b"\n", b"\r"),
    "mixed-line-ends": (HEAD.replace("\n", "\r\n") + FAULTY.replace("\n", "\r", 2)).encode(),
    "no-final-newline": made("def f(a):\n    x = torch.exp(a)\n    x += a"),
    "form-feeds": made("\f\n" + FAULTY.replace("    x +=", "\f    x +=")),
    "form-feed-before-a-statement": made("x = torch.ones(3)\n\fx += 1\n"),
    "tabs": made(FAULTY.replace("    ", "\t")),
    "tabs-and-blanks": made("if torch:\n        x = torch.exp(x)\nelse:\n\tx += 1\n"),
    "bom": codecs.BOM_UTF8 + made(FAULTY),
    "bom-and-cookie": codecs.BOM_UTF8 + ("# coding: utf-8\n" + HEAD + FAULTY).encode(),
    "latin-1": ("# -*- coding: latin-1 -*-\n# Stra\xdfe\n" + HEAD + FAULTY).encode("latin-1"),
    "cookie-on-the-second-line": ("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n# €\n" + HEAD).encode("cp1252"),
    "shift-jis": ("# coding: shift_jis\ns = 'ソ表'\n" + HEAD + FAULTY).encode("shift_jis"),
    "gbk": ("# coding: gbk\ns = '梯度'\n" + HEAD + FAULTY).encode("gbk"),
    "continuations": made("def f(a):\n    x = \\\n        torch.exp(a)\n    x \\\n      += \\\n  a\n    return x\n"),
    "semicolons": made("def f(a): x = torch.exp(a); x += a; x.mul_(2); return x\n"),
    "one-line-suites": made("for i in [1]: x = torch.exp(i); x.add_(1)\nwhile 0: x += 1\nelse: x -= 1\n"),
    "one-line-class": made("class A: x = torch.exp(torch.ones(1)); x += 1\n"),
    "decorators": made("@torch.no_grad()\n@(lambda f: f)\ndef f(x):\n    x += 1\n    return x\n"),
    "decorator-that-writes": made("@x.add_(1)\ndef f(x=x.mul_(2), *, y=F.relu(x, inplace=True)): pass\n"),
    "nested-f-strings": made("s = f'{x.add_(1)!r:>{w.mul_(2)}}' f\"{f'{y.exp_()}'}\"\nx += f'{x}'\n"),
    "strings-that-look-like-code": made("s = '''\nx += 1\n'''\nr = r'\\'; x = torch.exp(x); x += 1  # x += '''\n"),
    "unicode-names": made("def f(α, ｘ, 变量):\n    变量 = torch.exp(α)\n    变量 += ｘ; 𝒙 = 变量\n    return 变量\n"),
    "wide-characters-before": made("def f(a):\n    x = torch.exp(a); s = '🜂é한'; x += a; x *= a\n    return x\n"),
    "separators-in-strings": made("s = '\u2028\x85\x0b\x1c'\nx = torch.exp(a)\nx += 1\n"),
    "very-long-line": made("x = torch.exp(a); x += " + " + ".join(["a"] * 400) + "\n"),
    "long-table": made("t = [" + "1.5, " * 2_000 + "]\nx = torch.exp(a)\nx += 1\n"),
    "deep-parentheses": made(f"def f(a):\n    x = torch.exp(a)\n    x += {DEEP}\n    return x\n"),
    "deep-blocks": made("".join("  " * n + "if a:\n" for n in range(40)) + "  " * 40 + "x += 1\n"),
    "comments-inside": made("x = torch.exp(a)\nx += (  # one\n  a  # two\n  # three\n)  # four\n"),
    "parentheses-of-arguments": made("torch.add((x), (-1), out=x)\n(f  # (\n)((x), (y).add_(((1))), out=(z))\n"),
    "comments-between-parentheses": made("torch.add(x, ( \\\n  y  # in)\n  ), out=y)\nx *= (  # (\n y )  # )\n"),
    "walrus-and-star": made("print(*(y := torch.exp(a)).add_(1), **{'k': (z := y).mul_(2)})\n"),
    "async": made("async def f(x):\n    async for y in x: y += await x.add_(1)\n    async with x as z: z.exp_()\n"),
    "match": made("match x:\n    case [a, *_] if a.add_(1): a += 1\n    case {'k': v, **r}: v.exp_()\n"),
    "end-of-a-match": made("match x:\n    case 1:\n        y: torch.Tensor = torch.relu_(x)\n"),
    "bare-cr-continued": made("torch.add(x, ( \\\n  y \\\n  ), out=y)  # a\n").replace(b"\n", b"\r"),
    "crlf-continued": made("torch.add(x, ( \\\n  y \\\n  ), out=y)  # a\n").replace(b"\n", b"\r\n"),
    "targets": made("x[(y := 0)] += 1\nx[...].T.data[1:, None] *= 2\n(x) += 1\n(x).a[f(1)].b -= 1\nx @= y\n"),
    "soft-keywords": made("type = torch.exp(match)\ntype += case\nmatch.add_(_)\n"),
    "lambda-and-comprehension": made("g = lambda x: x.add_(1)\nh = [x.mul_(2) for x in y if x.exp_()]\n"),
    "try-star": made("try: x.add_(1)\nexcept* ValueError as e: x += 1\nelse: x -= 1\nfinally: x *= 2\n"),
    "trailing-backslash-comment": made("x = torch.exp(a)  # \\\nx += 1 \\\n\n"),
    "only-a-comment": b"# torch x += 1",
    "empty": b"",
    "only-blanks": b" \t\f\r\n",
    "docstring-only": b'"""torch\nx += 1\n"""',
}  # fmt: skip
NEWER = {
    (3, 12): {
        "type-parameters": "def f[T: (int, str)](x: T) -> T:\n    x += 1\n    return x\n"
        "class C[*Ts, **P]: x = torch.exp(a)\ntype L[T] = list[T]\n",
        "f-strings-of-any-kind": "x = f\"{x.add_(1, alpha=\"2\")}{'\\n'.join(y)}{\n  z  # why\n}\"\nx += 1\n",
    },
    (3, 14): {"except-without-parentheses": "try: x.add_(1)\nexcept ValueError, TypeError: x += 1\n"},
}  # fmt: skip
for _version, _more in NEWER.items():
    if sys.version_info >= _version:
        ODD |= {name: made(text) for name, text in _more.items()}


def holds(data: bytes) -> None:
    """Check a file: its bytes survive; every rewrite keeps what it does not edit; `fix --all` is done in one run."""
    read, problems = load_bytes(PATH, data)
    assert not problems, problems
    source = read[PATH]
    assert source.encode(source.text) == data
    assert source.written(source.text) == data
    look(read, all_sites=True)
    project = Project(read)
    for site in sites(source):
        for _, rewrite in static_candidates(site, project):
            kept(source, rewrite.edits)
    for options in (Options(verify="off"), Options(verify="off", all_sites=True)):
        outcome = fix_statically(read, options)
        for change in outcome.changes:
            settled(source, change.after, options)


def kept(source: Source, edits: tuple[Edit, ...]) -> None:
    """What `check` lets pass is Python, and outside of the edits the same text."""
    after = apply(source, edits)
    try:
        result = check(source, after, edits)
    except CheckError:
        return
    assert Source.parse(PATH, result.data).text == after
    low, high = min(e.start for e in edits), max(e.end for e in edits)
    assert after.startswith(source.text[:low])
    assert after.endswith(source.text[high:])


def settled(source: Source, text: str, options: Options) -> None:
    """A file that was written holds text of its encoding, Python, and nothing more to write."""
    again, problems = load_bytes(PATH, source.written(text))
    assert not problems, problems
    assert fix_statically(again, options).changes == ()


@pytest.mark.parametrize("name", ODD)
def test_odd_files(name: str) -> None:
    holds(ODD[name])


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_any_program(seed: int) -> None:
    holds(text_of(Random(seed)).encode())


def test_programs_are_of_every_kind() -> None:
    texts = [text_of(Random(seed)) for seed in range(150)]
    nodes = {type(node).__name__ for text in texts for node in ast.walk(ast.parse(text))}
    wanted = {"AugAssign", "Match", "Try", "With", "Lambda", "JoinedStr", "NamedExpr", "ClassDef", "AsyncFunctionDef"}
    assert wanted <= nodes
    for mark in ("\r", "\\\n", "\t", "#", ";", "\f", "ñ"):
        assert sum(mark in text for text in texts) > 5, mark
    found = [site for text in texts for site in sites(Source.parse(PATH, text.encode()))]
    assert len({site.rule for site in found}) >= 5
