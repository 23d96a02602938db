"""What torch's modules hold, and the methods that hand it out."""

from __future__ import annotations

import ast
from dataclasses import replace

from deinplace.analysis import facts
from deinplace.analysis.iteration import iterate, module_children
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import NONE, Const, Fields, Obj, Other, Ten, Union, Value

_SKIP = ("training", "inplace")


def parameter_of(m: Machine, module: Obj, name: str) -> Ten:
    """A parameter of a module of torch's own, made when first asked for."""
    found = m.fields_of(module).fields.get(name)
    if isinstance(found, Ten):
        return found
    made = leaf(m, f"parameter `{name}` of a module", m.terms.make("parameter", m.serial(), name))
    m.m.put(module.oid, name, made)
    return made


def leaf(m: Machine, why: str, term: int, flag: str = "parameter") -> Ten:
    """A leaf that requires gradients."""
    return m.tensor(
        why,
        term,
        dtype="float",
        grad="yes",
        graph=m.terms.make("leaf", term),
        flags=frozenset({"leaf", flag}),
        origin="leaf",
    )


def walk(m: Machine, value: Value, seen: set[int]) -> list[Obj]:
    """A module and the modules below it."""
    if isinstance(value, Union):
        return [o for option in value.options for o in walk(m, option, seen)]
    if not isinstance(value, Obj) or value.oid in seen or len(seen) > 400:
        return []
    seen.add(value.oid)
    found = [value] if value.what == "module" or (m.class_of(value) is not None) else []
    content = m.m.peek(value.oid)
    if isinstance(content, Fields) and value.what in ("module", "instance"):
        for child in content.fields.values():
            if isinstance(child, Obj) and child.what in ("module", "instance"):
                found += walk(m, child, seen)
    return found


def parameters(m: Machine, value: Value) -> list[Ten]:
    """All parameters below a module."""
    return [t for _, t in named_tensors(m, value, "parameter")]


def named_tensors(m: Machine, value: Value, flag: str, prefix: str = "", depth: int = 12) -> list[tuple[str, Ten]]:
    """Parameters, or buffers, below a module, with their qualified names."""
    out: list[tuple[str, Ten]] = []
    if isinstance(value, Union):
        return [pair for option in value.options for pair in named_tensors(m, option, flag, prefix, depth - 1)]
    if not isinstance(value, Obj) or value.what not in ("module", "instance") or not depth:
        return out
    tag = m.torch_tag(value)
    if tag is not None and flag == "parameter" and facts.has_parameters(tag.name):
        parameter_of(m, value, "weight")
    for key, child in m.fields_of(value).fields.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(child, Ten):
            if flag in m.storage(child.sids[0]).flags and not any(child == t for _, t in out):
                out.append((name, child))
        elif isinstance(child, (Obj, Union)):
            out += [p for p in named_tensors(m, child, flag, name, depth - 1) if not any(p[1] == t for _, t in out)]
    return out


def method(
    m: Machine, base: Obj, attr: str, args: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value | None:
    """A method that every module has; None where it is none of them."""
    if attr in ("train", "eval"):
        mode = Const(attr == "train" and not (args and args[0] == Const(False)))
        for module in walk(m, base, set()):
            m.m.put(module.oid, "training", mode)
        return base
    if attr in ("to", "cuda", "cpu", "half", "float", "double", "type", "share_memory", "compile"):
        return base
    if attr in ("parameters", "named_parameters", "buffers", "named_buffers"):
        found = named_tensors(m, base, "parameter" if attr.endswith("parameters") else "buffer")
        if not attr.startswith("named"):
            return m.sequence([t for _, t in found], "list")
        pairs: list[Value] = [m.sequence([Const(name), t], "tuple") for name, t in found]
        return m.sequence(pairs, "list")
    if attr in ("modules", "named_modules", "children", "named_children"):
        below = (
            walk(m, base, set())
            if attr.endswith("modules")
            else [c for c in module_children(m, base) if isinstance(c, Obj)]
        )
        if attr.startswith("named"):
            return m.sequence([m.sequence([Const(f"module{n}"), c], "tuple") for n, c in enumerate(below)], "list")
        return m.sequence([*below], "list")
    if attr in ("register_buffer", "register_parameter", "add_module", "register_module") and len(args) > 1:
        if isinstance(args[0], Const):
            m.m.put(base.oid, args[0].value, args[1])
            if attr == "register_buffer" and isinstance(args[1], Ten):
                for sid in args[1].sids:
                    m.update(sid, flags=m.storage(sid).flags | {"buffer"})
        return NONE
    if attr == "requires_grad_":
        grad = "no" if args and args[0] == Const(False) else "yes"
        for tensor in parameters(m, base):
            m.update(tensor.sids[0], grad=grad, graph=0 if grad == "no" else m.storage(tensor.sids[0]).graph)
        return base
    if attr == "state_dict":
        both = [*named_tensors(m, base, "parameter"), *named_tensors(m, base, "buffer")]
        return m.record({name: replace(t, cut="detached") for name, t in both}, "dict")
    if attr in ("zero_grad", "load_state_dict"):
        m.observe(attr)
        return Other("unknown")
    return _container(m, base, attr, args, keywords, node)


def _container(
    m: Machine, base: Obj, attr: str, args: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value | None:
    fields = m.fields_of(base)
    children = {k: v for k, v in fields.fields.items() if k not in _SKIP}
    if attr in ("append", "insert") and args:
        m.m.put(base.oid, str(len(children)), args[-1])
        return base
    if attr == "extend" and args:
        for value in iterate(m, args[0], node)[0]:
            m.m.put(base.oid, str(len(m.fields_of(base).fields)), value)
        return base
    if attr == "values":
        return m.sequence([*children.values()], "list", fields.open)
    if attr == "keys":
        return m.sequence([Const(k) for k in children], "list", fields.open)
    if attr == "items":
        return m.sequence([m.sequence([Const(k), v], "tuple") for k, v in children.items()], "list", fields.open)
    if attr in ("apply",):
        for module in walk(m, base, set()):
            if m.mem is not None and args:
                grad, m.grad = m.grad, "off"
                m.call(args[0], [module], {}, node)
                m.grad = grad
        return base
    if attr == "forward":
        return m.call(base, args, keywords, node)
    return None
