"""Where a notebook's JSON holds the source of each cell; new sources put there, all other bytes as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from json.decoder import scanstring  # type: ignore[attr-defined]

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[^\s,\]}]+")
_PIECE = re.compile(r"(?:[^\\\n]|\\[^n])*?\\n|(?:[^\\]|\\.)+", re.DOTALL)
_TOKEN = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class Field:
    """A cell's `source`: offsets of its value in the JSON text, and of each string that it holds."""

    start: int
    end: int
    strings: tuple[tuple[int, int], ...]
    listed: bool


@dataclass(frozen=True)
class Piece:
    """One line of a source as the JSON text spells it: `raw` without quotes, and where that stands."""

    text: str
    raw: str
    start: int


def fields(text: str) -> list[Field | None]:
    """The `source` of every cell of a format 4 notebook, in order; `text` is known to be valid JSON."""
    found: dict[int, Field] = {}
    count = 0
    for path, start, end in _values(text, _skip(text, 0), ()):
        if len(path) == 2 and path[0] == "cells" and isinstance(path[1], int):
            count = max(count, path[1] + 1)
        if len(path) == 3 and path[0] == "cells" and path[2] == "source":
            assert isinstance(path[1], int)
            found[path[1]] = Field(start, end, tuple(_strings(text, start)), text[start] == "[")
    return [found.get(index) for index in range(count)]


def pieces(text: str, field: Field) -> list[Piece]:
    """The lines of a source."""
    out = []
    for start, end in field.strings:
        raw = text[start + 1 : end - 1]
        for match in _PIECE.finditer(raw):
            out.append(Piece(json.loads(f'"{match[0]}"', strict=False), match[0], start + 1 + match.start()))
    return out


def replaced(text: str, changes: Mapping[int, str]) -> str:
    """The JSON text with new sources in some cells, by their 0-based index."""
    known = fields(text)
    plain = text.isascii() and "\\u" in text  # whoever wrote it escapes what is not ASCII
    for index in sorted(changes, reverse=True):
        field = known[index]
        assert field is not None
        text = text[: field.start] + _value(text, field, changes[index], plain) + text[field.end :]
    return text


def _value(text: str, field: Field, source: str, plain: bool) -> str:
    """A source as JSON, spelt as before where its lines are as before."""
    old = pieces(text, field)
    lines = _LINE.findall(source)
    raws = [json.dumps(line, ensure_ascii=plain)[1:-1] for line in lines]
    for tag, a, b, c, d in SequenceMatcher(None, [p.text for p in old], lines, autojunk=False).get_opcodes():
        if tag == "equal":
            raws[c:d] = [p.raw for p in old[a:b]]
    if not field.listed:
        return '"' + "".join(raws) + '"'
    if not lines:
        return "[]"
    if not field.strings:
        return "[" + ", ".join(f'"{raw}"' for raw in raws) + "]"
    first, last = field.strings[0], field.strings[-1]
    opening, closing = text[field.start : first[0]], text[last[1] : field.end]
    apart = text[first[1] : field.strings[1][0]] if len(field.strings) > 1 else "," + (opening[1:] or " ")
    return opening + apart.join(f'"{raw}"' for raw in raws) + closing


def _values(text: str, at: int, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
    """Path, start and end of the value at `at` and of those inside; deeper than a cell's fields nothing is told."""
    end = at
    if text[at] == "{":
        end = _skip(text, at + 1)
        while text[end] != "}":
            key, end = scanstring(text, end + 1, False)
            for item in _values(text, _skip(text, _skip(text, end) + 1), (*path, key)):
                if len(item[0]) <= 3:
                    yield item
                end = item[2] if len(item[0]) == len(path) + 1 else end
            end = _next(text, end)
        end += 1
    elif text[at] == "[":
        end, index = _skip(text, at + 1), 0
        while text[end] != "]":
            for item in _values(text, end, (*path, index)):
                if len(item[0]) <= 3:
                    yield item
                end = item[2] if len(item[0]) == len(path) + 1 else end
            end, index = _next(text, end), index + 1
        end += 1
    elif text[at] == '"':
        end = scanstring(text, at + 1, False)[1]
    else:
        found = _SCALAR.match(text, at)
        assert found is not None
        end = found.end()
    yield path, at, end


def _strings(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Offsets of the string at `start`, or of those in the list there, quotes included."""
    if text[start] == '"':
        yield start, scanstring(text, start + 1, False)[1]
        return
    at = _skip(text, start + 1)
    while text[at] == '"':
        end = scanstring(text, at + 1, False)[1]
        yield at, end
        at = _next(text, end)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _next(text: str, end: int) -> int:
    """Where the next value, or the closing bracket, stands behind one that ends at `end`."""
    at = _skip(text, end)
    return _skip(text, at + 1) if text[at] == "," else at


def offset_in(text: str, field: Field, offset: int) -> int:
    """Where the JSON text spells the code point at an offset of a source."""
    at = field.start
    for piece in pieces(text, field):
        at = piece.start
        if offset < len(piece.text):
            break
        offset -= len(piece.text)
        at += len(piece.raw)
    else:
        return at
    for token in _TOKEN.finditer(piece.raw):
        if offset <= 0:
            break
        # two escapes may spell one code point between them
        offset -= 0 if re.match(r"\\u[dD][89abAB]", token[0]) else 1
        at += len(token[0])
    return at
