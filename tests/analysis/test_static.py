"""`fix` without a driver: what is rewritten, how, and what is left alone and why."""
# ruff: noqa: E501  (programs are data: a line each)

from __future__ import annotations

import textwrap

import pytest

from deinplace.analysis.index import MANY
from deinplace.analysis.source import Source
from deinplace.model import Edit, Rewrite
from deinplace.rewrite.apply import apply
from deinplace.verify.static import choices, everywhere, plan
from tests.analysis.programs import HEAD, parse

START = "w = nn.Parameter(torch.ones(3))\n"
FIXED = {
    "rebind": ("y = torch.sigmoid(w)\ny += 1\ny.sum().backward()\n", "y = y + 1"),
    "rebind-all-names": ("y = torch.sigmoid(w)\nz = y\ny += 1\n(y * z).sum().backward()\n", "y = z = y + 1"),
    "rebind-a-chain": ("y = torch.exp(w)\ny.mul_(2).add_(1)\ny.sum().backward()\n", "y = y.mul(2).add(1)"),
    "clone-before-a-slice": ("y = torch.exp(w)\ny[0] = 0.0\ny.sum().backward()\n", "y = y.clone()"),
    "write-back-to-the-dict": (
        "d = {'a': torch.exp(w)}\nfor v in d.values():\n    v /= 2.0\nd['a'].sum().backward()\n",
        "d[key]",
    ),
    "two-halves-of-one-tensor": (
        (
            "def f():\n    p = torch.relu(w * 1)\n    a, b = p[:2], p[2:]\n    a *= 2.0\n    b *= 3.0\n"
            "    return a.sum() * b.sum()\n\n\nf().backward()\n"
        ),
        "a = a * 2.0",
    ),
    "flag": (
        "net = nn.Sequential(nn.Sigmoid(), nn.ReLU(inplace=True))\nnet(w).sum().backward()\n",
        "nn.ReLU(inplace=False)",
    ),
    "flag-of-a-function-whose-tensor-is-read-again": (
        "h = torch.exp(w)\nout = nn.functional.hardtanh(h, 0.0, 0.3, inplace=True)\n(out + h).sum().backward()\n",
        "h = h.clone()",
    ),
    "leaf-update-under-no-grad": (
        "(w * w).sum().backward()\nw -= 0.1 * w.grad\n",
        "with torch.no_grad():\n    w -= 0.1 * w.grad",
    ),
    "buffer-stays-the-object": (
        (
            "class S(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.register_buffer('s', torch.ones(3))\n    def forward(self, x):\n        self.s.mul_(0.5)\n"
            "        return x / self.s\nnet = S()\n(net(w) + net(w)).sum().backward()\n"
        ),
        "self.s.clone()",
    ),
    "a-leaf-stays-the-leaf": (
        "cost = (w ** 2).sum()\nwith torch.no_grad():\n    w -= 1.0\ncost.backward()\nprint(w.grad)\n",
        "cost = (w.clone() ** 2).sum()",
    ),
    "a-leaf-whose-gradient-is-asked-for": (
        "cost = w.prod() + w.sum()\nwith torch.no_grad():\n    w.sub_(1.0)\nprint(torch.autograd.grad(cost, [w]))\n",
        "cost = w.clone().prod()",
    ),
    "rows-of-a-loop": (
        (
            "def f(h, scales):\n    for row, s in zip(h, scales):\n        row.mul_(s)\n    return h\n\n\n"
            "f(torch.stack((w, w)), w).sum().backward()\n"
        ),
        "zip([h[i] for i in range(len(h))], scales)",
    ),
    "columns-of-a-loop": (
        (
            "def f(h):\n    for n, part in enumerate(h.unbind(1)):\n        part += n\n    return h\n\n\n"
            "f(torch.stack((w, w))).sum().backward()\n"
        ),
        "h.select(1, i)",
    ),
    "parts-put-back": (
        (
            "def f(h):\n    a, b = torch.chunk(h, 2, dim=-1)\n    b.sigmoid_()\n    return h * 2, a\n\n\n"
            "f(torch.cat((w, w)))[0].sum().backward()\n"
        ),
        "h = torch.cat((a, b), dim=-1)",
    ),
    "inference-tensor": (
        "with torch.inference_mode():\n    y = torch.ones(3) * 2\nkept = [y]\ny /= y.norm()\nprint(kept)\n",
        "with torch.inference_mode():\n    y /= y.norm()",
    ),
    "expanded-rows": (
        (
            "def f(row, x):\n    all = row.expand_as(x)\n    part = all[:, :1]\n    part *= 2.0\n    return all\n\n\n"
            "f(w * 3, torch.ones(2, 3)).sum().backward()\n"
        ),
        "all = row.expand_as(x).clone()",
    ),
    "whole-numbers": ("n = torch.arange(4)\nm = n\nn *= 0.5\nprint(m, n)\n", "n //= 2"),
    "void-helper": (
        "def shift(h):\n    h += 1.0\n\n\ny = torch.exp(w)\nshift(y)\ny.sum().backward()\n",
        ".clone()",
    ),
    "keeps-the-graph-of-what-requires-gradients-already": (
        "y = torch.sigmoid(w)\nwith torch.no_grad():\n    torch.neg(y, out=y)\ny.requires_grad_()\ny.sum().backward()\n",
        "y = torch.sigmoid(w).clone()",
    ),
}
LEFT = {
    "free-in-a-nested-function": (
        (
            "def f(x):\n    v = torch.relu(x)\n    def inner(q):\n        v.add_(1)\n        return q + v\n"
            "    return inner(v)\n\n\nf(w).sum().backward()\n"
        ),
        "meaning-differs",
    ),
    "a-part-that-one-of-three-results-shows": (
        (
            "def f(x):\n    v = torch.zeros_like(x)\n    if x.sum() > 0:\n        if v.mean() > 1:\n            return v\n"
            "    y = torch.sigmoid(x)\n    rows = y.split(1)\n    rows[0].zero_()\n    return [y]\n\n\nout = f(w)\n"
            "print([o.sum() for o in (out if isinstance(out, list) else [out])])\n"
        ),
        "seen-by-others",
    ),
    "optimizer-step": (
        (
            "net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))\n"
            "opt = torch.optim.SGD(net.parameters(), lr=1)\ny = net(w).sum()\ny.backward(retain_graph=True)\nopt.step()\n"
            "y.backward()\n"
        ),
        "step-order",
    ),
    "intent-of-an-argument": (
        "def head(h):\n    h += 1.0\n    return h.sum()\n\n\ny = torch.exp(w)\na = head(y)\nb = head(y)\n(a + b).backward()\n",
        "meaning-differs",
    ),
    "leaf-filled-with-graph": (
        "buffer = torch.zeros(3, requires_grad=True)\nbuffer[0] = (w * 2).sum()\nbuffer.sum().backward()\n",
        "meaning-differs",
    ),
    "whole-numbers-below-zero": ("n = torch.tensor([-3, 3])\nn *= 0.5\nprint(n)\n", "seen-by-others"),
    "fraction-into-whole-numbers": ("n = torch.arange(4)\nn += 0.5\nprint(n)\n", "no-rewrite"),
    "gradient-of-a-step-that-is-asked-for": (
        (
            "y = w * 2.0\ncost = (y * y).sum()\nwith torch.no_grad():\n    y.mul_(2.0)\n"
            "print(torch.autograd.grad(cost, inputs=y))\n"
        ),
        "seen-by-others",
    ),
    "past-autograd-where-nothing-fails": (
        "y = torch.exp(w)\nz = y.data\nz.mul_(2.0)\ny.sum().backward()\n",
        "changes-meaning",
    ),
    "leaves-in-a-list": (
        (
            "zs = [torch.ones(2, requires_grad=True) for _ in range(2)]\ncost = (zs[0] * zs[1]).sum()\n"
            "with torch.no_grad():\n    for z in zs:\n        z -= 1.0\ncost.backward()\nprint([z.grad for z in zs])\n"
        ),
        "seen-by-others",
    ),
    "a-leaf-that-is-frozen-for-a-while": (
        "cost = (w * w).sum()\nw.requires_grad_(False)\nw += 1.0\nw.requires_grad_(True)\ncost.backward()\nprint(w.grad)\n",
        "seen-by-others",
    ),
    "held-by-an-optimizer-before-it-is-a-leaf": (
        (
            "t = torch.ones(3)\nopt = torch.optim.SGD([t], lr=0.1)\ncost = (w * t).sum()\nt += 1.0\nt.requires_grad_()\n"
            "(cost + (w * t).sum()).backward()\nopt.step()\nprint(t)\n"
        ),
        "escapes",
    ),
    "a-leaf-from-here-on-that-is-frozen": (
        (
            "def f():\n    t = torch.ones(3)\n    cost = (t.requires_grad_() ** 2).sum()\n    t.requires_grad_(False).add_(1)\n"
            "    cost.backward()\n    return t\n\n\nf()\n"
        ),
        "seen-by-others",
    ),
    "a-frozen-parameter-of-a-module": (
        (
            "m = nn.Linear(3, 1).requires_grad_(False)\ncost = m(w).sum()\nm.weight /= 2.0\ncost.backward()\n"
            "print(m.weight)\n"
        ),
        "seen-by-others",
    ),
    "a-test-that-expects-the-error": (
        "import pytest\ny = torch.exp(w)\ny += 1.0\nwith pytest.raises(RuntimeError):\n    y.sum().backward()\n",
        "not-followed",
    ),
    "one-of-two-leaf-writes-is-meant-to-flow": (
        "v = torch.ones(3, requires_grad=True)\nv[0] = 0.0\nv[1] = w[0] * 3.0\nv.sum().backward()\n",
        "meaning-differs",
    ),
    "carried-over-updates-by-hand": (
        (
            "reg = (w ** 2).sum()\nfor _ in range(2):\n    ((w * 3).sum() + reg).backward(retain_graph=True)\n"
            "    with torch.no_grad():\n        w -= 0.1 * w.grad\n"
        ),
        "changes-meaning",
    ),
    "past-autograd-in-an-update": (
        "reg = (w ** 2).sum()\nfor _ in range(2):\n    ((w * 3).sum() + reg).backward(retain_graph=True)\n    w.data -= w.grad\n",
        "changes-meaning",
    ),
    "retained-gradient": (
        "y = torch.exp(w)\ny.retain_grad()\ny *= 2.0\ny.sum().backward()\nprint(y.grad)\n",
        "hooked",
    ),
}
UNTOUCHED = {
    "nobody-calls-it-module-dict": "REG = {}\ndef f(x):\n    y = torch.relu(x)\n    REG['k'] = y\n    y += 1.0\n    return y\n",
    "nobody-calls-it-module-list": "LST = []\ndef f(x):\n    y = torch.relu(x)\n    LST.append(y)\n    y += 1.0\n    return y\n",
    "nobody-calls-it-global": "G = None\ndef f(x):\n    y = torch.relu(x)\n    global G\n    G = y\n    y += 1.0\n    return y\n",
    "nobody-calls-it-class-list": "class Store:\n    items = []\ndef f(x):\n    y = torch.relu(x)\n    Store.items.append(y)\n    y += 1.0\n    return y\n",
    "nobody-calls-it-module-object": "class Store:\n    def __init__(self):\n        self.data = {}\nSTORE = Store()\ndef f(x):\n    y = torch.relu(x)\n    STORE.data['k'] = y\n    y += 1.0\n    return y\n",
    "nobody-calls-it-queue": "def f(x, q):\n    y = torch.relu(x)\n    q.put(y)\n    y += 1.0\n    return y\n",
    "nobody-calls-it-unknown-state": "from elsewhere import REG\ndef f(x, k):\n    y = torch.relu(x)\n    REG[k] = y\n    y += 1.0\n    return y\n",
    "nobody-calls-it-set": "def f(x):\n    y = torch.relu(x)\n    s = {y}\n    y += 1.0\n    return s\n",
    "nobody-calls-it-parameter": "def f(x):\n    y = torch.relu(x)\n    p = nn.Parameter(y)\n    y += 1.0\n    return p\n",
    "nobody-calls-it-deep": "def f(x):\n    y = torch.relu(x)\n    z = [[[[[y]]]]]\n    y += 1.0\n    return z\n",
    "nobody-calls-it-local-class": "def f(x):\n    y = torch.relu(x)\n    class Z:\n        t = y\n    y += 1.0\n    return Z\n",
    "default-of-a-method-is-made-with-its-class": "W = torch.ones(3)\nclass Base:\n    def m(self, x=W):\n        return x\nW += 1.0\nprint(Base().m())\n",
    "caller-sees-it": "def f(x: torch.Tensor):\n    x += 1.0\n    return None\n",
    "helper-returns-its-argument": "def f(x: torch.Tensor):\n    x *= 2.0\n    return x\n",
    "state-that-is-unpacked": "def f(state):\n    h, c = state\n    c.mul_(2)\n    return h\n",
    "loop-over-a-list": "def f(xs: list):\n    for x in xs:\n        x -= 1.0\n    return xs\n",
    "previous-value": "def f(a: torch.Tensor):\n    v = a + 0.0\n    before = v\n    v += 1.0\n    return (v - before).abs().max()\n",
    "default-argument": "def f(a: torch.Tensor, total=torch.zeros(2)):\n    total += 1.0\n    return total.sum() * a\n",
    "attribute-with-a-second-name": "class C:\n    def __init__(self):\n        self.a = self.b = torch.zeros(2)\n"
    "    def go(self):\n        self.a += 1.0\n        return self.b\n",
    "appended-before": "def f(x: torch.Tensor):\n    y = x + 1.0\n    out = [y]\n    y += 1.0\n    return out\n",
    "closure": "def f(x: torch.Tensor):\n    y = x + 1.0\n    def g():\n        return y.sum()\n    z = y\n    z += 1.0\n    return g()\n",
    "one-row-of-an-expansion": "row = torch.zeros(3)\nall = row.expand(2, 3)\nfirst = all[0]\nfirst += 1.0\nprint(row)\n",
    "an-element-of-an-expansion": "row = torch.zeros(3)\nall = row.expand(2, 3)\nall[0] = 1.0\nprint(row)\n",
    "a-mask-on-an-expansion": "row = torch.zeros(3)\nall = row.expand(2, 3)\nall[all == 0] = 1.0\nprint(row)\n",
    "conversion-that-may-alias": "def f(x: torch.Tensor):\n    y = x.float()\n    y += 1.0\n    return y\n",
    "a-cache-keeps-it": "import functools\n\n\n@functools.lru_cache(None)\ndef grid():\n    return torch.zeros(2)\n\n\ng = grid()\ng += 1.0\nprint(grid())\n",
    "a-decorator-keeps-it": "log = []\n\n\ndef logged(fn):\n    def call():\n        log.append(fn())\n        return log[-1]\n    return call\n\n\n"
    "@logged\ndef make():\n    return torch.zeros(2)\n\n\nx = make()\nx += 1.0\nprint(log)\n",
    "a-frozen-parameter-of-its-own": "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(2))\nm = M()\nm.requires_grad_(False)\nm.w += 1.0\nprint(m.w)\n",
    "a-frozen-teacher": "def f(x: torch.Tensor):\n    teacher = nn.Linear(2, 2).requires_grad_(False)\n    teacher.weight *= 0.5\n    return teacher(x)\n",
    "tensor-subclass": "class T(torch.Tensor):\n    def __iadd__(self, other):\n        print('in place')\n        return super().__iadd__(other)\n\n\n"
    "x = torch.zeros(2).as_subclass(T)\nx += 1.0\nprint(x)\n",
    "seen-by-name": "state = torch.zeros(2)\nkept = globals()['state']\nstate += 1.0\nprint(kept)\n",
    "seen-by-vars-of-its-module": "import sys\nstate = torch.zeros(2)\nkept = vars(sys.modules[__name__])['state']\nstate += 1.0\nprint(kept)\n",
    "seen-by-a-function-that-asks-globals": "state = torch.zeros(2)\ndef peek():\n    return globals()['state']\nkept = peek()\nstate += 1.0\nprint(kept)\n",
    "seen-by-locals": "def f():\n    t = torch.zeros(2)\n    kept = locals()['t']\n    t += 1.0\n    return kept\n",
    "seen-by-vars-of-an-object": "class A:\n    def __init__(self):\n        self.t = torch.zeros(2)\n    def go(self):\n        kept = vars(self)['t']\n        self.t += 1.0\n        return kept\n",
    "a-print-shows-the-graph": "def main():\n    x = torch.zeros(2, requires_grad=True)\n    y = x * 2.0\n    with torch.no_grad():\n        y.mul_(2.0)\n    print(y)\n\n\nmain()\n",
    "a-formatted-text-shows-the-graph": "def main():\n    x = torch.zeros(2, requires_grad=True)\n    y = x * 2.0\n    with torch.no_grad():\n        y.mul_(2.0)\n    return f'{y}'\n\n\nmain()\n",
    "seen-by-executed-text": "t = torch.zeros(2)\nk = t\nexec('k += 1.0')\nt *= 2.0\nprint(k)\n",
    "written-by-operator": "import operator\n\n\ndef f():\n    t = torch.zeros(2)\n    u = t\n    t += 1.0\n    operator.iadd(u, 2.0)\n    return t\n",
    "kept-in-a-default": "def show(x, seen=[]):\n    seen.append(x)\n    return len(seen)\n\n\nx = torch.zeros(2)\nshow(x)\nx += 1.0\nprint(show.__defaults__)\n",
    "told-by-identity": "def f(n: int):\n    t = torch.zeros(2)\n    last = None\n    while n:\n        n -= 1\n        t += 1.0\n        if last is t:\n            break\n        last = t\n    return t\n",
    "shares-a-storage": "x = torch.zeros(2)\ny = torch.tensor([]).set_(x.untyped_storage())\nx += 1.0\nprint(y)\n",
    "kept-by-a-lambda": "def f():\n    t = torch.zeros(2)\n    later = lambda k=t: k.sum()\n    t += 1.0\n    return later()\n",
    "row-view": "def f(t: torch.Tensor):\n    u = t * 1.0\n    r = u[0]\n    r += 1.0\n    return u\n",
    "no-grad-keeps-the-graph": "def f(x: torch.Tensor):\n    y = x * 2.0\n    with torch.no_grad():\n        y.mul_(2.0)\n    return y\n",
    "out-under-no-grad-keeps-the-graph": "def f(x: torch.Tensor):\n    y = x * 2.0\n    with torch.no_grad():\n        torch.add(y, 1.0, out=y)\n    return y\n",
    "other-dtype": "def f(x: torch.Tensor, r: torch.Tensor):\n    y = torch.zeros(2, dtype=torch.float16)\n    y += r\n    return y\n",
    "comparison-keeps-float": "def f(x: torch.Tensor):\n    y = torch.zeros(2)\n    y.gt_(0)\n    return y\n",
    "numpy-memory": "def f(raw):\n    t = torch.from_numpy(raw)\n    t += 1.0\n    return t.sum()\n",
    "an-unknown-call-may-keep-its-result": "import held\nt = held.total()\nassert isinstance(t, torch.Tensor)\nt += 1.0\nt = None\n",
    "an-unknown-iterator-shares-its-items": "import itertools\nxs = [torch.zeros(1), torch.ones(1)]\nt: torch.Tensor = next(itertools.compress(xs, [1, 1]))\nt += 1.0\nt = None\nprint(xs)\n",
    "given-to-somebody": "def f(x: torch.Tensor, keep):\n    y = x + 1.0\n    keep(y)\n    y += 1.0\n    return y\n",
    "yielded": "def f(x: torch.Tensor):\n    y = x + 1.0\n    yield y\n    y += 1.0\n    yield y\n",
    "awaited": "async def f(total: torch.Tensor, get):\n    total += await get()\n    return total\n",
    "class-with-iadd": "class A:\n    def __init__(self):\n        self.n = 0\n    def __iadd__(self, o):\n        self.n = o\n"
    "        return self\n\n\ndef f():\n    a = b = A()\n    a += 1\n    return b.n\n",
    "pandas-like-flag": "def f(frame):\n    frame.drop(inplace=True)\n    return frame\n",
    "hook-without-a-result": "def f(grad):\n    grad *= 2.0\n",
    "random-fill": "def f():\n    y = torch.zeros(2)\n    y.bernoulli_()\n    return y\n",
    "copy-casts": "def f(r: torch.Tensor):\n    y = torch.zeros(2)\n    y.copy_(r)\n    return y\n",
}


def rewritten(sources: dict[str, Source], all_sites: bool = False) -> str:
    edits = [e for _, r, _ in plan(sources, all_sites=all_sites) for e in r.edits]
    return apply(sources["/p/main.py"], edits)


@pytest.mark.parametrize(("text", "expected"), FIXED.values(), ids=FIXED)
def test_mends(text: str, expected: str) -> None:
    sources = parse(START + text)
    found = choices(sources)
    assert found and all(c.rewrite is not None and c.safety.ok for c in found)
    assert expected in rewritten(sources)


@pytest.mark.parametrize(("text", "reason"), LEFT.values(), ids=LEFT)
def test_leaves_with_a_reason(text: str, reason: str) -> None:
    found = choices(parse(START + text))
    assert [(c.rewrite, c.safety.reason_code) for c in found if c.safety.reason_code == reason]
    assert all(c.rewrite is None for c in found)


def test_what_pytorch_does_not_notice_is_changed_only_when_told_to() -> None:
    quiet, _ = LEFT["past-autograd-where-nothing-fails"]
    assert [c.rewrite for c in choices(parse(START + quiet), unsafe=True)] == [
        c.offered for c in choices(parse(START + quiet))
    ]
    loud = quiet.replace("y.sum()", "y += 1.0\ny.sum()")
    assert all(c.rewrite is not None for c in choices(parse(START + loud)))


@pytest.mark.parametrize("text", UNTOUCHED.values(), ids=UNTOUCHED)
def test_all_leaves_what_somebody_sees(text: str) -> None:
    sources = parse(text)
    assert rewritten(sources, all_sites=True) == HEAD + textwrap.dedent(text)


def test_all_frees_what_nobody_else_sees() -> None:
    text = "def f(x: torch.Tensor):\n    y = torch.zeros(2)\n    y += 1.0\n    return y\n"
    assert "y = y + 1.0" in rewritten(parse(text), all_sites=True)


def test_a_program_with_an_open_fault_is_not_touched_elsewhere() -> None:
    step, _ = LEFT["optimizer-step"]
    text = START + step + "z = torch.zeros(2)\nz += 1.0\n"
    assert rewritten(parse(text), all_sites=True) == HEAD + text


def test_a_large_project_is_freed_as_a_small_one_but_for_imported_top_levels() -> None:
    library = (
        "import torch\n\ntotal = torch.zeros(3)\ntotal += 1.0\n\n\ndef grown(x):\n    y = torch.ones(3)\n    y += 1.0\n"
        "    return y * x\n\n\ndef kept(x, seen=[]):\n    y = torch.ones(3)\n    seen.append(y)\n    y += 1.0\n    return y\n"
    )
    script = (
        "import torch\nfrom library import grown, kept, total\n\nw = torch.ones(3, requires_grad=True)\nmade = grown(w)\n"
        "made.sum().backward()\nsum_ = torch.zeros(3)\nsum_ += kept(total)\nsaved = torch.sigmoid(w)\nsaved += 1.0\n"
        "saved.sum().backward()\n"
    )
    texts = {"/p/library.py": library, "/p/script.py": script}
    texts |= {f"/p/more{n}.py": f"import torch\n\n\ndef f{n}(x):\n    return x + {n}\n" for n in range(50)}
    sources = {path: Source.parse(path, text.encode()) for path, text in texts.items()}
    edits = [e for _, r, _ in plan(sources, all_sites=True) for e in r.edits]
    assert apply(sources["/p/library.py"], edits) == library.replace(
        "y += 1.0\n    return y * x", "y = y + 1.0\n    return y * x"
    )
    freed = script.replace("saved += 1.0", "saved = saved + 1.0").replace("sum_ += kept", "sum_ = sum_ + kept")
    assert apply(sources["/p/script.py"], edits) == freed


def test_a_large_project_with_a_rewrite_at_an_imported_top_level_is_compared_as_a_whole() -> None:
    library = "import torch\n\ntotal = torch.zeros(3)\ntotal += 1.0\n"
    script = (
        "import torch\nfrom library import total\n\n\ndef f():\n    y = torch.ones(3)\n    y += total\n    return y\n"
    )
    texts = {"/p/library.py": library, "/p/script.py": script} | {f"/p/m{n}.py": "import torch\n" for n in range(MANY)}
    sources = {path: Source.parse(path, text.encode()) for path, text in texts.items()}
    at = library.index("total += 1.0")
    edit = Edit("/p/library.py", at, at + len("total += 1.0"), "total = total + 1.0")
    taken = Rewrite("DIP102", "make `total` a new tensor", (edit,), "safe", 4, edit.path)
    freed = everywhere(sources, [taken])
    assert [(site.path, site.function) for site, _, _ in freed] == [("/p/script.py", "f")]
