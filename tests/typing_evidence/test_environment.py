"""An environment is read off its folders; nothing in it is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deinplace.typing_evidence.environment import environment


def venv(top: Path, system: bool = False, home: Path | None = None) -> Path:
    """A virtual environment as `python -m venv` lays it out, whose interpreter would betray that it was started."""
    packages = top / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "evil.pth").write_text("import nothing_that_exists\n")
    python = top / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\ntouch {top / 'started'}\n")
    python.chmod(0o755)
    lines = [
        f"home = {home or '/usr/bin'}",
        "version = 3.12.4",
        f"include-system-site-packages = {str(system).lower()}",
    ]
    (top / "pyvenv.cfg").write_text("\n".join(lines))
    return python


def torch_in(folder: Path) -> None:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()


def test_a_virtual_environment(tmp_path: Path) -> None:
    python = venv(tmp_path)
    found = environment(str(python))
    assert (found.version, found.packages, found.has_torch) == (
        "3.12", (tmp_path / "lib/python3.12/site-packages",), False,
    )  # fmt: skip
    torch_in(tmp_path / "lib/python3.12/site-packages")
    assert environment(str(python)).has_torch
    assert not (tmp_path / "started").exists()


def test_a_link_to_an_interpreter_stays_in_its_environment(tmp_path: Path) -> None:
    venv(tmp_path / "e")
    python = tmp_path / "e" / "bin" / "python3"
    python.symlink_to(os.path.realpath(sys.executable))
    assert environment(str(python)).packages == (tmp_path / "e" / "lib/python3.12/site-packages",)


def test_packages_of_the_system_where_the_environment_includes_them(tmp_path: Path) -> None:
    system = tmp_path / "system"
    torch_in(system / "lib" / "python3" / "dist-packages")
    (system / "bin").mkdir()
    assert environment(str(venv(tmp_path / "a", system=True, home=system / "bin"))).has_torch
    assert not environment(str(venv(tmp_path / "b", system=False, home=system / "bin"))).has_torch


def test_editable_installs_count(tmp_path: Path) -> None:
    python = venv(tmp_path / "e")
    torch_in(tmp_path / "src")
    (tmp_path / "e" / "lib/python3.12/site-packages" / "x.pth").write_text(f"# it\n{tmp_path / 'src'}\n/not/there\n")
    assert environment(str(python)).has_torch


@pytest.mark.parametrize("name", ["/nowhere/python", "no-such-python", ""])
def test_an_interpreter_that_is_not_there(name: str) -> None:
    assert not environment(name).has_torch


def test_the_interpreter_that_runs_us() -> None:
    found = environment(sys.executable)
    assert found.has_torch
    assert found.version == f"{sys.version_info[0]}.{sys.version_info[1]}"
