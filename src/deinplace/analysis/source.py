"""One Python file as the road sees it: bytes, text, `ast` tree, and the way between their positions."""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from deinplace.model import Span

_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""Where nodes hold statements, in the order of the source."""
_NEWLINE = re.compile(r"\r\n|\r|\n")
N = TypeVar("N", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.Module


class SourceError(Exception):
    """A file that cannot be read as Python: `line` is 0 where no line is to blame."""

    def __init__(self, path: str, message: str, line: int = 0, code: str = "syntax") -> None:
        super().__init__(message)
        self.path, self.message, self.line, self.code = path, message, line, code


_PLAIN = frozenset({int, str, float, bool, type(None), ast.Load, ast.Store, ast.Del})
"""What no node has below it, and the contexts that say no more than `load` or `store`."""


@dataclass(frozen=True)
class Source:
    """A file's text and tree. `encoding` and `bom` say how `text` becomes `data` again, byte for byte."""

    path: str
    data: bytes
    text: str
    encoding: str
    bom: bool
    tree: ast.Module = field(repr=False, compare=False)
    silent: frozenset[str] = frozenset()
    """Codes of the rules that the settings silence in this file."""

    @classmethod
    def parse(cls, path: str, data: bytes) -> Source:
        """Decode and parse.

        Raises:
            SourceError: the bytes are not text in their declared encoding, do not survive a round trip, or are not
                Python that this interpreter's `ast` accepts.
        """
        text, encoding, bom = decode(path, data)
        try:
            tree = ast.parse(text, filename=path)
        except SyntaxError as error:
            raise SourceError(path, error.msg, error.lineno or 0) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise SourceError(path, str(error) or "nested too deeply for Python's parser", code="unparsable") from None
        return cls(path, data, text, encoding, bom, tree)

    def encode(self, text: str) -> bytes:
        """Bytes of `text` in this file's encoding, with its byte order mark where it has one."""
        raw = text.encode(self.encoding)
        return b"\xef\xbb\xbf" + raw if self.bom else raw

    @property
    def on_disk(self) -> bytes:
        """The file's bytes as they were read."""
        return self.data

    def written(self, text: str) -> bytes:
        """The file's bytes once it says `text`."""
        return self.encode(text)

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of each line's first code point; only CR, LF and CRLF end a line, as for Python's tokenizer."""
        return [0, *(m.end() for m in _NEWLINE.finditer(self.text))]

    def line(self, number: int) -> str:
        """Text of the 1-based line `number`, with its line end."""
        starts = self.line_starts
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end]

    def offset(self, line: int, col: int) -> int:
        """Offset into `text` of an `ast` position (1-based line, 0-based UTF-8 column)."""
        start = self.line_starts[line - 1]
        prefix = self.text[start : start + col]
        if prefix.isascii():
            return start + col
        return start + len(self.line(line).encode("utf-8", "surrogatepass")[:col].decode("utf-8", "ignore"))

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and 1-based column in code points of an offset into `text`."""
        line = bisect.bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def bounds(self, where: ast.AST | Span) -> tuple[int, int]:
        """Start and end offsets into `text` of a node or a span."""
        span = where if isinstance(where, Span) else span_of(where)
        return self.offset(span.line, span.col), self.offset(span.end_line, span.end_col)

    def segment(self, where: ast.AST | Span) -> str:
        """Source text of a node or a span."""
        start, end = self.bounds(where)
        return self.text[start:end]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Each node's parent. Left out is what says no more than `load` or `store`."""
        found: dict[ast.AST, ast.AST] = {}
        pending: list[ast.AST] = [self.tree]
        for node in pending:  # by hand: whole projects are walked, and `ast.walk` would have to be followed by this
            for value in vars(node).values():
                kind = type(value)
                if kind is list:
                    for child in value:
                        if isinstance(child, ast.AST):
                            found[child] = node
                            pending.append(child)
                elif kind not in _PLAIN and isinstance(value, ast.AST):
                    found[value] = node
                    pending.append(value)
        return found

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, outermost first."""
        return (self.tree, *self.parents)

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in self.nodes:
            found.setdefault(type(node), []).append(node)
        return found

    def of(self, kind: type[N]) -> list[N]:
        """All nodes of a kind, outermost first."""
        return cast(list[N], self._by_kind.get(kind, []))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, innermost first."""
        parents = self.parents
        while (parent := parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that holds `node`, or `node` itself."""
        if isinstance(node, ast.stmt):
            return node
        return next(n for n in self.ancestors(node) if isinstance(n, ast.stmt))

    def scope(self, node: ast.AST) -> Scope:
        """The innermost function, lambda, class or module around `node`."""
        for parent in self.ancestors(node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                return parent
        return self.tree

    def qualname(self, node: ast.AST) -> str:
        """Qualified name, as `__qualname__` spells it, of the function whose code holds `node`."""
        names: list[str] = []
        functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        inside = False
        for parent in self.ancestors(node):
            if isinstance(parent, functions):
                if names:
                    names.append("<locals>")
                names.append("<lambda>" if isinstance(parent, ast.Lambda) else parent.name)
                inside = True
            elif isinstance(parent, ast.ClassDef) and inside:
                names.append(parent.name)
        return ".".join(reversed(names)) or "<module>"

    @cached_property
    def statements(self) -> tuple[tuple[ast.stmt, int, int], ...]:
        """All statements in order, with their bounds; of compound ones those of the header."""
        found: list[tuple[ast.stmt, int, int]] = []
        todo: list[ast.AST] = [*reversed(self.tree.body)]
        while todo:
            node = todo.pop()
            inner: list[ast.AST] = [n for name in _BLOCKS for n in getattr(node, name, None) or ()]
            if isinstance(node, ast.stmt):
                start, end = self.bounds(node)
                first = [self.bounds(n)[0] for n in inner if hasattr(n, "lineno")]
                for decorator in getattr(node, "decorator_list", ()):
                    start = min(start, self.bounds(decorator)[0])
                found.append((node, start, min([end, *first]) - 1 if first else end))
            todo += inner[::-1]
        return tuple(found)

    @cached_property
    def by_span(self) -> dict[Span, list[ast.AST]]:
        """Nodes by their span, outermost first."""
        found: dict[Span, list[ast.AST]] = {}
        for node in self.nodes:
            if hasattr(node, "lineno"):
                found.setdefault(span_of(node), []).append(node)
        return found

    def nodes_at(self, span: Span) -> list[ast.AST]:
        """Nodes whose span is exactly `span`, outermost first."""
        return [n for n in self.nodes if hasattr(n, "lineno") and span_of(n) == span]

    def innermost(self, span: Span, kinds: type | tuple[type, ...] = ast.expr) -> ast.AST | None:
        """The smallest node of `kinds` that covers `span`."""
        best: tuple[tuple[int, int], ast.AST] | None = None
        start, end = (span.line, span.col), (span.end_line, span.end_col)
        for node in self.nodes:
            if not isinstance(node, kinds) or not hasattr(node, "lineno"):
                continue
            s = span_of(node)
            if (s.line, s.col) <= start and end <= (s.end_line, s.end_col):
                size = (s.end_line - s.line, s.end_col - s.col if s.end_line == s.line else 0)
                if best is None or size <= best[0]:
                    best = (size, node)
        return best[1] if best else None


def span_of(node: ast.AST) -> Span:
    """A node's span."""
    return Span(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """All plain names that code speaks of, nested functions and classes with it."""
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def decode(path: str, data: bytes) -> tuple[str, str, bool]:
    """Text, encoding and byte order mark of a Python file, by PEP 263.

    Raises:
        SourceError: unknown encoding, bytes that it does not hold, or text that does not give the same bytes back.
    """
    if b"\0" in data:
        raise SourceError(path, "holds NUL bytes", code="nul-bytes")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, UnicodeDecodeError) as error:
        said = str(error)
        if said.startswith("encoding problem"):
            said = "its byte order mark says UTF-8, its coding line something else"
        raise SourceError(path, f"cannot be decoded: {said}", code="encoding") from None
    bom = encoding == "utf-8-sig"
    encoding = "utf-8" if bom else encoding
    body = data[3:] if bom else data
    try:
        text = body.decode(encoding)
        same = text.encode(encoding) == body
    except (UnicodeError, LookupError) as error:
        raise SourceError(path, f"is not text in {encoding}: {error}", code="encoding") from None
    if not same:
        raise SourceError(path, f"does not survive decoding and encoding as {encoding}", code="encoding")
    return text, encoding, bom
