"""A notebook as the road sees it: one module whose lines are those of its code cells, and the way back to the file."""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from deinplace.analysis.source import Source, SourceError
from deinplace.errors import DeinplaceError
from deinplace.notebooks import document, magics
from deinplace.probe import cells

_BOM = b"\xef\xbb\xbf"
_FORMAT = 4


@dataclass(frozen=True)
class Notebook(Source):
    """`text` is the module, `raw` the file; markdown is in neither tree nor text."""

    raw: bytes = field(default=b"", repr=False)

    @property
    def on_disk(self) -> bytes:
        """The file's bytes as they were read."""
        return self.raw

    @cached_property
    def json(self) -> str:
        """The file's text."""
        return self.raw.removeprefix(_BOM).decode("utf-8")

    @cached_property
    def fields(self) -> list[document.Field | None]:
        """Where the file holds the source of each cell."""
        return document.fields(self.json)

    def json_after(self, text: str) -> str:
        """The file's text once its module says `text`; outputs and metadata stay.

        Raises:
            DeinplaceError: the way back does not lead to that very module.
        """
        before, after = cells.texts(self.text), cells.texts(text)
        changes = {number - 1: after[number] for number in before if after.get(number) != before[number]}
        new = document.replaced(self.json, changes)
        try:
            again = read(self.path, new.encode("utf-8"))[0]
        except (SourceError, UnicodeEncodeError) as error:
            raise DeinplaceError(f"{self.path}: would be no notebook any more ({error}); nothing was changed") from None
        if again.text != text or _else(self.json) != _else(new):
            raise DeinplaceError(f"{self.path}: a rewrite reaches beyond its cells; nothing was changed")
        return new

    def written(self, text: str) -> bytes:
        """The file's bytes once its module says `text`, which nbformat has accepted.

        Raises:
            DeinplaceError: nbformat is missing, or the new file would be worse than the old one.
        """
        new = self.json_after(text)
        if _faults(new) != _faults(self.json):
            raise DeinplaceError(f"{self.path}: nbformat would not accept the result; nothing was changed")
        return (_BOM if self.raw.startswith(_BOM) else b"") + new.encode("utf-8")


@dataclass(frozen=True)
class Broken:
    """A code cell that is no Python: what it says, and the line of the module at which it begins."""

    text: str
    first: int


def read(path: str, data: bytes) -> tuple[Notebook, list[tuple[SourceError, Broken]]]:
    """A notebook, and an error for each code cell that is no Python; its line counts in the cell.

    Raises:
        SourceError: it is no notebook of format 4 in Python.
    """
    try:
        content = json.loads(data.removeprefix(_BOM).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SourceError(path, f"is not text in UTF-8: {error.reason}", code="encoding") from None
    except json.JSONDecodeError as error:
        what = f"is no notebook: not valid JSON (line {error.lineno}: {error.msg})"
        raise SourceError(path, what, code="not-a-notebook") from None
    except RecursionError:
        raise SourceError(path, "is no notebook: nested too deeply", code="not-a-notebook") from None
    _require_known(path, content)
    parts: list[str] = []
    errors: list[tuple[SourceError, Broken]] = []
    line = 1
    for number, cell in enumerate(content["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        part, broken = _part(path, number, source, tuple(cell.get("metadata", {}).get("tags", ())))
        if broken is not None:
            errors.append((broken, Broken(source, line + 1)))
        parts.append(part)
        line += len(re.findall(r"\r\n|\r|\n", part))
    text = "".join(parts)
    try:
        module = text.encode("utf-8")
        tree = ast.parse(text, filename=path)
    except UnicodeEncodeError as error:
        raise SourceError(path, f"holds what is no text: {error.reason}", code="encoding") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceError(path, f"its cells do not make up a module: {error}", code="unparsable") from None
    return Notebook(path, module, text, "utf-8", False, tree, raw=data), errors


def _require_known(path: str, content: Any) -> None:
    """Refuse what is no notebook of format 4 in Python."""
    version = content.get("nbformat") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise SourceError(path, "is no notebook: it does not say which `nbformat` it has", code="not-a-notebook")
    if version < _FORMAT:
        how = "convert it with `jupyter nbconvert --to notebook --inplace`"
        raise SourceError(path, f"is a notebook of format {version}, only 4 is understood: {how}", code="old-notebook")
    if version > _FORMAT:
        raise SourceError(path, f"is a notebook of format {version}, only 4 is understood", code="new-notebook")
    listed = content.get("cells")
    if not isinstance(listed, list) or not all(map(_is_cell, listed)):
        raise SourceError(path, "is no notebook: its cells are not what format 4 says", code="not-a-notebook")
    name = language(content)
    if name not in ("python", "ipython"):
        raise SourceError(path, f"is a notebook in {name}; only Python is understood", code="other-language")


def _is_cell(cell: object) -> bool:
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return False
    source, metadata = cell.get("source"), cell.get("metadata", {})
    tags = metadata.get("tags", []) if isinstance(metadata, dict) else None
    listed = isinstance(source, list) and all(isinstance(line, str) for line in source)
    return (isinstance(source, str) or listed) and isinstance(tags, list) and all(isinstance(t, str) for t in tags)


def language(content: Mapping[str, Any]) -> str:
    """The language that a notebook says its kernel speaks; Python where it says nothing."""
    metadata = content.get("metadata")
    for part, key in (("language_info", "name"), ("kernelspec", "language")):
        value = metadata.get(part) if isinstance(metadata, dict) else None
        name = value.get(key) if isinstance(value, dict) else None
        if isinstance(name, str) and name:
            return name.lower().rstrip("0123456789")
    return "python"


def _part(path: str, number: int, source: str, tags: tuple[str, ...]) -> tuple[str, SourceError | None]:
    """A cell's lines of the module, its marker first."""
    masked = magics.mask(source)
    error = _parses(path, masked.text)
    if error is None:
        return f"{cells.marker(number, tags)}\n{masked.text}\n", None
    if masked.text[:1].isspace() and _parses(path, f"if True:\n{masked.text}") is None:
        return f"{cells.marker(number, tags, indented=True)}\n{masked.text}\n", None
    return f"{cells.marker(number, tags, broken=True)}\n{cells.hold(source)}\n", error


def _parses(path: str, text: str) -> SourceError | None:
    try:
        ast.parse(text)
    except SyntaxError as error:
        return SourceError(path, error.msg, error.lineno or 0)
    except (ValueError, RecursionError, MemoryError) as error:
        return SourceError(path, str(error) or "nested too deeply for Python's parser", code="unparsable")
    return None


def _else(text: str) -> Any:
    """All that a notebook holds besides the sources of its cells."""
    content = json.loads(text)
    for cell in content["cells"]:
        cell["source"] = type(cell["source"])()
    return content


def _faults(text: str) -> list[str]:
    """What nbformat says is wrong with a notebook.

    Raises:
        DeinplaceError: nbformat is not installed.
    """
    require_nbformat()
    from nbformat import validator

    content = json.loads(text)
    minor = content.get("nbformat_minor", 0)
    errors: Iterator[Any] = validator.iter_validate(  # type: ignore[no-untyped-call]
        content, version=_FORMAT, version_minor=minor if isinstance(minor, int) else 0, relax_add_props=True
    )
    return [textwrap.shorten("/".join(map(str, e.absolute_path)), 200) for e in errors]


def require_nbformat() -> None:
    """Say what is missing before any work is done.

    Raises:
        DeinplaceError: nbformat is not installed.
    """
    import importlib.util

    if sys.modules.get("nbformat", sys) is None or importlib.util.find_spec("nbformat") is None:
        raise DeinplaceError("notebooks are rewritten with nbformat: pip install 'deinplace[notebooks]'")
