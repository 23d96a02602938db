"""Lets Python compile patched sources in place of the files on disk, the main script included."""

from __future__ import annotations

import ast
import importlib.machinery
import linecache
import os
import sys
from collections.abc import Callable, Mapping
from importlib.abc import Loader
from types import CodeType
from typing import Any

from . import frames

RECORDER = "_deinplace_record_call"
"""Name in `builtins` of the decorator that recorded functions get."""


class Overlay:
    """Patched texts by real path, and the qualified names of the functions to record by real path."""

    def __init__(self, texts: Mapping[str, str], functions: Mapping[str, list[str]]) -> None:
        self.texts = {os.path.realpath(path): copy for path, copy in texts.items()}
        self.functions = {os.path.realpath(path): set(names) for path, names in functions.items()}

    def covers(self, path: str) -> bool:
        """True where the file is to be compiled by us."""
        real = frames.real(path)
        return real in self.texts or real in self.functions

    def code(self, path: str, make: Callable[[Any, str], CodeType] | None = None) -> CodeType:
        """Compile the patched source of `path`, with the recording decorators; `make` is a loader's own compiler."""
        make = make or _compiled
        real = frames.real(path)
        with open(self.texts.get(real, path), "rb") as file:
            data = file.read()
        if real in self.texts:
            self._show(path, data)
        names = self.functions.get(real)
        if not names:
            return make(data, path)
        tree = ast.parse(data, path)
        _decorate(tree, names, real)
        return make(tree, path)

    def tree(self, path: str, text: str) -> ast.Module:
        """The tree of a text that stands for `path`, with the recording decorators."""
        tree = ast.parse(text, path)
        _decorate(tree, self.functions.get(frames.real(path), set()), frames.real(path))
        return tree

    @staticmethod
    def _show(path: str, data: bytes) -> None:
        """Make tracebacks and `inspect.getsource` show the patched text."""
        import io
        import tokenize

        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
        for name in {path, frames.real(path)}:
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)

    def install(self) -> None:
        """Hook into the import system of this process."""
        if not self.texts and not self.functions:
            return
        plain = importlib.machinery.SourceFileLoader.get_code
        overlay = self

        def get_code(self: Any, fullname: str) -> CodeType | None:
            path = self.get_filename(fullname)
            return overlay.code(path, self.source_to_code) if overlay.covers(path) else plain(self, fullname)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
        self._install_in_runpy()
        script = main_script(sys.orig_argv)
        if script is not None and os.path.isfile(script) and self.covers(script):
            sys.path_hooks.insert(0, _MainHook(self, script))

    def _install_in_runpy(self) -> None:
        """`runpy.run_path` compiles files itself; processes that multiprocessing spawns load their main script so."""
        import runpy

        plain = runpy._get_code_from_file  # type: ignore[attr-defined]

        def _get_code_from_file(*args: str) -> Any:
            path = args[-1]  # older versions pass the run's name first, and want the path back
            if not self.covers(path):
                return plain(*args)
            return self.code(path) if len(args) == 1 else (self.code(path), path)

        runpy._get_code_from_file = _get_code_from_file  # type: ignore[attr-defined]


def _compiled(source: Any, path: str) -> CodeType:
    return compile(source, path, "exec", dont_inherit=True)


def main_script(argv: list[str]) -> str | None:
    """The script that `python [options] SCRIPT` will run; None for -c, -m, standard input."""
    rest = iter(argv[1:])
    for word in rest:
        if word == "-" or word in ("-c", "-m"):
            return None
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif word.startswith("-"):
            if not word.startswith("--") and any(flag in word for flag in "cm"):
                return None
        else:
            return word
    return None


class _MainHook:
    """A path hook: Python asks these whether the script it is about to run can be imported from."""

    def __init__(self, overlay: Overlay, script: str) -> None:
        self.overlay, self.script = overlay, script

    def __call__(self, entry: str) -> _MainFinder:
        if os.path.abspath(entry) != os.path.abspath(self.script):
            raise ImportError
        return _MainFinder(self.overlay, entry)  # Python 3.9 and later make the script's path absolute


class _MainFinder:
    def __init__(self, overlay: Overlay, script: str) -> None:
        self.overlay, self.script = overlay, script

    def find_spec(self, name: str, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "__main__":
            return None
        return importlib.machinery.ModuleSpec(name, _MainLoader(self.overlay, self.script), origin=self.script)


class _MainLoader(Loader):
    """Gives `runpy` the patched script, and makes its namespace look as `python SCRIPT` leaves it."""

    def __init__(self, overlay: Overlay, script: str) -> None:
        self.overlay, self.script = overlay, script

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(self.get_code("__main__"), module.__dict__)

    def get_code(self, name: str) -> CodeType:
        self.enter()
        return self.overlay.code(self.script)

    def is_package(self, name: str) -> bool:
        return False

    def enter(self) -> None:
        """Undo what running through an importer changed: sys.path[0], and a module's spec."""
        if sys.path and sys.path[0] == self.script:
            if sys.flags.safe_path:
                del sys.path[0]
            else:
                sys.path[0] = os.path.dirname(os.path.realpath(self.script))
        import runpy

        plain = runpy._run_code  # type: ignore[attr-defined]
        script, word = self.script, main_script(sys.orig_argv) or self.script

        def _run_code(code: Any, run_globals: Any, *rest: Any, **kwargs: Any) -> Any:
            runpy._run_code = plain  # type: ignore[attr-defined]
            sys.argv[0] = word
            run_globals.update(
                __name__="__main__",
                __file__=script,
                __cached__=None,
                __doc__=None,
                __loader__=importlib.machinery.SourceFileLoader("__main__", script),
                __package__=None,
                __spec__=None,
            )
            exec(code, run_globals)
            return run_globals

        runpy._run_code = _run_code  # type: ignore[attr-defined]


def _decorate(tree: ast.Module, names: set[str], path: str) -> None:
    """Add the recording decorator, innermost, to the functions called `names`."""

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                name = prefix + child.name
                if name in names and not _yields(child):
                    child.decorator_list.append(_decorator(path, name, child))
                walk(child, f"{name}.<locals>.")
            elif isinstance(child, ast.AsyncFunctionDef | ast.ClassDef):
                mark = ".<locals>." if isinstance(child, ast.AsyncFunctionDef) else "."
                walk(child, prefix + child.name + mark)
            else:
                walk(child, prefix)

    walk(tree, "")


def _decorator(path: str, name: str, at: ast.FunctionDef) -> ast.expr:
    where = at.decorator_list[0] if at.decorator_list else at
    call = ast.parse(f"__import__('builtins').{RECORDER}({path!r}, {name!r})", mode="eval").body
    for node in ast.walk(call):
        if isinstance(node, ast.expr):
            node.lineno = node.end_lineno = where.lineno
            node.col_offset = node.end_col_offset = where.col_offset
    return call


def _yields(function: ast.FunctionDef) -> bool:
    """True for generators, whose body runs after the call has returned."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(node))
    return False
