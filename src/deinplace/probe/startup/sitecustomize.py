"""Start-up hook: found first on PYTHONPATH, it attaches the probe and then lets an existing sitecustomize run."""

import importlib
import importlib.util
import os
import sys


def _chain(here: str) -> None:
    """Import the sitecustomize that this one hides, if there is one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if mine is not None:
            sys.modules["sitecustomize"] = mine


def _attach(here: str) -> None:
    """Load the probe package under a private name and let it prepare this process."""
    folder = os.path.dirname(here)
    spec = importlib.util.spec_from_file_location(
        "_deinplace_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    sys.modules["_deinplace_probe"] = package
    spec.loader.exec_module(package)
    importlib.import_module("_deinplace_probe.attach").prepare(os.environ["DEINPLACE_PROBE"])


_here = os.path.dirname(os.path.abspath(__file__))
if os.environ.get("DEINPLACE_PROBE"):
    _attach(_here)
_chain(_here)
