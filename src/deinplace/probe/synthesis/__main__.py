"""`python .../synthesis REQUEST`: loads the probe's package under a private name, and serves a request."""

import importlib
import importlib.util
import os
import sys


def _main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.dirname(here)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) not in (here, folder)]
    spec = importlib.util.spec_from_file_location(
        "_deinplace_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    sys.modules["_deinplace_probe"] = package
    spec.loader.exec_module(package)
    importlib.import_module("_deinplace_probe.synthesis.server").main(sys.argv[1])


if __name__ == "__main__":
    _main()
