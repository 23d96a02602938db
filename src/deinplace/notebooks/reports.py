"""Findings in a notebook's module as a reader knows them: by cell and line of the cell, or by line of the JSON file.

People are shown cells, each as if it were a file of its own: `nb.ipynb:cell 3`. Programs that look into the file
itself, as those do that annotate a pull request, get places and edits of its JSON, and messages that name cells.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from deinplace.errors import DeinplaceError
from deinplace.model import Edit, Event, FileChange, Outcome, Place, Problem, Rewrite, Span
from deinplace.notebooks import SUFFIX, Notebook, document
from deinplace.probe import cells
from deinplace.report.view import View
from deinplace.rewrite.apply import OverlapError, ordered

IN_FILES = frozenset({"sarif", "github", "gitlab", "rdjson", "patch"})
"""Formats whose readers open the file that they are told of."""
_TEXTS = frozenset({"message", "advice", "why", "kind_why", "saved_by", "title", "note", "reason"})
_LINE_END = re.compile(r"\r\n|\r|\n")


def localized(kind: str, outcome: Outcome, view: View) -> tuple[Outcome, View]:
    """The outcome and the view with notebooks as readers of the format `kind` know them."""
    books = {path: _Book(path, text) for path, text in view.texts.items() if _is_book(path, text)}
    if not books:
        return outcome, view
    whole = {path: book for path, book in view.notebooks.items() if path in books} if kind in IN_FILES else {}
    mapper = _Mapper(books, whole)
    changes = tuple(part for change in outcome.changes for part in mapper.change(change))
    findings = tuple(mapper.map(f, "") for f in outcome.findings)
    problems = tuple(mapper.map(p, "") for p in outcome.problems)
    notes = tuple(mapper.named(note) for note in outcome.notes)
    verdict = mapper.map(outcome.verdict, "")
    outcome = replace(outcome, findings=findings, problems=problems, changes=changes, notes=notes, verdict=verdict)
    texts = {path: text for path, text in view.texts.items() if path not in books}
    for path, book in books.items():
        if path in whole:
            texts[path] = whole[path].json
        else:
            texts |= {cell_path(path, number): text for number, text in book.sources.items()}
    fields = {f.name: getattr(view, f.name) for f in dataclasses.fields(view)} | {"texts": texts}
    return outcome, _FileView(**fields, spots=mapper.spots)


def located(text: str, texts: Mapping[str, str]) -> str:
    """A message in which lines of notebooks' modules, as in `nb.ipynb:17`, are named by their cells."""
    return _Mapper({p: _Book(p, t) for p, t in texts.items() if _is_book(p, t)}, {}).named(text)


def cell_path(path: str, number: int) -> str:
    """The name under which a cell goes where it is shown as a file of its own."""
    return f"{path}:cell {number}"


def _is_book(path: str, text: str) -> bool:
    return path.endswith(SUFFIX) and cells.is_module(text)


@dataclass(frozen=True)
class _FileView(View):
    """A view that names places in the JSON of a notebook by their cells."""

    spots: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def at(self, place: Place) -> str:
        spot = self.spots.get((place.path, place.span.line))
        return f"{self.path(place.path)}:{spot}" if spot else super().at(place)


@dataclass(frozen=True)
class _Book:
    """A notebook's module."""

    path: str
    text: str

    @cached_property
    def cells(self) -> list[cells.Cell]:
        return cells.cells(self.text)

    @cached_property
    def sources(self) -> dict[int, str]:
        return cells.texts(self.text)

    def spot(self, line: int) -> tuple[int, int]:
        """Cell, and line in the cell, of a line of the module."""
        cell = cells.cell_at(self.cells, line)
        return (cell.number, max(line - cell.first + 1, 1)) if cell is not None else (1, 1)

    def offset(self, line: int, col: int) -> tuple[int, int]:
        """Cell, and offset in its source, of a line and UTF-8 column of the module."""
        number, own = self.spot(line)
        source = self.sources[number]
        starts = [0, *(m.end() for m in _LINE_END.finditer(source))]
        start = starts[min(own, len(starts)) - 1]
        rest = source[start:]
        return number, start + len(rest.encode("utf-8", "surrogatepass")[:col].decode("utf-8", "ignore"))


class _Mapper:
    """Moves records from modules to cells, or to JSON files where `whole` holds those."""

    def __init__(self, books: Mapping[str, _Book], whole: Mapping[str, Notebook]) -> None:
        self.books, self.whole = books, whole
        self.spots: dict[tuple[str, int], str] = {}
        self.names = {path.rsplit("/", 1)[-1]: book for path, book in books.items()}

    def map(self, value: Any, path: str) -> Any:
        """A record with all that it holds; `path` is the file that its spans speak of."""
        if isinstance(value, Span):
            return self.span(path, value)
        if isinstance(value, tuple):
            return tuple(self.map(item, path) for item in value)
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        own = getattr(value, "path", "") or path
        inner = value.stack[0].path if isinstance(value, Event) and value.stack else own
        changes = {}
        for each in dataclasses.fields(value):
            item = getattr(value, each.name)
            if isinstance(item, str):
                # what keeps a cell from being read was said of its own lines
                told = each.name in _TEXTS and not isinstance(value, Problem)
                item = self.worded(item, own) if told else item
            elif not (isinstance(value, Rewrite) and each.name == "edits"):
                item = self.map(item, inner)
            changes[each.name] = item
        line = value.span.line if hasattr(value, "span") else getattr(value, "line", 0)
        if own in self.books and hasattr(value, "path"):
            changes["path"], moved = self.place(own, line)
            changes |= {"line": moved} if hasattr(value, "line") else {}
        if isinstance(value, Rewrite):
            changes["edits"] = tuple(self.edits(value))
        return replace(value, **changes)

    def place(self, path: str, line: int) -> tuple[str, int]:
        """File and line as they are shown; line 0 speaks of the whole notebook."""
        if not line:
            return path, 0
        if path in self.whole:
            return path, self.span(path, Span(line, 0, line, 0)).line
        number, own = self.books[path].spot(line)
        return cell_path(path, number), own

    def span(self, path: str, span: Span) -> Span:
        """A span as it is shown."""
        book = self.books.get(path)
        if book is None:
            return span
        if path not in self.whole:
            first, last = book.spot(span.line)[1], book.spot(span.end_line)[1]
            return replace(span, line=first, end_line=max(first, last))
        start = self._in_file(book, span.line, span.col)
        end = self._in_file(book, span.end_line, span.end_col)
        number, own = book.spot(span.line)
        self.spots[(path, start[0])] = f"cell {number}:{own}"
        return Span(*start, *max(start, end))

    def _in_file(self, book: _Book, line: int, col: int) -> tuple[int, int]:
        notebook = self.whole[book.path]
        number, offset = book.offset(line, col)
        known = notebook.fields[number - 1]
        if known is None:
            return 1, 0
        at = document.offset_in(notebook.json, known, offset)
        start = notebook.json.rfind("\n", 0, at) + 1
        return notebook.json.count("\n", 0, at) + 1, len(notebook.json[start:at].encode("utf-8"))

    def edits(self, rewrite: Rewrite) -> Iterator[Edit]:
        """A rewrite's edits in the texts that are shown."""
        for path in dict.fromkeys(edit.path for edit in rewrite.edits):
            own = [edit for edit in rewrite.edits if edit.path == path]
            if path not in self.books:
                yield from own
                continue
            text = self.books[path].text
            try:
                for edit in reversed(ordered(own)):
                    text = text[: edit.start] + edit.new + text[edit.end :]
            except OverlapError:
                continue
            for change in self.change(FileChange(path, self.books[path].text, text)):
                yield _window(change)

    def change(self, change: FileChange) -> Iterator[FileChange]:
        """A change of a module as one of its file, or of its cells."""
        if change.path not in self.books:
            yield change
        elif change.path in self.whole:
            notebook = self.whole[change.path]
            try:
                yield FileChange(change.path, notebook.json, notebook.json_after(change.after))
            except DeinplaceError:  # said where it would be written; what cannot be written is not offered
                return
        else:
            before, after = self.books[change.path].sources, cells.texts(change.after)
            for number, source in before.items():
                if after.get(number, source) != source:
                    yield FileChange(cell_path(change.path, number), f"{source}\n", f"{after[number]}\n")

    def worded(self, text: str, path: str) -> str:
        """A sentence about a file, with the lines that it names."""
        if path in self.books:
            text = re.sub(r"\blines? (\d+)\b", lambda m: self._line(m, self.books[path]), text)
        return self.named(text)

    def named(self, text: str) -> str:
        """A sentence with places such as `nb.ipynb:17`."""
        for name, book in self.names.items():
            text = re.sub(rf"({re.escape(name)}):(\d+)", lambda m, b=book: _spotted(m, b), text)  # type: ignore[misc]
        return text

    def _line(self, match: re.Match[str], book: _Book) -> str:
        number, own = book.spot(int(match[1]))
        return f"cell {number}, line {own}"


def _spotted(match: re.Match[str], book: _Book) -> str:
    number, own = book.spot(int(match[2]))
    return f"{match[1]}:cell {number}:{own}"


def _window(change: FileChange) -> Edit:
    """The smallest edit that makes a change."""
    before, after = change.before, change.after
    limit = min(len(before), len(after))
    start = next((i for i in range(limit) if before[i] != after[i]), limit)
    tail = next((i for i in range(limit - start) if before[-1 - i] != after[-1 - i]), limit - start)
    return Edit(change.path, start, len(before) - tail, after[start : len(after) - tail])
