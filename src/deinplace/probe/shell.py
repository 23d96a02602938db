"""Stands in for IPython while a notebook runs outside of it: its magics, `get_ipython` and `display`.

Shell lines (`!`) run only where their output is used: a proof runs the notebook many times, and installs nothing.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import cells


class Lines(list[str]):
    """What `x = !cmd` gives: a list of lines that knows itself as one text."""

    @property
    def n(self) -> str:
        """The lines with line feeds between them."""
        return "\n".join(self)

    @property
    def s(self) -> str:
        """The lines with spaces between them."""
        return " ".join(self)

    @property
    def l(self) -> list[str]:  # noqa: E743  IPython's name for it
        """The lines."""
        return [*self]


class Captured:
    """What `%%capture name` leaves behind; nothing is captured."""

    stdout = stderr = ""
    outputs: tuple[object, ...] = ()

    def show(self) -> None:
        """Show nothing."""

    __call__ = show


class Anything:
    """An object of IPython's that takes whatever is done to it, and does nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> Anything:
        """Itself again."""
        return self

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        return ""


class Shell(Anything):
    """What `get_ipython()` gives."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__()
        self.user_ns = self.user_global_ns = names

    def __repr__(self) -> str:
        return "<notebook run by deinplace>"

    def run_line_magic(self, name: str, line: str = "", *_: object) -> Any:
        """A magic called by its name."""
        return magic(self.user_ns, self.user_ns, f"%{name} {line}")

    magic = run_line_magic

    def run_cell_magic(self, name: str, line: str, cell: str) -> Any:
        """Cell magics called by name do nothing, but for those that only look at what the cell does."""
        if name in ("time", "capture", "prun"):
            exec(cell, self.user_ns)

    def getoutput(self, command: str, *_: object, **__: object) -> Lines:
        """Lines that a command prints."""
        return _output(command, self.user_ns)


def install(names: dict[str, Any]) -> Any:
    """Put `get_ipython` and `display` where a notebook looks for them; the function that runs magics."""
    shell = Shell(names)
    builtins.get_ipython = lambda: shell  # type: ignore[attr-defined]
    builtins.display = _display  # type: ignore[attr-defined]
    if importlib.util.find_spec("IPython") is None:
        _pretend(shell)
    else:
        from . import attach

        attach.after_import("IPython", lambda module: setattr(module, "get_ipython", lambda: shell))

    def __deinplace_magic__(text: str, alone: bool = False) -> Any:
        original = cells.held(text) or ""
        if alone and original.startswith("!"):
            return None
        local = sys._getframe(1).f_locals
        return magic(names, names if local is names else {**names, **local}, original)

    return __deinplace_magic__


def calls(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of a cell with a call in the place of each stand-in for a magic."""
    return [_Calls().visit(node) for node in body]


class _Calls(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        value = node.value
        if isinstance(value, ast.Constant) and cells.held(value.value) is not None:
            alone = ast.Constant(True)
            call = ast.Call(ast.Name(cells.CALL, ast.Load()), [value, alone], [])
            for new in (call, call.func, alone):
                ast.copy_location(new, value)
            return ast.copy_location(ast.Expr(call), node)
        self.generic_visit(node)
        return node


def magic(names: dict[str, Any], local: dict[str, Any], text: str) -> Any:
    """Do what a line of IPython's asks for, as far as the program that follows can tell the difference.

    `local` is what the line sees: `names`, and those of the function that it stands in.
    """
    if text.startswith("!"):
        return _output(text.lstrip("!"), local)
    match = re.match(r"\s*(%{1,2})(\w+)\s*(.*)", text, re.DOTALL)
    if match is None:
        return None
    sign, name, line = match.groups()
    if sign == "%%":
        if name == "capture" and (words := [w for w in line.split() if not w.startswith("-")]):
            names[words[0]] = Captured()
        return None
    known = _MAGICS.get(name)
    return known(names, local, line.strip()) if known is not None else None


def _time(names: dict[str, Any], local: dict[str, Any], line: str) -> Any:
    try:
        return eval(line, names, local)
    except SyntaxError:
        exec(line, names, local)
        return None


def _cd(names: dict[str, Any], local: dict[str, Any], line: str) -> None:
    folder = os.path.expanduser(_expanded(line.strip("\"'"), local) or "~")
    if os.path.isdir(folder):
        os.chdir(folder)


def _env(names: dict[str, Any], local: dict[str, Any], line: str) -> Any:
    name, found, value = line.partition("=") if "=" in line else line.partition(" ")
    if found:
        os.environ[name.strip()] = _expanded(value.strip(), local)
        return None
    return os.environ.get(line) if line else dict(os.environ)


def _run(names: dict[str, Any], local: dict[str, Any], line: str) -> None:
    words = [word for word in _expanded(line, local).split() if word not in ("-i", "-n")]
    if words and words[0].endswith(".py"):
        kept, sys.argv = sys.argv, words
        try:
            names.update(runpy.run_path(words[0], run_name="__main__"))
        finally:
            sys.argv = kept


_MAGICS: dict[str, Callable[[dict[str, Any], dict[str, Any], str], Any]] = {
           "time": _time, "cd": _cd, "env": _env, "set_env": _env, "run": _run,
           "pwd": lambda names, local, line: os.getcwd(),
           "sx": lambda names, local, line: _output(line, local),
           "system": lambda names, local, line: _output(line, local)}  # fmt: skip


def _output(command: str, names: dict[str, Any]) -> Lines:
    done = subprocess.run(
        _expanded(command, names), shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
    )
    return Lines(done.stdout.splitlines())


def _expanded(text: str, names: dict[str, Any]) -> str:
    """`{expression}` and `$name` as IPython fills them in, where they mean something."""

    def braced(match: re.Match[str]) -> str:
        try:
            return str(eval(match[1], dict(names)))
        except Exception:  # noqa: BLE001  IPython leaves what it cannot fill in as it is
            return match[0]

    text = re.sub(r"(?<!\{)\{([^{}]+)\}(?!\})", braced, text)
    return re.sub(r"(?<![\\$])\$([A-Za-z_]\w*)", lambda m: str(names[m[1]]) if m[1] in names else m[0], text)


def _display(*values: object, **_: object) -> None:
    for value in values:
        print(repr(value))


class _Pretended(ModuleType):
    """A module of IPython's that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


def _pretend(shell: Shell) -> None:
    """Let `from IPython.display import clear_output, HTML` work where IPython is not installed."""
    for name in ("IPython", "IPython.display", "IPython.core", "IPython.core.display"):
        module = _Pretended(name)
        module.__path__ = []
        module.get_ipython, module.display = (lambda: shell), _display  # type: ignore[attr-defined]
        sys.modules[name] = module
        if "." in name:
            parent, child = name.rsplit(".", 1)
            if child != "display" or parent != "IPython":
                setattr(sys.modules[parent], child, module)
    sys.modules["IPython"].display = sys.modules["IPython.display"]  # type: ignore[attr-defined]
