"""`pytest --deinplace-fix`: the tests that met a fault are the program with which `deinplace fix` proves."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_WITH_VALUE = frozenset({"-n", "-k", "-m", "-r", "--numprocesses", "--dist", "--maxfail", "--junitxml", "--junit-xml",
                         "--durations", "--tb", "--maxprocesses"})  # fmt: skip
_DROPPED = ("-x", "-q", "-v", "-s", "-n", "-k", "-m", "-r", "--deinplace", "--lf", "--last-failed", "--ff", "--sw",
            "--stepwise", "--cov", "--exitfirst", "--verbose", "--quiet", "--numprocesses", "--dist", "--maxfail",
            "--junit", "--durations", "--tb", "--html", "--report-log", "--maxprocesses", "--no-cov")  # fmt: skip
_UNUSABLE = 2
"""Exit code of `deinplace` where a program cannot serve as a proof."""


def mend(config: pytest.Config, tests: Sequence[str]) -> Iterator[str]:
    """Mend the faults that these tests met, all at once, else test by test; lines to report."""
    code, text = _fix(config, tests)
    if code == _UNUSABLE and len(tests) > 1:
        yield "the tests together cannot prove a rewrite; trying each of them alone"
        for name in tests:
            yield f"{name}:"
            yield from _fix(config, [name])[1]
        return
    yield from text


def command(config: pytest.Config, tests: Sequence[str]) -> tuple[str, ...]:
    """The pytest command that runs these tests, in one process and without what only shapes its report."""
    start = (sys.executable, "-m", "pytest") if _as_module() else (_script(),)
    alone = ("-n0",) if config.pluginmanager.hasplugin("xdist") else ()
    return (*start, *kept(config.invocation_params.args, config.args), *alone, *tests)


def kept(arguments: Sequence[object], paths: Sequence[str]) -> list[str]:
    """Of a run's arguments those that tests may depend on: no paths, none that select tests or shape the report."""
    out: list[str] = []
    rest = iter(map(str, arguments))
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        elif word in paths or word.startswith(_DROPPED):
            continue
        else:
            out.append(word)
    return out


def _fix(config: pytest.Config, tests: Sequence[str]) -> tuple[int, list[str]]:
    root = str(config.rootpath)
    program = shlex.join(command(config, tests))
    words = [sys.executable, "-m", "deinplace", "fix", ".", "--run", program, "--python", sys.executable]
    environment = {**os.environ, "NO_COLOR": "1", "PYTEST_ADDOPTS": os.environ.get("PYTEST_ADDOPTS", "")}
    done = subprocess.run(
        [*words, "--verify", "require"], cwd=root, env=environment, text=True, check=False,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    # an error's last line says what was wrong; what comes before it is the tests' own output
    text = done.stdout if done.returncode != _UNUSABLE else "\n".join(done.stderr.rstrip().splitlines()[-1:])
    return done.returncode, text.rstrip("\n").splitlines()


def _as_module() -> bool:
    """True for `python -m pytest`, which can import from the working folder; and where there is no script."""
    started = sys.orig_argv
    return "-m" in started[:4] or not Path(_script()).is_file()


def _script() -> str:
    return str(Path(sys.executable).with_name("pytest"))
