"""What `check` finds: as it was found before, where nothing has changed, or by looking, in several processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from deinplace.cli.sources import STDIN, gather
from deinplace.model import Finding, Problem

if TYPE_CHECKING:
    from deinplace.analysis.run import Spread
    from deinplace.analysis.source import Source
    from deinplace.cache import Cache, Entry
    from deinplace.config import Config

_SPREAD = 60
"""So many files, at least, are worth processes of their own."""
_UNSAID = frozenset(
    {"output_format", "baseline", "run", "timeout", "max_steps", "max_runs", "jobs", "cache", "cache_dir", "verify",
     "unsafe", "paranoid"}
)  # fmt: skip
"""Settings that change nothing about what is found."""


@dataclass(frozen=True)
class Checked:
    """Findings and problems of the files that were named; `sources` holds at least those with findings."""

    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    files: int = 0


def checked(
    given: list[str], config: Config, stdin_name: str | None, codes: Collection[str] | None, whole: bool
) -> Checked:
    """Look at the files named; `whole` where the sources of all of them are needed afterwards.

    Raises:
        DeinplaceError: a path does not exist, or there is no Python file in any of them.
    """
    collecting = gc.isenabled()
    gc.disable()  # trees and values of a whole project live to the end: looking for garbage takes half the time
    try:
        if given == STDIN or stdin_name or "-" in given or whole or not config.cache:
            sources, problems = gather(given, config, stdin_name)
            return _look(sources, problems, config, codes, edited=given == STDIN)
        return _remembered(given, config, codes)
    finally:
        if collecting:
            gc.freeze()  # or the first object after this has all of them looked through, once more for nothing
            gc.enable()


def _look(
    sources: Mapping[str, Source],
    problems: tuple[Problem, ...],
    config: Config,
    codes: Collection[str] | None,
    edited: bool = False,
) -> Checked:
    """Analyse sources."""
    from deinplace.cli import baselines
    from deinplace.cli.checkers import evidence
    from deinplace.ignores import provably_unused

    if not sources:
        return Checked(problems=problems)
    from deinplace.analysis.check import check

    lost: list[Problem] = []

    def fail(path: str, reason: str) -> None:
        lost.append(Problem(path, f"{reason}; its functions were not looked at", code="not-analysed"))

    checkers = evidence(config, sources, edited=edited)
    spread = _spread(config, len(sources))
    found = check(sources, config, all_sites=config.all, refine=checkers, spread=spread, failed=fail)
    chosen = baselines.chosen(found, frozenset(codes) if codes is not None else None)
    notes = tuple(checkers.notes) if checkers is not None else ()
    return Checked(tuple(provably_unused(sources, chosen)), (*problems, *lost), notes, sources, len(sources))


def _spread(config: Config, files: int) -> Spread | None:
    """What hands files on to other processes; None where that is not worth it, or cannot be done."""
    from deinplace import pool

    jobs = config.jobs or pool.cores()
    if jobs < 2 or files < _SPREAD or not pool.can_fork():
        return None

    def spread(work, tasks):  # type: ignore[no-untyped-def]
        for answer in pool.spread(lambda task: work(task), tasks, jobs):
            yield answer.reason if isinstance(answer, pool.Failure) else answer

    return spread


def _remembered(given: list[str], config: Config, codes: Collection[str] | None) -> Checked:
    """What the cache knows, and the rest by looking."""
    from deinplace import cache
    from deinplace.errors import DeinplaceError
    from deinplace.files import discover

    paths, problems = discover(given, config.selection)
    if not paths and not problems and not config.force_exclude:
        raise DeinplaceError(f"no Python files in {', '.join(given)}")
    data: dict[str, bytes] = {}
    for path in paths:
        try:
            data[path] = Path(path).read_bytes()
        except OSError as error:
            problems = (*problems, Problem(path, f"cannot be read: {error.strerror}; left as it is", code="unreadable"))
    settings = _settings(config, codes, {os.path.realpath(p) for p in given} & set(paths))
    store = cache.Cache(cache.folder(config.cache_dir))
    known: dict[str, Entry] = {}
    whole = cache.key(data, settings)
    if (entry := store.get(whole, cache.Entry)) is not None:
        return _joined([entry], problems, data, {}, config)
    keys = {cache.key({p: data[p] for p in group}, settings): group for group in cache.groups(data)}
    for key in keys:
        if (entry := store.get(key, cache.Entry)) is not None:
            known[key] = entry
    fresh = [path for key, group in keys.items() if key not in known for path in group]
    sources, unread = _parsed(fresh, data, given, config)
    made = _look(sources, unread, config, codes)
    for key, group in keys.items():
        if key not in known:
            known[key] = _part(made, frozenset(group))
            _keep(store, key, known[key])
    found = _joined([known[key] for key in keys], problems, data, made.sources, config)
    _keep(store, whole, cache.Entry(found.findings, tuple(p for e in known.values() for p in e.problems), found.notes))
    return found


def _keep(store: Cache, key: str, entry: Entry) -> None:
    """Keep an entry, unless it says that a process died: the next one may not."""
    if not any(problem.code == "not-analysed" for problem in entry.problems):
        store.put(key, entry)


def _settings(config: Config, codes: Collection[str] | None, named: set[str]) -> list[object]:
    """What findings depend on besides the files."""
    from deinplace.cli.run import default_python
    from deinplace.typing_evidence import CHECKERS

    held: list[object] = [(f.name, getattr(config, f.name)) for f in fields(config) if f.name not in _UNSAID]
    held += [sorted(codes) if codes is not None else None, sorted(named)]
    if config.types != "off":
        for checker in CHECKERS:
            path = checker.find()
            held.append((path, Path(path).stat().st_mtime_ns if path else 0))
        if any(checker.find() for checker in CHECKERS):
            held.append((config.python or default_python(), *packages(config.python or default_python())))
    return held


def packages(python: str) -> list[int]:
    """When the packages of an interpreter last changed."""
    home = Path(python).parent.parent
    # Not `**`: an interpreter of the system lives in /usr, and all of its libraries would be walked.
    found = [*home.glob("[Ll]ib*/site-packages"), *home.glob("[Ll]ib*/python*/site-packages")]
    return sorted(p.stat().st_mtime_ns for p in found if p.is_dir())


def _parsed(
    paths: list[str], data: Mapping[str, bytes], given: list[str], config: Config
) -> tuple[dict[str, Source], tuple[Problem, ...]]:
    from deinplace.cli.sources import quietened
    from deinplace.files import load_bytes

    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    named = {os.path.realpath(path) for path in given}
    for path in paths:
        read, broken = load_bytes(path, data[path])
        sources |= read
        problems += [p for p in broken if p.code != "other-language" or p.path in named]
    return quietened(sources, config), tuple(problems)


def _part(made: Checked, group: frozenset[str]) -> Entry:
    from deinplace.cache import Entry

    return Entry(
        tuple(f for f in made.findings if f.path in group),
        tuple(p for p in made.problems if p.path in group),
        made.notes,
    )


def _joined(
    entries: list[Entry],
    problems: tuple[Problem, ...],
    data: Mapping[str, bytes],
    sources: Mapping[str, Source],
    config: Config,
) -> Checked:
    """One account of several groups, with the sources that it speaks of."""
    findings = [f for entry in entries for f in entry.findings]
    findings.sort(key=lambda f: f.path)
    said = [p for entry in entries for p in entry.problems]
    missing = [path for path in {f.path: None for f in findings} if path not in sources]
    more, _ = _parsed(missing, data, [], config)
    notes = tuple(dict.fromkeys(note for entry in entries for note in entry.notes))
    broken = {problem.path for problem in said}
    return Checked(
        tuple(findings), (*problems, *said), notes, {**sources, **more}, sum(path not in broken for path in data)
    )
