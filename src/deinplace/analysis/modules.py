"""Modules of torch.nn and optimizers: construction, calls, and the methods that every module has."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import facts, ops, writes
from deinplace.analysis.iteration import iterate, module_children
from deinplace.analysis.machine import Machine
from deinplace.analysis.members import parameter_of
from deinplace.analysis.memory import tensors_in
from deinplace.analysis.values import NONE, Const, Obj, Other, Ten, Torch, Value
from deinplace.catalog import FunctionInfo
from deinplace.catalog.records import Returns

CONTAINERS = (
    "torch.nn.Sequential",
    "torch.nn.ModuleList",
    "torch.nn.ModuleDict",
    "torch.nn.ParameterList",
    "torch.nn.ParameterDict",
)
MODULE_METHODS = (
    "parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers",
    "named_buffers", "register_buffer", "register_parameter", "add_module", "register_module", "train", "eval", "to",
    "cuda", "cpu", "half", "float", "double", "apply", "zero_grad", "requires_grad_", "state_dict", "load_state_dict",
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "get_submodule", "append",
    "extend", "insert", "items", "values", "keys", "type", "share_memory", "compile",
)  # fmt: skip


def construct(m: Machine, name: str, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """`nn.X(...)`."""
    entry = facts.module(name)
    for value in (*args, *keywords.values()):
        m.escape(value, f"was given to {name}")
    fields: dict[object, Value] = {"training": Const(True)}
    opened = False
    if name in CONTAINERS:
        members, opened = _members(m, name, args, keywords)
        fields.update(members)
    elif entry is not None and entry.inplace is not None:
        where = entry.inplace
        given = keywords.get(where.name) or (args[where.position] if where.position < len(args) else None)
        fields["inplace"] = given if given is not None else Const(where.default)
        if given == Const(True):
            _flagged(m, name, node)
    if "Dropout" in name and args:
        keywords = {"p": args[0], **keywords}
    known = tuple(sorted((k, v) for k, v in keywords.items() if k != "inplace"))
    return m.record(fields, "module", opened, Torch(name, m.frame.module.path, node, known))


def _flagged(m: Machine, name: str, node: ast.AST) -> None:
    """Note the calls that ask for a module that works in place: the constructor's, and those that hand the flag on."""
    for place in m.stack(node):
        m.flags.setdefault((place.path, place.span), name)


def _members(m: Machine, name: str, args: list[Value], keywords: dict[str, Value]) -> tuple[dict[object, Value], bool]:
    first = args[0] if args else NONE
    if isinstance(first, Obj) and first.what == "dict":
        fields = m.fields_of(first)
        return dict(fields.fields), fields.open
    if name == "torch.nn.Sequential" and not (isinstance(first, Obj) and first.what == "list"):
        return {str(n): v for n, v in enumerate(args)}, False
    if args:
        items, opened = iterate(m, first, ast.Pass())
        content = m.m.peek(first.oid) if isinstance(first, Obj) else None
        items = list(getattr(content, "items", items))
        pairs = [m.items_of(i).items for i in items if isinstance(i, Obj) and i.what == "tuple"]
        if items and len(pairs) == len(items):
            return {p[0].value if isinstance(p[0], Const) else n: p[1] for n, p in enumerate(pairs)}, opened
        return {str(n): v for n, v in enumerate(items)}, opened
    return dict(keywords.items()), False


def call_module(m: Machine, module: Obj, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """A call of a module of torch's own."""
    tag = m.torch_tag(module)
    assert tag is not None
    if tag.name == "torch.nn.Sequential":
        value: Value = args[0] if args else NONE
        for child in module_children(m, module)[:40]:
            value = m.call(child, [value], {}, node)
        return value
    if tag.name == "torch.nn.Identity" and args:
        return args[0]
    for value in args:
        m.refine(value, f"given to {tag.name}")
    entry = facts.module(tag.name)
    inplace = m.fields_of(module).fields.get("inplace", Const(False))
    first = args[0] if args else NONE
    off = isinstance(inplace, Const) and not inplace.value
    if isinstance(first, Ten) and not off and entry is not None and entry.inplace is not None:
        return _activate(m, module, tag, first, isinstance(inplace, Const), node)
    return _forward(m, module, tag, args, keywords, node)


def _name(m: Machine, tag: Torch) -> str:
    entry = facts.module(tag.name)
    functional = entry.functional if entry is not None else None
    return (functional or tag.name).rpartition(".")[2]


def _options(m: Machine, module: Obj, tag: Torch) -> dict[str, Value]:
    training = m.fields_of(module).fields.get("training", Const(True))
    return {**dict(tag.kwargs), "training": training}


def _activate(m: Machine, module: Obj, tag: Torch, value: Ten, certain: bool, node: ast.AST) -> Value:
    """A module that works in place on its input."""
    entry = facts.module(tag.name)
    assert entry is not None
    training = m.fields_of(module).fields.get("training")
    if "Dropout" in tag.name and training == Const(False):
        return value
    if not certain:
        m.notes.add("unknown flag")
        return _forward(m, module, tag, [value], {}, node)
    flagged = m.flag_places.get(module.oid)
    where = replace(tag, node=tag.node)
    parts: dict[str, ast.expr] = {}
    out = writes.apply(
        m,
        value,
        _name(m, tag),
        {},
        node,
        "flag",
        parts,
        keywords=_options(m, module, tag),
        module=where,
        entry=_as_function(m, tag, entry.saves_inplace),
    )
    if flagged is not None:
        m.writes[-1] = replace(m.writes[-1], flagged=(flagged, *m.writes[-1].flagged))
    return out


def _as_function(m: Machine, tag: Torch, saves: frozenset[str]) -> FunctionInfo:
    """A module's forward as an operation."""
    entry = facts.module(tag.name)
    functional = facts.function(entry.functional) if entry is not None and entry.functional else None
    random = (functional is not None and functional.random) or "Dropout" in tag.name
    kept = frozenset("result" if s == "output" else s for s in saves)
    outputs = functional.outputs if functional is not None else None
    returns = entry.returns if entry is not None and entry.ran else "maybe_alias"
    return FunctionInfo(tag.name, saves=kept, saves_alone=kept, random=random, returns=returns, outputs=outputs)


def _of_dropout(m: Machine, options: dict[str, Value]) -> Returns:
    """Its input where it drops nothing: in evaluation, and with a probability of 0."""
    drops = [v for k, v in options.items() if k in ("p", "training")]
    if any(isinstance(v, Const) and not v.value for v in drops):
        return "self"
    return "fresh" if m.lenient or all(isinstance(v, Const) for v in drops) else "maybe_alias"


def _forward(
    m: Machine, module: Obj, tag: Torch, args: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    entry = facts.module(tag.name)
    saves = entry.saves if entry is not None else frozenset({"input"})
    named: dict[str, Value] = {}
    for n, value in enumerate(args):
        named["input" if n == 0 else f"input{n}"] = value
    if facts.has_parameters(tag.name) or entry is None:
        named["weight"] = parameter_of(m, module, "weight")
    parts = _parts(node)
    options = {**_options(m, module, tag), **keywords}
    info = _as_function(m, tag, saves)
    if "Dropout" in tag.name:
        info = replace(info, returns=_of_dropout(m, options))
    if "Embedding" in tag.name and "max_norm" in dict(tag.kwargs) and isinstance(named.get("weight"), Ten):
        weight = named["weight"]
        assert isinstance(weight, Ten)
        writes.record(m, weight, "renorm", node, "max_norm", tag)
    out = ops.operate(m, _name(m, tag), named, node, parts, options, info)
    if isinstance(out, Ten) and options.get("return_indices") == Const(True):
        m.tuples.add(out.sids[0])
    if isinstance(out, Ten) and tag.name.rpartition(".")[2] in ("LSTM", "GRU", "RNN", "MultiheadAttention"):
        others = replace(info, saves=info.saves - {"result"}, saves_alone=info.saves_alone - {"result"})
        second = ops.operate(m, _name(m, tag) + "_state", named, node, {}, options, others)
        state: Value = m.sequence([second, second], "tuple") if tag.name.endswith("LSTM") else second
        return m.sequence([out, state], "tuple")
    return out


def _parts(node: ast.AST) -> dict[str, ast.expr]:
    if isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Starred):
        return {"input" if n == 0 else f"input{n}": a for n, a in enumerate(node.args)}
    return {}


def optimizer(m: Machine, base: Other, attr: str, node: ast.AST) -> Value:
    """`step` writes every parameter that the optimizer was given."""
    if attr == "step":
        m.observe("step")
        for tensor in m.optimized.get(base.what, ()):
            sid = tensor.sids[0]
            if m.m.changed(sid) is not None:
                grad, m.grad = m.grad, "off"
                writes.record(m, tensor, "step", node, "step")
                m.update(sid, term=m.terms.make("stepped", m.storage(sid).term, m.serial()))
                m.grad = grad
    elif attr == "zero_grad":
        m.observe("zero_grad")
    return Other("unknown")


def make_optimizer(m: Machine, args: list[Value], keywords: dict[str, Value]) -> Value:
    """`torch.optim.X(parameters)`."""
    name = f"optimizer {m.serial()}"
    first = args[0] if args else keywords.get("params", NONE)
    found: list[Ten] = []
    for tensor in tensors_in(first, m.m, 4):
        if "leaf" not in m.storage(tensor.sids[0]).flags:
            m.escape(tensor, "is held by an optimizer")
        elif tensor not in found:
            found.append(tensor)
    m.optimized[name] = tuple(found)
    return Other(name)
