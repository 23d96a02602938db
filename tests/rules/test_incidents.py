"""What a run showed, and which rewrites the rules offer for it."""

from __future__ import annotations

import ast

import pytest

from deinplace.analysis.source import Source, span_of
from deinplace.model import Conflict, Event, ModuleInfo, Place, Raised, Rewrite
from deinplace.rewrite.apply import apply, check
from deinplace.rules import candidates
from deinplace.rules.base import Incident, Project

PATH, OTHER, LIBRARY = "/tree/a.py", "/tree/b.py", "/lib/c.py"


def file(text: str, path: str = PATH) -> Source:
    return Source.parse(path, text.encode())


def place(source: Source, code: str, occurrence: int = 0) -> Place:
    """The place of the node that is spelled `code`."""
    found = [n for n in ast.walk(source.tree) if hasattr(n, "lineno") and source.segment(n) == code]
    node = sorted(found, key=lambda n: source.bounds(n))[occurrence]
    return Place(source.path, span_of(node), source.qualname(node))


def conflict(write: Event, save: Event | None = None) -> Incident:
    return Incident(Conflict("version", save or Event("ReluBackward0", ()), (write,), "ReluBackward0", ()))


def offers(incident: Incident, *sources: Source) -> list[tuple[Rewrite, dict[str, str]]]:
    """Each rewrite with the texts of the files that it changes; every result passes the checks."""
    by_path = {s.path: s for s in sources}
    found = []
    for _, rewrite in candidates(incident, Project(by_path)):
        texts = {}
        for path in {e.path for e in rewrite.edits}:
            texts[path] = apply(by_path[path], rewrite.edits)
            check(by_path[path], texts[path], rewrite.edits)
        found.append((rewrite, texts))
    return found


def texts(incident: Incident, *sources: Source) -> list[str]:
    return [t for _, changed in offers(incident, *sources) for t in changed.values()]


def test_other_names_of_the_tensor_are_rebound_too() -> None:
    source = file("d = b\nd *= 5\nprint(b)\n")
    incident = conflict(Event("aten::mul_", (place(source, "d *= 5"),), names=("b", "d")))
    assert texts(incident, source)[0] == "d = b\nd = b = d * 5\nprint(b)\n"


def test_names_that_nobody_reads_come_second() -> None:
    source = file("d = b\nd *= 5\nprint(d)\n")
    incident = conflict(Event("aten::mul_", (place(source, "d *= 5"),), names=("b", "d")))
    assert texts(incident, source)[:2] == ["d = b\nd = d * 5\nprint(d)\n", "d = b\nd = b = d * 5\nprint(d)\n"]


@pytest.mark.parametrize("shown", ["x.sub_(a)", "x.sub_(a).div_(b)"])
def test_any_link_of_a_chain_leads_to_the_whole_statement(shown: str) -> None:
    source = file("def f(x, a, b):\n    x.sub_(a).div_(b)\n    return x\n")
    op = "aten::sub_.Tensor" if shown == "x.sub_(a)" else "aten::div_.Tensor"
    incident = conflict(Event(op, (place(source, shown),)))
    assert texts(incident, source)[0] == "def f(x, a, b):\n    x = x.sub(a).div(b)\n    return x\n"


def test_a_write_inside_another_call_is_found_by_its_operator() -> None:
    source = file("def f(x):\n    y = g(x.mul_(2))\n    return y\n")
    incident = conflict(Event("aten::mul_.Tensor", (place(source, "x.mul_(2)"),)))
    assert texts(incident, source)[0] == "def f(x):\n    y = g(x.mul(2))\n    return y\n"


LOOP = "def f(x):\n    y = x.exp()\n    for i in range(3):\n"
LOOP += "        for j in range(2):\n            y[i, j] = 0\n    return y\n"


def test_one_clone_before_the_outermost_loop_comes_first() -> None:
    source = file(LOOP)
    found = texts(conflict(Event("aten::fill_.Scalar", (place(source, "y[i, j]"),))), source)
    assert found[0] == LOOP.replace("    for i", "    y = y.clone()\n    for i")
    assert found[1] == LOOP.replace("        for j", "        y = y.clone()\n        for j")
    assert found[2] == LOOP.replace("            y[i", "            y = y.clone()\n            y[i")


def test_no_clone_before_a_loop_that_binds_the_name() -> None:
    text = "def f(xs):\n    for x in xs:\n        y = x.exp()\n        y[0] = 0\n"
    source = file(text)
    found = texts(conflict(Event("aten::fill_.Scalar", (place(source, "y[0]"),))), source)
    assert found[0] == text.replace("        y[0]", "        y = y.clone()\n        y[0]")


def test_values_of_a_dict_are_written_back() -> None:
    text = "def f(out, s):\n    for v in out.values():\n        v /= s\n    return out\n"
    source = file(text)
    found = texts(conflict(Event("aten::div_.Tensor", (place(source, "v /= s"),))), source)
    assert found[0] == (
        "def f(out, s):\n    for key, v in out.items():\n        v = out[key] = v / s\n    return out\n"
    )
    assert (
        "def f(out, s):\n    out = {key: value.clone() for key, value in out.items()}\n"
        "    for v in out.values():\n        v /= s\n    return out\n"
    ) in found


def test_the_complex_part_belongs_to_the_whole_tensor() -> None:
    text = "def f(x):\n    x[..., 0].imag = 0.0\n    return x\n"
    source = file(text)
    found = texts(conflict(Event("aten::fill_.Scalar", (place(source, "x[..., 0].imag"),))), source)
    assert found[0] == text.replace("    x[", "    x = x.clone()\n    x[")


def test_an_alias_is_cloned_where_it_was_made() -> None:
    text = "def f(x):\n    y = x.detach()\n    y.clamp_(0)\n    return x, y\n"
    source = file(text)
    found = texts(conflict(Event("aten::clamp_", (place(source, "y.clamp_(0)"),))), source)
    assert text.replace("detach()", "detach().clone()") in found


def test_a_write_through_a_parameter_is_mended_at_the_call_in_another_file() -> None:
    helper = file("def add_to(h, t):\n    h += t\n", OTHER)
    caller = file("from b import add_to\n\n\ndef f(x, t):\n    h = x.exp()\n    add_to(h, t)\n    return h\n")
    stack = (place(helper, "h += t"), place(caller, "add_to(h, t)"))
    found = offers(conflict(Event("aten::add_.Tensor", stack)), helper, caller)
    wanted = (
        "from b import add_to\n\n\ndef f(x, t):\n    h = x.exp()\n    h = h.clone()\n    add_to(h, t)\n    return h\n"
    )
    rewrite = next(r for r, changed in found if changed == {PATH: wanted})
    assert rewrite.touches == ((PATH, "f"),)
    assert rewrite.line == 6


def test_the_saving_operation_gets_a_clone() -> None:
    text = "def f(self, v):\n    s = torch.dot(self.u, self.weight @ v)\n    return s\n"
    source = file(text)
    at = place(source, "torch.dot(self.u, self.weight @ v)")
    save = Event("DotBackward0", (at,), role="input", expressions=(place(source, "self.u").span,))
    found = texts(conflict(Event("aten::copy_", (Place(LIBRARY, at.span),)), save), source)
    assert found == [text.replace("self.u,", "self.u.clone(),")]


@pytest.mark.parametrize(
    ("before", "shown", "after"),
    [
        ("y = torch.sigmoid(x)\n", "torch.sigmoid(x)", "y = torch.sigmoid(x).clone()\n"),
        ("y = a ** b\n", "a ** b", "y = (a ** b).clone()\n"),
        ("y = (a ** b) + 1\n", "a ** b", "y = (a ** b).clone() + 1\n"),
        ("y = f(a ** b)\n", "a ** b", "y = f((a ** b).clone())\n"),
        ("y = self.act(x).mean()\n", "self.act(x)", "y = self.act(x).clone().mean()\n"),
    ],
)
def test_the_saved_result_is_cloned(before: str, shown: str, after: str) -> None:
    source = file(before)
    save = Event("SigmoidBackward0", (place(source, shown),), role="output")
    found = texts(conflict(Event("aten::copy_", (Place(LIBRARY, place(source, shown).span),)), save), source)
    assert found == [after]


NET = (
    "class Net(nn.Module):\n    def __init__(self):\n        self.act = nn.ReLU(inplace=True)\n\n"
    "    def forward(self, x):\n        self.act(x)\n        return x\n"
)


def test_a_flag_far_from_the_write_is_switched_off_and_bare_calls_are_bound() -> None:
    source = file("from torch import nn\n\n\n" + NET)
    built = place(source, "nn.ReLU(inplace=True)")
    module = ModuleInfo("ReLU", "act", True, (built,), (built,))
    incident = conflict(Event("aten::relu_", (place(source, "self.act(x)"),), module=module))
    after = source.text.replace("True", "False").replace("        self.act(x)", "        x = self.act(x)")
    assert texts(incident, source)[0] == after
    assert source.text.replace("        self.act(x)", "        x = self.act(x.clone())") in texts(incident, source)


def test_a_flag_set_later_is_switched_off_where_it_was_set() -> None:
    source = file("for m in net.modules():\n    m.inplace = True\ny = net(x)\n")
    module = ModuleInfo(
        "ReLU", "0", True, (Place(LIBRARY, place(source, "net(x)").span),), (place(source, "m.inplace = True"),)
    )
    incident = conflict(Event("aten::relu_", (place(source, "net(x)"),), module=module))
    assert texts(incident, source)[0] == "for m in net.modules():\n    m.inplace = False\ny = net(x)\n"


def test_a_module_built_elsewhere_is_switched_off_after_it_was_made() -> None:
    source = file("model = resnet()\ny = model(x)\n")
    inside = Place(LIBRARY, place(source, "resnet()").span)
    module = ModuleInfo(
        "ReLU", "layer1.0.relu", True, (inside, place(source, "resnet()")), (inside, place(source, "resnet()"))
    )
    incident = conflict(Event("aten::relu_", (inside, place(source, "model(x)")), module=module))
    wanted = 'model = resnet()\nmodel.get_submodule("layer1.0.relu").inplace = False\ny = model(x)\n'
    assert wanted in texts(incident, source)


FLAGS = [
    ("variable", "flag = True\nnn.ReLU(inplace=flag)\n", "flag = False\nnn.ReLU(inplace=flag)\n"),
    (
        "default",
        "def f(inplace=True):\n    return nn.ReLU(inplace)\n",
        "def f(inplace=False):\n    return nn.ReLU(inplace)\n",
    ),
    ("double-star", 'nn.ReLU(**{"inplace": True})\n', 'nn.ReLU(**{"inplace": False})\n'),
    ("dict-call", "o = dict(inplace=True)\nnn.ReLU(**o)\n", "o = dict(inplace=False)\nnn.ReLU(**o)\n"),
    ("stored", "o = {}\no['inplace'] = True\nnn.ReLU(**o)\n", "o = {}\no['inplace'] = False\nnn.ReLU(**o)\n"),
    ("other-class", "Swish(4, True)\n", "Swish(4, False)\n"),
]


@pytest.mark.parametrize(("before", "after"), [c[1:] for c in FLAGS], ids=[c[0] for c in FLAGS])
def test_where_a_flag_may_come_from(before: str, after: str) -> None:
    source = file("from torch import nn\n" + before)
    calls = [
        n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and source.segment(n.func) in ("nn.ReLU", "Swish")
    ]
    built = Place(PATH, span_of(calls[0]), source.qualname(calls[0]))
    module = ModuleInfo("ReLU", "act", True, (built,), (built,))
    incident = conflict(Event("aten::relu_", (Place(LIBRARY, built.span),), module=module))
    assert texts(incident, source)[0] == "from torch import nn\n" + after


def test_rows_of_a_tensor_are_taken_one_by_one() -> None:
    text = "def f(h, scales):\n    for row, s in zip(h, scales):\n        row.mul_(s)\n    return h\n"
    source = file(text)
    stack = (place(source, "row.mul_(s)"),)
    found = texts(Incident(raised=Raised("multi-view", "Output 0 of UnbindBackward0 is a view", stack)), source)
    assert text.replace("zip(h,", "zip([h[index] for index in range(len(h))],") in found


def test_parts_of_a_split_tensor_are_put_back() -> None:
    text = "import torch\ndef f(g):\n    a, b = g.chunk(2, dim=-1)\n    a.tanh_()\n    b += 1\n    return a * b, g\n"
    source = file(text)
    found = texts(Incident(raised=Raised("multi-view", "Output 0 of Split", (place(source, "a.tanh_()"),))), source)
    wanted = (
        "import torch\ndef f(g):\n    a, b = g.chunk(2, dim=-1)\n    a = a.tanh()\n    b = b + 1\n"
        "    g = torch.cat((a, b), dim=-1)\n    return a * b, g\n"
    )
    assert wanted in found


def test_an_optimizers_step_is_no_site_of_these_rules() -> None:
    source = file("opt.step()\n")
    event = Event("aten::_foreach_add_", (place(source, "opt.step()"),), optimizer="SGD")
    offered = [s.rule for s, _ in candidates(conflict(event), Project({PATH: source}))]
    assert not [code for code in offered if code in {f"DIP10{n}" for n in range(1, 7)}]


def test_files_that_may_only_be_read_stay_as_they_are() -> None:
    source = file("def f(x):\n    x += 1\n")
    incident = conflict(Event("aten::add_.Tensor", (place(source, "x += 1"),)))
    assert candidates(incident, Project({}, {PATH: source})) == ()


BORROWED = {
    "loop variable": "def f(ts):\n    for t in ts:\n        {}\n",
    "argument": "def f(t):\n    {}\n",
    "attribute": "def f(m):\n    t = m.weight\n    {}\n",
    "element": "def f(ts):\n    t = ts[0]\n    {}\n",
}


@pytest.mark.parametrize("write", ["t += 1", "t.mul_(2)", "t.mul_(2).add_(1)", "t[0] = 1", "t[0].mul_(2)"])
@pytest.mark.parametrize("held", BORROWED)
def test_no_rewrite_gives_a_tensor_to_a_name_that_nobody_reads(held: str, write: str) -> None:
    """All that it would do is take the write away; a run in which the write changed no value could not tell."""
    text = BORROWED[held].format(write)
    source = file(text)
    node = write.partition(" =")[0] if "] =" in write else write
    made = texts(conflict(Event("aten::mul_", (place(source, node),))), source)
    bound = {line.strip() for t in made for line in t.splitlines() if line.lstrip().startswith("t = ")}
    assert {b for b in bound if not b.startswith("t = ts[index] = ")} <= {"t = m.weight", "t = ts[0]"}
    source = file(text + ("        " if held == "loop variable" else "    ") + "print(t)\n")
    made = texts(conflict(Event("aten::mul_", (place(source, node),))), source)
    assert made, "it may be right where the name is read later: a run tells"
