"""`fix --all` without a program: tensors that somebody else still sees, in ways that are easily overlooked."""
# ruff: noqa: E501  (programs are data: a line each)

from __future__ import annotations

import pytest

from deinplace.analysis.source import Source
from deinplace.rewrite.apply import patched
from deinplace.verify.static import plan

IMPORTS = "import collections\nimport contextlib\nimport torch\nimport torch.nn as nn\n\n\n"
START = "def f(x):\n    y = torch.add(x, 3)\n"
END = "    y += 1\n    return [y, z]\n"
OPERATOR = (
    "class W:\n    def __init__(self):\n        self.l = []\n    def __{name}__(self, v):\n        self.l.append(v)\n"
)
KEPT = {
    "a list of more items than are followed": START
    + f"    q = [{', '.join(['0.0'] * 41)}]\n    q.append(y)\n    z = q[-1]\n"
    + END,
    "the left end of a deque": START + "    q = collections.deque()\n    q.appendleft(y)\n    z = q[0]\n" + END,
    "a sorted list": START + "    z = sorted([y, x], key=id)[0]\n" + END,
    "the end of a long list, reversed": START + "    z = list(reversed([0, 0, 0, 0, 0, 0, y]))[0]\n" + END,
    "a frozenset": START + "    z = list(frozenset([y]))[0]\n" + END,
    "lists in sum": START + "    z = sum([[y]], [])[0]\n" + END,
    "two dicts": START + "    z = ({} | {'a': y})['a']\n" + END,
    "match": START + "    match (y, 1):\n        case (z, 1):\n            pass\n" + END,
    "an exception": START
    + "    try:\n        raise ValueError(y)\n    except ValueError as e:\n        z = e.args[0]\n"
    + END,
    "a name bound before an exception": START
    + "    z = None\n    try:\n        z = y\n        raise KeyError\n    except KeyError:\n        pass\n"
    + END,
    "a write before an exception": START
    + "    z = None\n    try:\n        z = y\n        y += 1\n        raise KeyError\n    except KeyError:\n        pass\n"
    + "    return [y, z]\n",
    "a write at last": START
    + "    z = None\n    try:\n        z = y\n        raise KeyError\n    except KeyError:\n        pass\n"
    + "    finally:\n        y += 1\n    return [y, z]\n",
    "from name to name in a loop": START
    + "    a = b = c = d = z = None\n    for i in range(5):\n        z = d; d = c; c = b; b = a; a = y\n"
    + END,
    "from name to name while something holds": START
    + "    a = b = c = z = None\n    n = 0\n    while n < 4:\n        z = c; c = b; b = a; a = y\n        n = n + 1\n"
    + END,
    "a metaclass": "K = []\nclass Meta(type):\n    def __call__(cls, *a):\n        K.append(a)\n"
    "        return super().__call__(*a)\nclass W(metaclass=Meta):\n    def __init__(self, t): pass\n"
    + START
    + "    W(y)\n    z = K[-1][0]\n"
    + END,
    "__new__": "class W:\n    def __new__(cls, t):\n        o = object.__new__(cls)\n        o.t = t\n        return o\n"
    + START
    + "    z = W(y).t\n"
    + END,
    "a descriptor": "K = []\nclass D:\n    def __set__(self, o, v): K.append(v)\nclass W:\n    d = D()\n"
    + START
    + "    o = W()\n    o.d = y\n    z = K[-1]\n"
    + END,
    "__getattr__": "class W:\n    def __init__(self, t): self.t = t\n    def __getattr__(self, k): return self.t\n"
    + START
    + "    z = W(y).foo\n"
    + END,
    "an operator": OPERATOR.format(name="lshift") + START + "    o = W()\n    o << y\n    z = o.l[0]\n" + END,
    "a comparison": OPERATOR.format(name="eq") + START + "    o = W()\n    o == y\n    z = o.l[0]\n" + END,
    "membership": OPERATOR.format(name="contains") + START + "    o = W()\n    y in o\n    z = o.l[0]\n" + END,
    "an attribute of its own": START + "    y.tag = 5\n    y += 1\n    return [y.tag]\n",
    "a gradient of its own": START + "    y.grad = torch.ones(3)\n    y += 1\n    return [y.grad]\n",
    "its version": START + "    y += 1\n    return [y, y._version]\n",
    "a class that registers itself": "class Base:\n    subs = []\n    def __init_subclass__(cls, **k):\n"
    "        Base.subs.append(cls)\nclass Sub(Base):\n    kept = []\n    def note(self, t):\n        Sub.kept.append(t)\n"
    + START
    + "    for c in Base.subs:\n        c().note(y)\n    z = Sub.kept[0]\n"
    + END,
    **{
        f"what {call} gives": START + f"    z = {call}\n" + END
        for call in (
            "torch.einsum('i->i', y)",
            "nn.Flatten(0)(y)",
            "nn.Unflatten(0, (3, 1))(y)",
            "y.type(torch.float32)",
            "nn.Dropout().eval()(y)",
            "nn.Dropout(0.0)(y)",
            "nn.Dropout(p=0)(y)",
        )
    },
    **{
        f"gradients off: {name}": START + text + "    return [y, y.requires_grad]\n"
        for name, text in {
            "perhaps": "    with contextlib.nullcontext() if x.sum() < 0 else torch.no_grad():\n        y *= 2\n",
            "by a stack": "    with contextlib.ExitStack() as s:\n        s.enter_context(torch.no_grad())\n        y *= 2\n",
            "by hand": "    g = torch.no_grad()\n    g.__enter__()\n    y *= 2\n    g.__exit__(None, None, None)\n",
            "by torch._C": "    torch._C._set_grad_enabled(False)\n    y *= 2\n    torch._C._set_grad_enabled(True)\n",
            "and kept": "    old = torch.set_grad_enabled(False)\n    y *= 2\n    torch.set_grad_enabled(True)\n",
        }.items()
    },
    "a lower precision": "lin = nn.Linear(3, 3)\n\n\ndef f(x):\n    with torch.autocast('cpu', dtype=torch.bfloat16):\n"
    "        y = lin(torch.ones(2, 3))\n        y += torch.ones(2, 3)\n    return [y.dtype]\n",
    "a lower precision of its caller": "def f(x):\n    y = torch.mm(torch.ones(2, 2), torch.ones(2, 2))\n"
    "    y += torch.ones(2, 2)\n    return [y.dtype]\n\n\ndef g(x):\n    with torch.autocast('cpu'):\n        return f(x)\n",
    **{
        f"another dtype by out: {call}": f"def f(x):\n    y = torch.ones(2, 3, dtype=torch.{dtype})\n"
        f"    torch.{call}, out=y)\n    return [y, y.dtype]\n"
        for call, dtype in {
            "exp(torch.ones(2, 3)": "float16",
            "sum(torch.ones(2, 2, 3), 0": "int64",
            "cat([torch.ones(1, 3), torch.ones(1, 3)]": "float16",
        }.items()
    },
    **{
        f"memory in another order: {write}": f"def f(x):\n    y = torch.ones(3, 2).t().exp()\n    {write}\n"
        "    return [y.stride(), y.t().view(-1)]\n"
        for write in ("y.cumsum_(0)", "y.triu_(1)", "y.masked_fill_(y > 0, 2.5)", "y[y > 0] = 0", "torch.exp(y, out=y)")
    },
    "deep in objects": "class B:\n    pass\n\n\nclass A:\n    def __init__(self):\n        self.b = B()\n        self.b.b = B()\n"
    "        self.b.b.b = B()\n        self.b.b.b.b = B()\n        self.b.b.b.b.b = B()\n\n    def f(self, x):\n"
    "        y = torch.add(x, 3)\n        self.b.b.b.b.b.v = y\n        y += 1\n        return x\n",
    **{
        f"what {call} gives": START + f"    z = {call}\n" + END
        for call in (
            "next(iter([]), y)",
            "getattr(x, 'nope', y)",
            "{'a': y}.popitem()[1]",
            "sum([], y)",
            "type('T', (), {'v': y}).v",
            "torch.atleast_3d([y])[0]",
            "nn.Buffer(y)",
            "nn.ParameterList([y])",
            "torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), y)",
            "torch.empty(3).set_(y.detach())",
            "map(torch.neg, [y])",
            "(t * 2 for t in [y])",
            "sorted([1], key=lambda v: y)",
            "collections.defaultdict(lambda: y)",
            "{y: 1}",
        )
    },
    **{
        f"a special method: {name}": f"K = []\n\n\nclass A:\n    def __init__(self, t):\n        self.t = t\n\n"
        f"    def {name}(self):\n        K.append(self.t)\n        return {value}\n\n\n"
        + START
        + f"    z = A(y)\n    {use}\n"
        + END
        for name, value, use in (
            ("__bool__", "True", "assert z"),
            ("__len__", "1", "len(z)"),
            ("__hash__", "1", "{z: 1}"),
            ("__str__", "''", "str(z)"),
            ("__neg__", "1", "-z"),
            ("__del__", "None", "del z; z = 1"),
        )
    },
    "after its construction": "import dataclasses\n\n\n@dataclasses.dataclass\nclass D:\n    a: object\n\n    def __post_init__(self):\n"
    "        self.b = self.a\n\n\n" + START + "    z = D(y).b\n" + END,
    "in a generator": "def g(y):\n    yield y * 2\n\n\n" + START + "    z = g(y)\n" + END,
    "in a coroutine": "async def g(y):\n    return y * 2\n\n\n" + START + "    z = g(y)\n" + END,
    "in a thread": "import threading\n\n\n"
    + START
    + "    z = []\n    threading.Thread(target=lambda: z.append(y)).start()\n"
    + END,
    "a flag that others give": "def f(y, inplace=False):\n    if not inplace:\n        y = y.clone()\n    y += 1\n    return y\n",
    "a flag of a module": "class M(nn.Module):\n    def __init__(self, inplace=False):\n        super().__init__()\n"
    "        self.inplace = inplace\n\n    def forward(self, x):\n        if not self.inplace:\n            x = x.clone()\n"
    "        x += 1\n        return x\n",
    "a flag of a class that is set elsewhere": "class M(nn.Module):\n    copy = True\n\n    def forward(self, x):\n        if self.copy:\n"
    "            x = x.clone()\n        x += 1\n        return x\n\n\ndef g(m):\n    m.copy = False\n",
    "an attribute that others hold": "class A:\n    def __init__(self):\n        self.w = torch.ones(3)\n\n    def go(self):\n"
    "        self.w += 1\n        return self.w\n",
    "a buffer that others hold": "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.register_buffer('b', torch.zeros(3))\n\n    def forward(self, x):\n        self.b += 1\n        return x * self.b\n",
    "whole numbers that grow wider": "def f(x):\n    y = torch.ones(3, dtype=torch.int32)\n    y.cumsum_(0)\n    return [y]\n",
    "a part of itself": "def f(x):\n    y = torch.arange(3.0)\n    y -= y[0]\n    return [y]\n",
    "data of another": "def f(x):\n    b = torch.zeros(3)\n    w = torch.empty(3)\n    w.data = b\n    b += 1\n    return [b, w]\n",
    "a write that is refused, and caught": "def f(x):\n    with torch.inference_mode():\n        y = torch.ones(3)\n"
    "    try:\n        y += 1\n    except RuntimeError:\n        return ['refused', y]\n    return [y]\n",
}
TOGETHER = {
    "a list that a call fills": {
        "reg.py": "HANDLERS = []\nKEPT = []\ndef keep(t):\n    KEPT.append(t)\ndef install():\n    HANDLERS.append(keep)\n",
        "core.py": "import torch\nfrom reg import HANDLERS\ndef f(x):\n    y = torch.add(x.float(), 3.0)\n"
        "    for h in HANDLERS:\n        h(y)\n    y += 1\n    return y\n",
    },
    "a method that a derived class has anew": {
        "base.py": "import torch\nclass Base:\n    def keep(self, t):\n        pass\n    def run(self, x):\n"
        "        y = torch.add(x, 3)\n        self.keep(y)\n        y += 1\n        return y\n",
        "derived.py": "from base import Base\nclass Derived(Base):\n    def keep(self, t):\n        self.kept = t\n",
    },
    "a hook that another file registers": {
        "net.py": "import torch\nimport torch.nn as nn\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.lin = nn.Linear(3, 3)\n    def forward(self, x):\n"
        "        y = self.lin(x)\n        y += 1\n        return y\n",
        "hooks.py": "KEPT = []\ndef watch(net):\n    net.lin.register_forward_hook(lambda m, i, o: KEPT.append(o))\n",
    },
}


def fixed(texts: dict[str, str]) -> dict[str, str]:
    """The files after `fix --all`."""
    sources = {f"/p/{name}": Source.parse(f"/p/{name}", text.encode()) for name, text in texts.items()}
    now = patched(sources, [rewrite for _, rewrite, _ in plan(sources, all_sites=True)])
    return {name: now[f"/p/{name}"].text for name in texts}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_what_others_see_is_left(text: str) -> None:
    assert fixed({"m.py": IMPORTS + text})["m.py"] == IMPORTS + text


@pytest.mark.parametrize("texts", TOGETHER.values(), ids=TOGETHER.keys())
def test_what_other_files_may_do_is_left(texts: dict[str, str]) -> None:
    assert fixed(texts) == texts


@pytest.mark.parametrize("between", ["", "    z = torch.cat([y])\n", "    z = [t * 2 for t in [y, x]]\n"])
def test_what_nobody_else_sees_is_freed(between: str) -> None:
    text = IMPORTS + START + (between or "    z = 1\n") + END
    assert fixed({"m.py": text})["m.py"] == text.replace("y += 1", "y = y + 1")
