"""Where a report goes: standard output or a file, with colours or without."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from deinplace.cli.options import Color
from deinplace.errors import DeinplaceError
from deinplace.files import NOTEBOOK, load, read_text
from deinplace.model import Outcome
from deinplace.report import FOR_PEOPLE, diff, render, shown, words
from deinplace.report.view import STYLES, View, places_of

if TYPE_CHECKING:
    from deinplace.notebooks import Notebook

_WIDTH = 80
_ORDERS = re.compile(r"\x1b\[[0-9;]*m|\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_OURS = frozenset({"\x1b[0m", *(f"\x1b[{code}m" for code in STYLES.values())})


def view(outcome: Outcome, texts: Mapping[str, str], verbose: bool, quiet: bool) -> View:
    """A view that holds the text of every file that the outcome speaks of, as it is now or as `texts` has it."""
    known = {change.path: change.before for change in outcome.changes}
    paths = dict.fromkeys((*(path for path, _ in places_of(outcome)), *(p.path for p in outcome.problems)))
    notebooks = {path: book for path in (*known, *paths) if path.endswith(NOTEBOOK) and (book := _notebook(path))}
    for path in paths:
        if path not in known and (path in texts or path not in notebooks):
            text = texts.get(path) or read_text(path)
            if text is not None:
                known[path] = text
    known |= {path: book.text for path, book in notebooks.items() if path not in known}
    return View(str(Path.cwd()), known, verbose=verbose, quiet=quiet, notebooks=notebooks)


def _notebook(path: str) -> Notebook | None:
    """The notebook at `path`, or None where there is none that could be read."""
    from deinplace.notebooks import Notebook

    source = load((path,))[0].get(path)
    return source if isinstance(source, Notebook) else None


def emit(
    outcome: Outcome,
    seen: View,
    kind: str,
    file: Path | None,
    color: Color,
    diff_only: bool = False,
    more: Iterable[tuple[str, Path]] = (),
    apart: bool = False,
) -> None:
    """Print the report, or write it to `file` and print the summary to standard error; and write those of `more`.

    With `apart` standard output is somebody else's: the report goes to standard error.

    Raises:
        DeinplaceError: a file cannot be written.
    """
    for other, path in more:
        _save(path, render(other, outcome, seen))
    if file is not None:
        _save(file, render(kind, outcome, seen))
    people = kind in FOR_PEOPLE
    if diff_only and (file is not None or people):
        there = _on(sys.stdout, color, seen)
        parts, there = shown("full", outcome, there)
        _say(sys.stdout, "".join(diff.painted(diff.unified(change, there), there) for change in parts.changes))
        if file is None:
            _say(sys.stderr, render(kind, replace(outcome, changes=()), _on(sys.stderr, color, seen)))
    elif file is None:
        stream = sys.stderr if apart else sys.stdout
        _say(stream, render(kind, outcome, _on(stream, color, seen) if people else seen))
    if file is not None and not seen.quiet:
        lines = [words.summary(outcome), words.verdict_line(outcome), f"report: {file}"]
        _say(sys.stderr, "".join(f"{line}\n" for line in lines if line))


def put(text: str, file: Path | None) -> None:
    """Print a finished report, or write it to `file`.

    Raises:
        DeinplaceError: the file cannot be written.
    """
    if file is not None:
        _save(file, text)
    else:
        _say(sys.stdout, text)


def statistics(outcome: Outcome, kind: str, file: Path | None) -> None:
    """Print the findings of each rule, counted: beside the report, or on standard error where that must stand alone."""
    apart = file is not None or kind not in FOR_PEOPLE
    _say(sys.stderr if apart else sys.stdout, words.statistics(outcome))


def wants_color(stream: TextIO, color: Color) -> bool:
    """The flag, then FORCE_COLOR, then NO_COLOR, then whether `stream` is a terminal."""
    if color is not Color.auto:
        return color is Color.always
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def _on(stream: TextIO, color: Color, seen: View) -> View:
    width = shutil.get_terminal_size().columns if stream.isatty() else _WIDTH
    return replace(seen, color=wants_color(stream, color), width=max(40, min(width, 120)), terminal=stream.isatty())


def _say(stream: TextIO, text: str) -> None:
    """Write text that may hold what the stream's encoding does not; a terminal gets no orders from it."""
    if text:
        text = _harmless(text) if stream.isatty() else text
        encoding = stream.encoding or "utf-8"
        stream.flush()
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _harmless(text: str) -> str:
    """The text without characters that would move the cursor, hide text or turn it round; our own colours stay."""
    return _ORDERS.sub(lambda found: found[0] if found[0] in _OURS else "\N{REPLACEMENT CHARACTER}", text)


def _save(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8", errors="backslashreplace") as stream:  # follows no link
            stream.write(text)
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DeinplaceError(f"{file}: the report cannot be written: {error.strerror}") from None
