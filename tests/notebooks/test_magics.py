"""What is Python in a cell stays where it stands; what is IPython gets a stand-in, and the way back is exact."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deinplace.notebooks.magics import mask
from deinplace.probe import cells

PLAIN = [
    pytest.param("x = (a\n     % b)\n", id="a percent sign in brackets continues an expression"),
    pytest.param("s = '''\n%foo\n!ls\n'''\n", id="a string over several lines"),
    pytest.param("y = a \\\n  % b\n", id="a backslash goes on"),
    pytest.param("x %= 3\ny = x != 3\nz = x == y\n", id="operators with the same signs"),
    pytest.param("print('what?')  # really?\n", id="question marks in strings and comments"),
    pytest.param("d = {'a': [1,\n  2]}\n", id="brackets over several lines"),
    pytest.param("x = y  # a \\\nz = 1\n", id="a backslash in a comment"),
    pytest.param("f(a=b)[c == d]\n", id="keyword arguments"),
    pytest.param("", id="nothing"),
    pytest.param('x = \'a\' \'b\'\r\ny = """q"""\r\n', id="CRLF"),
]
HELD = [
    pytest.param("%matplotlib inline\nx = 1\n", {2: "x = 1"}, id="line magic"),
    pytest.param("for i in y:\n    %time x += i\n    !echo {i}\n", {2: "    0    ;x += i"}, id="inside a block"),
    pytest.param("!pip install \\\n  torch\ny = 2\n", {3: "y = 2"}, id="a shell line that goes on"),
    pytest.param("foo?\n?foo\nfoo??\nx = 1", {4: "x = 1"}, id="help"),
    pytest.param("%%time\nx += 1\n", {2: "x += 1"}, id="a cell magic around Python"),
    pytest.param("%%capture out\nx += 1\n", {2: "x += 1"}, id="capture"),
    pytest.param("%%bash\nls\nx += 1\n", {}, id="a cell magic around something else"),
    pytest.param("%time for i in x: y()\nz = 1", {2: "z = 1"}, id="a compound statement cannot follow a semicolon"),
    pytest.param("x = !ls *.pt\ny = x", {2: "y = x"}, id="shell output as a value"),
    pytest.param("a = b['k'] = %timeit -o f(x)", {}, id="a magic as a value"),
    pytest.param("%cd it's \\ here\n", {}, id="quotes and backslashes"),
]


@pytest.mark.parametrize("source", PLAIN)
def test_python_is_left_alone(source: str) -> None:
    assert mask(source).text == source


@pytest.mark.parametrize(("source", "kept"), HELD)
def test_what_is_no_python_is_held(source: str, kept: dict[int, str]) -> None:
    masked = mask(source)
    ast.parse(masked.text)
    lines = masked.text.split("\n")
    assert len(lines) == len(source.split("\n"))
    assert {number: lines[number - 1] for number in kept} == kept
    assert cells.restored(masked.text) == source
    assert masked.python == (not source.startswith("%%bash"))


LINE_END = re.compile(r"\r\n|\r|\n")


@example(["\r", "%", "%"])
@example(["a", "= !", "(", "\n", "a"])
@example(["a", "= !", "b\\\n", "c"])
@given(
    st.lists(st.sampled_from([*"ab=%!?#'\"()[]{}\\\n\r\t ;,", "\n%time ", "\n!", "\n%%x", "= !", "'''"]), max_size=30)
)
def test_any_cell_comes_back(parts: list[str]) -> None:
    source = "".join(parts)
    masked = mask(source)
    # as Python counts them: a stand-in spells a lone carriage return out, and gives its line back behind it
    assert len(LINE_END.findall(masked.text)) == len(LINE_END.findall(source))
    assert cells.restored(masked.text) == source


def test_a_notebook_runs_where_ipython_is_missing() -> None:
    code = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "IPython" else real(name)
from deinplace.probe import cells, shell
names = {"folder": "."}
magic = shell.install(names)
import IPython
from IPython.display import HTML, clear_output, display
from IPython.core.display import Image
clear_output(wait=True)
display(HTML("x"), [1])
assert get_ipython() is IPython.get_ipython()
assert get_ipython().run_line_magic("time", "1 + 1") == 2
assert "google.colab" not in str(get_ipython())
with get_ipython().anything.at_all():
    pass
assert magic(cells.HOLD + "!echo {folder} $folder").s == ". ."
assert magic(cells.HOLD + "!exit 1", True) is None
names |= {"magic": magic, "HOLD": cells.HOLD}
exec("magic(HOLD + '%time for i in range(3): total = i', True)", names)
assert names["total"] == 2
magic(cells.HOLD + "%%capture out --no-stderr", True)
names["out"].show()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\n[1]\n"), done
