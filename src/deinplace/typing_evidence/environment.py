"""The Python environment that the checkers look imports up in, read off its folders: nothing in it is started."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Environment:
    """An interpreter, its version (`3.12`, empty where unknown) and the folders of its packages."""

    python: str
    version: str
    packages: tuple[Path, ...]

    @property
    def has_torch(self) -> bool:
        """True where torch lies in one of the folders."""
        return any((folder / "torch" / "__init__.py").is_file() for folder in self.packages)


def environment(python: str) -> Environment:
    """The environment of an interpreter, whether that is a virtual one or the system's."""
    given = Path(os.path.abspath(shutil.which(python) or python))  # noqa: PTH100 - a link stays one: it names its venv
    prefix = given.parent.parent
    settings = prefix / "pyvenv.cfg"
    folders = list(_folders(prefix))
    version = _version(folders)
    if settings.is_file():
        known = _read(settings)
        version = version or ".".join(known.get("version", known.get("version_info", "")).split(".")[:2])
        if known.get("include-system-site-packages", "").lower() == "true" and known.get("home"):
            folders += _folders(Path(known["home"]).parent)
    elif given.is_file():
        folders += _folders(given.resolve().parent.parent)
    if os.path.realpath(given) == os.path.realpath(sys.executable):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = [f for f in dict.fromkeys(folders) if f.is_dir()]
    return Environment(str(given), version, tuple(dict.fromkeys([*found, *_editable(found)])))


def _folders(prefix: Path) -> list[Path]:
    """Folders of packages below a prefix, on any platform."""
    found = [prefix / "Lib" / "site-packages"]
    for base in (prefix, prefix / "local"):
        for kind in ("site-packages", "dist-packages"):
            found += sorted(base.glob(f"lib*/python3*/{kind}"))
    return [f for f in found if f.is_dir()]


def _version(folders: list[Path]) -> str:
    names = {m[1] for f in folders if (m := re.fullmatch(r"python(3\.\d+)", f.parent.name))}
    return names.pop() if len(names) == 1 else ""


def _read(path: Path) -> dict[str, str]:
    """The settings of a pyvenv.cfg."""
    lines = path.read_text("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _editable(folders: list[Path]) -> list[Path]:
    """Folders that `.pth` files add; lines of code in them are not run."""
    found = []
    for folder in folders:
        for file in sorted(folder.glob("*.pth")):
            for line in file.read_text("utf-8", "replace").splitlines():
                if line.strip() and not line.startswith(("#", "import ", "import\t")):
                    found.append(folder / line.strip())
    return [f for f in found if f.is_dir()]
