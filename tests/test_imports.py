"""Who may import whom, read off the source; and what a command loads, read off a real start."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import deinplace

PACKAGE = Path(deinplace.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def imported(path: Path, at_import_time: bool = False) -> Iterator[str]:
    """Names of the modules that a file imports; relative ones are none of ours to use."""
    tree = ast.parse(path.read_bytes())
    nodes: Iterator[ast.AST] = _top(tree) if at_import_time else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or part(path) == "probe", f"{path}: relative import"
            yield node.module or ""


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the module is imported; `if TYPE_CHECKING` does not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _top(child)


def uses(path: Path, package: str) -> bool:
    return any(name == package or name.startswith(package + ".") for name in imported(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_import_rules(path: Path) -> None:
    where = part(path)
    generator = where == "catalog" and path.name.startswith("generate")
    if where == "testing.py":
        loads = {name.split(".")[0] for name in imported(path, at_import_time=True)}
        assert "torch" not in loads, "users' tests import it where they call it"
    elif where != "probe" and not generator:
        assert not uses(path, "torch"), "only probe/ imports torch"
    if where == "probe":
        for name in imported(path):
            top = name.split(".")[0]
            ours = top == "deinplace" and not name.startswith("deinplace.probe")
            assert not ours, f"probe/ runs in the user's interpreter, which has no {name}"
            known = top in sys.stdlib_module_names or top in ("", "torch", "deinplace", "_deinplace_probe")
            assert known or top in {p.stem for p in MODULES if part(p) == "probe"} | {"sitecustomize"}, name
    if where in ("analysis", "catalog"):
        assert not uses(path, "libcst")
    if where not in ("cli", "report", "probe", "__main__.py") and not generator:
        calls = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], "only cli/ prints"
    if where not in ("cli", "__main__.py"):
        assert not uses(path, "typer")
        assert not uses(path, "rich")
        assert not uses(path, "deinplace.cli")


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) == "cli"], ids=lambda p: p.name)
def test_commands_load_the_heavy_parts_only_when_they_run(path: Path) -> None:
    heavy = ("libcst", "rich", "pathspec", "platformdirs", "deinplace.verify", "deinplace.rules", "deinplace.rewrite")
    for name in imported(path, at_import_time=True):
        assert not name.startswith(heavy), name


def loaded(tmp_path: Path, *arguments: str) -> set[str]:
    """Top-level modules in a process after `deinplace` ran there."""
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: open('loaded', 'w').write(' '.join(m.split('.')[0] for m in sys.modules)))\n"
        "from deinplace.cli import main\nmain()\n"
    )
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    return set((tmp_path / "loaded").read_text().split())


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("fix", "--help"), ("fix", "nope.py"), ("bogus",)])
def test_small_commands_load_little(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert not loaded(tmp_path, *arguments) & {"torch", "numpy", "libcst", "rich"}


@pytest.mark.parametrize(
    "arguments", [("check", "a.py"), ("fix", "--diff", "--no-harness", "a.py"), ("rules",), ("explain", "DIP102")]
)
def test_static_commands_never_load_torch(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "a.py").write_text("import torch\n\n\ndef f(x, y):\n    x = torch.relu(x)\n    x += y\n    return x\n")
    assert "torch" not in loaded(tmp_path, *arguments)


def test_version_starts_as_fast_as_typer(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "def best(*command):\n"
        "    times = []\n"
        "    for _ in range(5):\n"
        "        start = time.perf_counter()\n"
        "        subprocess.run([sys.executable, *command], check=True, capture_output=True)\n"
        "        times.append(time.perf_counter() - start)\n"
        "    return min(times)\n"
        "print(best('-m', 'deinplace', '--version') / best('-c', 'import typer'))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(result.stdout) <= 1.5
