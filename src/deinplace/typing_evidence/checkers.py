"""Runs ty and pyrefly on a shadow, and reads what they reveal."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deinplace.model import Span
from deinplace.typing_evidence.environment import Environment
from deinplace.typing_evidence.tree import Tree

SECONDS = 120.0
"""Time limit of one checker's run."""
_ARGUMENTS = 100_000
"""Files are named one by one up to so many characters, else the whole shadow is checked."""
_TY = re.compile(r"^(?P<path>.+?):(?P<line>\d+):(?P<col>\d+): info\[revealed-type\] Revealed type: `(?P<type>.*)`$")
_PYREFLY = re.compile(
    r"^\s*INFO (?P<path>.+?):(?P<line>\d+):(?P<col>\d+)-[\d:]+: revealed type: (?P<type>.*) \[reveal-type\]$"
)
Revealed = dict[tuple[str, Span], frozenset[str]]
"""Types as printed, by original path and span; several where a checker went over a place several times."""


class CheckerError(Exception):
    """A checker that is not there, takes too long, or does not answer as it should."""


@dataclass(frozen=True)
class Checker:
    """A type checker: its command, its arguments, and the lines of its answers.

    `shift` is how far the column it prints lies before that of the argument of `reveal_type`.
    """

    name: str
    line: re.Pattern[str]
    shift: int
    arguments: Callable[[Tree, Environment], list[str]]

    def find(self) -> str | None:
        """Its executable: beside the interpreter that runs us, else on the path."""
        beside = shutil.which(self.name, path=str(Path(sys.executable).parent))
        return beside or shutil.which(self.name)

    def reveal(self, tree: Tree, env: Environment, names: Sequence[str], seconds: float = SECONDS) -> Revealed:
        """Types of everything asked in the shadow's files `names`.

        Raises:
            CheckerError: see there.
        """
        command = self.find()
        if command is None:
            raise CheckerError(f"{self.name} is not installed")
        files = list(names) if sum(map(len, names)) < _ARGUMENTS else ["."]
        text = _output([command, *self.arguments(tree, env), *files], tree.project, self.name, seconds)
        found = dict(self._answers(tree, text.splitlines()))
        if not found and any(tree.asked[n].reveals for n in names):
            raise CheckerError(f"{self.name} gave no answer that can be read: {_last(text)}")
        return found

    def _answers(self, tree: Tree, lines: Iterable[str]) -> Iterator[tuple[tuple[str, Span], frozenset[str]]]:
        seen: dict[tuple[str, Span], frozenset[str]] = {}
        for line in lines:
            match = self.line.match(line)
            asked = tree.asked.get(match["path"].replace("\\", "/").removeprefix("./")) if match else None
            if match is None or asked is None:
                continue
            span = asked.reveals.get((int(match["line"]), int(match["col"]) + self.shift))
            if span is not None:
                seen[asked.path, span] = seen.get((asked.path, span), frozenset()) | {match["type"]}
        yield from seen.items()


def _settings(tree: Tree, name: str) -> Path:
    """Empty settings in the shadow: the search for settings ends there, and finds none of the user's."""
    path = tree.project / name
    path.write_text("", "utf-8")
    return path


def _ty(tree: Tree, env: Environment) -> list[str]:
    settings = _settings(tree, "ty.toml")
    where = [f"--extra-search-path={root}" for root in tree.roots]
    version = ["--python-version", env.version] if env.version else []
    return [
        "check", "--output-format", "concise", "--exit-zero", "--no-progress", "--color", "never", "--ignore", "all",
        "--warn", "invalid-syntax", "--config-file", str(settings), "--python", env.python, *version, *where,
    ]  # fmt: skip


def _pyrefly(tree: Tree, env: Environment) -> list[str]:
    settings = _settings(tree, "pyrefly.toml")
    where = [f"--search-path={root}" for root in tree.roots]
    where += [f"--site-package-path={folder}" for folder in env.packages]
    version = ["--python-version", env.version] if env.version else []
    return [
        "check", "--config", str(settings), "--preset", "default", "--output-format", "min-text", "--summary=none",
        "--only", "reveal-type", "--min-severity", "info", "--reveal-type-qualified-names",
        "--skip-interpreter-query", "--color", "never", *version, *where,
    ]  # fmt: skip


TY = Checker("ty", _TY, 0, _ty)
PYREFLY = Checker("pyrefly", _PYREFLY, 1, _pyrefly)
CHECKERS = (TY, PYREFLY)


def _environment(home: Path) -> dict[str, str]:
    """Our environment without what configures a checker: no settings of the user's, and a home that is empty."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TY_", "PYREFLY_", "VIRTUAL_ENV", "CONDA_"))}
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home), "APPDATA": str(home)}


def _output(command: list[str], folder: Path, name: str, seconds: float) -> str:
    """What a checker prints; it is ended with all it started when time is up or the user interrupts."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=_environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise CheckerError(f"{name} cannot be started: {error.strerror}") from None
    with child:
        try:
            out, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(child)
            raise CheckerError(f"{name} took longer than {seconds:.0f} seconds") from None
        except BaseException:
            _end(child)
            raise
    text = out.decode("utf-8", "replace")
    if child.returncode not in (0, 1):
        raise CheckerError(f"{name} failed with exit code {child.returncode}: {_last(text)}")
    return text


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, AttributeError):
        child.kill()
    child.wait()


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
