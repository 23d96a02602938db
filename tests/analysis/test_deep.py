"""What is nested deeply, long, or leads in circles: the analysis ends, says so, and goes on with the other files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deinplace.analysis.census import survey
from deinplace.analysis.check import check
from deinplace.files import load

GOOD = "import torch\nw = torch.ones(3, requires_grad=True)\ny = torch.exp(w)\ny += 1\ny.sum().backward()\n"
HEAD = "import torch\nfrom torch import nn\n\n\ndef f(x: torch.Tensor, k):\n    y = torch.exp(x)\n"
END = "    return y\n"


def ifs(depth: int) -> str:
    lines = [f"{'    ' * (n + 1)}if k > {n}:\n" for n in range(depth)]
    return HEAD + "".join(lines) + "    " * (depth + 1) + "y += 1\n" + END


DEEP = {
    "parentheses-150": HEAD + "    y += " + "(" * 150 + "1" + ")" * 150 + "\n" + END,
    "ifs-90": ifs(90),
    "sum-of-900": HEAD + "    y += " + "+".join(["x"] * 900) + "\n" + END,
    "elif-1200": HEAD + "    if k == 0:\n        y += 1\n" + "".join(
        f"    elif k == {n}:\n        y += {n}\n" for n in range(1, 1200)
    ) + END,
    "calls-700": HEAD + "    y.add_(1)" + ".add_(1)" * 700 + "\n" + END,
    "attributes-1900": HEAD + "    y" + ".a" * 1900 + " += 1\n" + END,
    "subscripts-1900": HEAD + "    y" + "[0]" * 1900 + " += 1\n" + END,
    "conditionals-900": HEAD + "    y += " + "".join(f"{n} if k is {n} else " for n in range(900)) + "0\n" + END,
    "functions-95": "import torch\n" + "".join(" " * n + f"def f{n}(x):\n" for n in range(95)) + " " * 95 + "x += 1\n",
    "lambdas-900": "import torch\nf = " + "lambda x: " * 900 + "x\nf += 1\n",
    "classes-in-a-circle": "import torch\nclass A(B):\n    def f(self, x):\n        x += 1\nclass B(A):\n    pass\n",
    "a-class-of-itself": "import torch\nclass A:\n    pass\nclass A(A):\n    def f(self, x):\n        x += 1\n",
}  # fmt: skip
BEYOND = {
    "parentheses-10000": "import torch\nx = " + "(" * 10_000 + "1" + ")" * 10_000 + "\nx += 1\n",
    "ifs-500": "import torch\n" + "".join(" " * n + "if torch:\n" for n in range(500)) + " " * 500 + "torch += 1\n",
}  # fmt: skip


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_what_is_nested_deeply_neither_stops_nor_hides_the_rest(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.py").write_text(text)
    (tmp_path / "good.py").write_text(GOOD)
    sources, problems = load([str(tmp_path / "deep.py"), str(tmp_path / "good.py")])
    # Where Python's own parser gives up (how deep differs from version to version), the file gets a reason.
    assert len(sources) + len(problems) == 2
    assert all(p.path.endswith("deep.py") and p.code == "unparsable" for p in problems)
    for whole in (False, True):
        found = [f for f in check(sources, all_sites=whole) if f.path.endswith("good.py")]
        assert [f.severity for f in found] == ["error"]
    assert any(c.path.endswith("good.py") for c in survey(sources))


@pytest.mark.parametrize("text", BEYOND.values(), ids=BEYOND.keys())
def test_what_no_parser_takes_gets_a_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.py").write_text(text)
    (tmp_path / "good.py").write_text(GOOD)
    sources, problems = load([str(tmp_path / "deep.py"), str(tmp_path / "good.py")])
    assert [Path(path).name for path in sources] == ["good.py"]
    assert [p.code in ("syntax", "unparsable") and "left as it is" in p.message for p in problems] == [True]


def test_fifty_thousand_lines(tmp_path: Path) -> None:
    body = "".join(f"    z{n} = y * {n}\n" for n in range(2_000))
    (tmp_path / "long.py").write_text(
        HEAD + body + "    y += 1\n" + END + "".join(f"v{n} = {n}\n" for n in range(25_000))
    )
    sources, problems = load([str(tmp_path / "long.py")])
    assert not problems
    begun = time.process_time()
    check(sources)
    assert time.process_time() - begun < 15


def test_choices_among_aliases_do_not_double_without_end(tmp_path: Path) -> None:
    """`reshape` may copy or not: every further one doubles what memory can look like."""
    text = HEAD + "    y = y.reshape(-1)\n    y.add_(1)\n" * 40 + END
    (tmp_path / "many.py").write_text(text)
    sources, _ = load([str(tmp_path / "many.py")])
    begun = time.process_time()
    check(sources, all_sites=True)
    assert time.process_time() - begun < 10
    kinds = {belief for belief, _ in survey(sources).values()}
    assert kinds <= {"tensor", "likely"}


def test_a_file_that_vanishes_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    sources, problems = load([str(tmp_path / "gone.py"), str(tmp_path / "good.py")])
    assert [Path(path).name for path in sources] == ["good.py"]
    assert [(Path(p.path).name, p.code) for p in problems] == [("gone.py", "unreadable")]
