"""A large project: only what shows most is looked at, and what cannot be proved there is not tried."""

from __future__ import annotations

from deinplace.analysis import run
from deinplace.analysis.index import MANY, Index
from deinplace.analysis.run import analyse, make
from deinplace.analysis.source import Source
from deinplace.analysis.terms import Terms
from deinplace.verify.everywhere import surveyed

HEAD = "import torch\nimport torch.nn as nn\n\n\n"
BASE = (
    HEAD
    + "class Base(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.n = n\n"
    + "".join(f"        if n > {k}:\n            self.n = n + {k}\n" for k in range(run.CONSTRUCTOR_STEPS_OF_MANY // 4))
)
DERIVED = (
    HEAD
    + "from base import Base\n\n\n"
    + "".join(
        f"class D{k}(Base):\n    def __init__(self, n):\n        super().__init__(n)\n\n"
        f"    def grown(self, x):\n        y = torch.ones(3)\n        y += 1.0\n        return y * x\n\n\n"
        for k in range(4)
    )
    + "class Free(nn.Module):\n    def grown(self, x):\n        y = torch.ones(3)\n        y += 1.0\n"
    + "        return y * x\n"
)


def project(**texts: str) -> dict[str, Source]:
    """A project with these files, and so many others that it counts as large."""
    texts |= {f"other{n}": "import torch\n" for n in range(MANY)}
    return {f"/p/{name}.py": Source.parse(f"/p/{name}.py", text.encode()) for name, text in texts.items()}


def test_programs_are_those_that_do_something_and_those_that_hold_what_is_wanted() -> None:
    sources = project(
        script="import torch\nfrom library import f\n\nprint(f(torch.ones(3)))\n",
        library="import torch\n\n\ndef f(x):\n    return x + 1\n",
        quiet="import torch\n\n\ndef g(x):\n    return x + 1\n",
        wanted="import torch\n\n\ndef h(x):\n    y = torch.exp(x)\n    y += 1\n    return y\n",
    )
    unit = ("/p/wanted.py", "h")
    report = analyse(sources, lenient=True, wanted={unit}, traced=False)
    assert report.ran.keys() == {("/p/script.py", "<module>"), ("/p/wanted.py", "<module>"), unit}
    assert ("/p/quiet.py", "<module>") in analyse(sources, wanted={unit}).ran  # what is proved is proved for all
    assert ("/p/library.py", "f") in report.ran["/p/script.py", "<module>"]


def test_a_constructor_that_takes_too_long_is_not_begun_for_every_class_that_inherits_it() -> None:
    sources = project(base=BASE, derived=DERIVED)
    index = Index(sources)
    machine = make(index, Terms(), False)
    wanted = {("/p/derived.py", f"{name}.grown"): 8_000 for name in ("D0", "D1", "D2", "D3", "Free")}
    report = analyse(sources, wanted=wanted, every=True, index=index, machine=machine, quiet=True)
    assert machine.endless == {("/p/base.py", "Base.__init__")}
    assert {name for _, name in report.incomplete} == {f"D{k}.grown" for k in range(4)}
    found, _ = surveyed(sources, [])
    assert [site.function for site, _, _ in found] == ["Free.grown"]


def test_a_rewrite_that_may_change_a_dtype_is_not_tried() -> None:
    text = (
        HEAD
        + "def f(x, y):\n    z = torch.ones(3)\n    z *= y\n    w = torch.ones(3)\n    w *= 2.0\n    return z + w\n"
    )
    found, reasons = surveyed(project(library=text), [])
    assert [site.target for site, _, _ in found] == ["w"]
    assert reasons["a new tensor may have another dtype or shape"] == 1
