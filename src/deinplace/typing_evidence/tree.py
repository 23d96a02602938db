"""The shadow of a whole project: a private temporary folder with its Python files, asked ones rewritten."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deinplace.analysis.source import Source
from deinplace.model import Span
from deinplace.typing_evidence.questions import Question
from deinplace.typing_evidence.shadow import Reveal, shadow

LIMIT = 20_000
"""So many files that nobody asked about are copied at most: those of packages that only a part was given of."""
_LARGE = 4_000_000
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True)
class Asked:
    """A file of the shadow that answers are expected of."""

    path: str
    reveals: Mapping[Reveal, Span]


@dataclass
class Tree:
    """A shadow on disk; `close`, or leaving the `with` block however that happens, removes it."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="deinplace-types-")))
    roots: list[Path] = field(default_factory=list)
    """Where imports start in the shadow, and in the project for what the shadow lacks."""
    asked: dict[str, Asked] = field(default_factory=dict)
    """By path in the shadow, relative to `project`."""

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def project(self) -> Path:
        """The folder that the checkers run in."""
        return self.folder / "project"

    def write(self, sources: Mapping[str, Source], questions: Iterable[Question]) -> None:
        """Write the shadow of all `sources`, and copy what else their packages hold."""
        by_path: dict[str, list[Question]] = {}
        for question in questions:
            by_path.setdefault(question.path, []).append(question)
        starts = {path: _import_root(Path(path)) for path in sources}
        base = Path(os.path.commonpath([str(p) for p in starts.values()]))
        self.project.mkdir(exist_ok=True)
        for path, source in sources.items():
            name = _named(Path(path).relative_to(base))
            made = shadow(source, by_path.get(path, ()))
            _put(self.project / name, made.text.encode("utf-8", "surrogatepass"), source.encoding)
            if made.reveals:
                self.asked[name.as_posix()] = Asked(path, made.reveals)
        roots = [root for root in sorted(set(starts.values())) if not _hides(root, sources)]
        for extra in _rest(starts):
            if extra.is_relative_to(base):
                _copy(extra, self.project / extra.relative_to(base))
        self.roots = [self.project / root.relative_to(base) for root in roots]
        self.roots += [root for root in roots if root != Path(root.anchor)]


def _named(path: Path) -> Path:
    """A notebook or a script without suffix stands in the shadow as a module."""
    return path if path.suffix == ".py" else path.with_name(path.name + ".py")


def _put(path: Path, data: bytes, encoding: str) -> None:
    """Write a shadow file: UTF-8, whatever the original says of its encoding."""
    if encoding.lower().replace("_", "-") not in ("utf-8", "ascii"):
        lines = data.split(b"\n", 2)
        data = b"\n".join([*(line.replace(b"coding", b"______") for line in lines[:2]), *lines[2:]])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _import_root(path: Path) -> Path:
    """The folder that a file's dotted name starts in: above its outermost package."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _hides(root: Path, sources: Mapping[str, Source]) -> bool:
    """True where a script in the folder has the name of a library: only what runs beside it would import it."""
    names = {Path(path).stem for path in sources if Path(path).parent == root}
    return bool(names & (sys.stdlib_module_names | {"torch", "numpy"}))


def _rest(starts: Mapping[str, Path]) -> Iterable[Path]:
    """Python files of the same packages, and modules beside them, that are not among the sources."""
    tops: set[Path] = set()
    for path, root in starts.items():
        inside = Path(path).relative_to(root)
        tops.add(root / inside.parts[0] if len(inside.parts) > 1 else root)
    count = 0
    for top in sorted(tops):
        for found in top.glob("*.py") if top in set(starts.values()) else _below(top):
            if str(found) not in starts:
                count += 1
                if count > LIMIT:
                    return
                yield found


def _below(top: Path) -> Iterable[Path]:
    for folder, inner, names in os.walk(top):
        inner[:] = sorted(n for n in inner if n not in _SKIPPED and not n.startswith("."))
        yield from (Path(folder, n) for n in sorted(names) if n.endswith(".py"))


def _copy(path: Path, to: Path) -> None:
    """Copy a file as it is; what cannot be read is left out, as an import that is not found would be."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGE or to.exists():
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    except OSError:
        return
