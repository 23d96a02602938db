"""Random Python modules: trees of every kind of statement and expression, written down in odd ways."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Callable
from itertools import pairwise
from random import Random

NAMES = ("x", "y", "z", "π", "self", "torch", "F", "_", "match", "type", "ñandú")
METHODS = ("add_", "mul_", "relu_", "exp_", "sigmoid", "clone", "unsqueeze_", "fill_", "zero_", "view", "data", "T")
HEAD = "import torch\nimport torch.nn.functional as F\n"


class Maker:
    """Builds trees; `depth` bounds how deep."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def module(self) -> ast.Module:
        body: list[ast.stmt] = [self.stmt(3) for _ in range(self.random.randint(1, 5))]
        return ast.fix_missing_locations(ast.Module(body, []))

    # ---- statements

    def block(self, depth: int) -> list[ast.stmt]:
        return [self.stmt(depth) for _ in range(self.random.randint(1, 3))]

    def stmt(self, depth: int) -> ast.stmt:
        simple: list[Callable[[int], ast.stmt]] = [self.augmented, self.augmented, self.call_, self.call_, self.assign]
        compound = [self.if_, self.for_, self.while_, self.with_, self.try_, self.function, self.class_, self.match_]
        return self.random.choice(simple if depth <= 0 or self.random.random() < 0.55 else compound)(depth)

    def augmented(self, depth: int) -> ast.stmt:
        operator = self.random.choice(
            (ast.Add, ast.Mult, ast.Sub, ast.Div, ast.Pow, ast.BitOr, ast.LShift, ast.MatMult)
        )
        return ast.AugAssign(self.target(), operator(), self.expr(2))

    def call_(self, depth: int) -> ast.stmt:
        return ast.Expr(self.inplace(2))

    def assign(self, depth: int) -> ast.stmt:
        kind = self.random.randrange(5)
        if kind == 0:
            return ast.AnnAssign(self.name(ast.Store()), ast.Name("torch.Tensor"), self.inplace(1), simple=1)
        if kind == 1:
            return ast.Assert(self.expr(1), self.expr(1))
        if kind == 2:
            return ast.Delete([self.name(ast.Del())])
        value = self.inplace(2) if self.random.random() < 0.5 else self.expr(3)
        return ast.Assign([self.target() for _ in range(self.random.randint(1, 2))], value)

    def if_(self, depth: int) -> ast.stmt:
        return ast.If(self.expr(2), self.block(depth - 1), self.block(depth - 1) if self.random.random() < 0.5 else [])

    def for_(self, depth: int) -> ast.stmt:
        return ast.For(self.name(ast.Store()), self.expr(1), self.block(depth - 1), [])

    def while_(self, depth: int) -> ast.stmt:
        return ast.While(self.expr(1), [*self.block(depth - 1), ast.Break()], self.block(0))

    def with_(self, depth: int) -> ast.stmt:
        grad = ast.Call(ast.Attribute(ast.Name("torch"), "no_grad"), [], [])
        return ast.With([ast.withitem(grad), ast.withitem(self.expr(1), self.name(ast.Store()))], self.block(depth - 1))

    def try_(self, depth: int) -> ast.stmt:
        handlers = [ast.ExceptHandler(ast.Name("ValueError"), "error", self.block(depth - 1))]
        return ast.Try(self.block(depth - 1), handlers, [], self.block(0))

    def function(self, depth: int) -> ast.stmt:
        given = [ast.arg(n) for n in self.random.sample(("x", "y", "z"), self.random.randint(1, 3))]
        arguments = ast.arguments([], given, None, [], [], None, [])
        decorators = (
            [ast.Call(ast.Attribute(ast.Name("torch"), "no_grad"), [], [])] if self.random.random() < 0.2 else []
        )
        body = [*self.block(depth - 1), ast.Return(self.expr(2))]
        kind = ast.AsyncFunctionDef if self.random.random() < 0.1 else ast.FunctionDef
        made = kind("forward", arguments, body, decorators)
        if sys.version_info >= (3, 12):
            made.type_params = [ast.TypeVar("T")] if self.random.random() < 0.2 else []
        return made

    def class_(self, depth: int) -> ast.stmt:
        base = ast.Attribute(ast.Attribute(ast.Name("torch"), "nn"), "Module")
        made = ast.ClassDef("Net", [base], [], [self.function(depth - 1)], [])
        if sys.version_info >= (3, 12):
            made.type_params = []
        return made

    def match_(self, depth: int) -> ast.stmt:
        cases = [
            ast.match_case(ast.MatchValue(ast.Constant(1)), None, self.block(depth - 1)),
            ast.match_case(ast.MatchAs(None, "rest"), self.expr(1), self.block(0)),
        ]
        return ast.Match(self.expr(1), cases)

    # ---- expressions

    def name(self, context: ast.expr_context | None = None) -> ast.Name:
        names = [n for n in NAMES if n not in ("torch", "F")] if context is not None else NAMES
        return ast.Name(self.random.choice(names), context or ast.Load())

    def target(self) -> ast.Name | ast.Attribute | ast.Subscript:
        kind = self.random.randrange(4)
        if kind < 2:
            return self.name(ast.Store())
        if kind == 2:
            return ast.Attribute(self.name(), self.random.choice(("weight", "data", "grad")), ast.Store())
        return ast.Subscript(self.name(), self.index(), ast.Store())

    def index(self) -> ast.expr:
        return self.random.choice(
            (ast.Slice(), ast.Constant(0), ast.Tuple([ast.Slice(), ast.Constant(0)]), ast.Constant(...), self.name())
        )

    def inplace(self, depth: int) -> ast.expr:
        kind = self.random.randrange(4)
        if kind == 0:
            flag = [ast.keyword("inplace", ast.Constant(True))]
            return ast.Call(ast.Attribute(ast.Name("F"), "relu"), [self.expr(depth - 1)], flag)
        if kind == 1:
            return ast.Call(ast.Attribute(ast.Name("torch"), "relu_"), [self.expr(depth - 1)], [])
        if kind == 2:
            out = [ast.keyword("out", self.name())]
            return ast.Call(ast.Attribute(ast.Name("torch"), "add"), [self.name(), self.expr(depth - 1)], out)
        owner = self.inplace(depth - 1) if depth > 0 and self.random.random() < 0.3 else self.name()
        return ast.Call(ast.Attribute(owner, self.random.choice(METHODS)), [self.expr(depth - 1)], [])

    def expr(self, depth: int) -> ast.expr:
        leaf: list[Callable[[], ast.expr]] = [
            self.name,
            lambda: ast.Constant(self.random.choice((0, 1.5, 2j, "s'\"\n", b"b\0", None, True, ..., "é\t\u2028"))),
        ]
        if depth <= 0 or self.random.random() < 0.3:
            return self.random.choice(leaf)()
        less = depth - 1
        return self.random.choice(
            (
                lambda: ast.BinOp(
                    self.expr(less), self.random.choice((ast.Add(), ast.Pow(), ast.MatMult())), self.expr(less)
                ),
                lambda: ast.UnaryOp(self.random.choice((ast.USub(), ast.Not(), ast.Invert())), self.expr(less)),
                lambda: ast.BoolOp(self.random.choice((ast.And(), ast.Or())), [self.expr(less), self.expr(less)]),
                lambda: ast.Compare(self.expr(less), [ast.Lt(), ast.NotIn()], [self.expr(less), self.expr(less)]),
                lambda: ast.IfExp(self.expr(less), self.expr(less), self.expr(less)),
                lambda: ast.Lambda(ast.arguments([], [ast.arg("x")], None, [], [], None, []), self.expr(less)),
                lambda: ast.List([self.expr(less), ast.Starred(self.expr(less))]),
                lambda: ast.Dict([self.expr(less), None], [self.expr(less), self.expr(less)]),
                lambda: ast.ListComp(
                    self.expr(less), [ast.comprehension(self.name(ast.Store()), self.expr(less), [], 0)]
                ),
                lambda: ast.Attribute(self.expr(less), self.random.choice(METHODS)),
                lambda: ast.Subscript(self.expr(less), self.index()),
                lambda: ast.JoinedStr([ast.Constant("a"), ast.FormattedValue(self.expr(less), -1)]),
                lambda: ast.NamedExpr(self.name(ast.Store()), self.expr(less)),
                lambda: ast.Tuple([self.expr(less), self.expr(less)]),
                lambda: self.inplace(less),
            )
        )()


def text_of(random: Random) -> str:
    """A module as `ast.unparse` writes it, then written otherwise; always one that Python reads."""
    for _ in range(20):
        try:
            plain = HEAD + ast.unparse(Maker(random).module()) + "\n"
        except ValueError:  # a backslash inside an f-string: older Pythons have no way to write it
            continue
        if parses(plain):
            odd = odder(plain, random)
            return odd if parses(odd) and same(plain, odd) else plain
    return HEAD


def parses(text: str) -> bool:
    try:
        compile(text, "made.py", "exec", ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError):
        return False
    return True


def same(left: str, right: str) -> bool:
    return ast.dump(ast.parse(left)) == ast.dump(ast.parse(right))


def odder(text: str, random: Random) -> str:
    """The same program with other blanks, continuations, comments, indents and line ends."""
    out = _respaced(text, random) if random.random() < 0.8 else text
    lines = out.split("\n")
    if random.random() < 0.3:
        lines = [line.replace("    ", "\t") if line.startswith("    ") else line for line in lines]
    ends = random.choice(("\n", "\n", "\r\n", "\r"))
    out = ends.join(lines)
    if random.random() < 0.3:
        out = out.rstrip("\r\n")
    return out


def _respaced(text: str, random: Random) -> str:
    """Blanks, continuations and comments put between tokens, as far as no token is a string over several lines."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.split("\n")
    depth, inside = 0, 0
    edits: list[tuple[int, int, str]] = []
    for token, following in pairwise(tokens):
        name = tokenize.tok_name[token.type]
        inside += name.endswith("STRING_START") - name.endswith("STRING_END")
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        if inside or token.end[0] != following.start[0] or token.type in (tokenize.INDENT, tokenize.DEDENT):
            continue
        if following.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER):
            if following.type == tokenize.NEWLINE and random.random() < 0.15:
                edits.append((*token.end, random.choice(("  # ü note", "   ", " ;", "\t"))))
            continue
        touching = token.end == following.start
        if touching and tokenize.NUMBER in (token.type, following.type):
            continue
        if touching and (token.type == tokenize.NAME and following.type in (tokenize.STRING, tokenize.NAME)):
            continue
        draw = random.random()
        if draw < 0.08:
            edits.append((*token.end, " " * random.randint(1, 3)))
        elif draw < 0.11:
            edits.append((*token.end, " \\\n" + " " * random.randint(0, 6)))
        elif draw < 0.14 and depth > 0:
            edits.append((*token.end, random.choice(("\n", "  # inner\n      ", "\n\n"))))
        elif draw < 0.15:
            edits.append((*token.end, " \f "))
    for line, col, new in reversed(edits):
        lines[line - 1] = lines[line - 1][:col] + new + lines[line - 1][col:]
    return "\n".join(lines)
