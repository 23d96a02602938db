"""Gradient mode: what context managers and decorators switch on and off."""

from __future__ import annotations

import ast
import re

from deinplace.analysis.machine import Machine
from deinplace.analysis.values import Const, Other, Ref, Ten, Union, Value

INFERENCE = ("torch.inference_mode", "torch.autograd.inference_mode", "torch.autograd.grad_mode.inference_mode")
OFF = ("torch.no_grad", "torch.autograd.no_grad", *INFERENCE)
ON = ("torch.enable_grad", "torch.autograd.enable_grad")
_SWITCHES = re.compile(r"grad|infer", re.IGNORECASE)
_RAISES = re.compile(r"\b(?:raises|assertRaises\w*)\(")
_HARMLESS = ("property", "setter", "getter", "deleter", "staticmethod", "classmethod", "abstractmethod",
             "contextmanager", "asynccontextmanager", "overload", "override", "final", "wraps")  # fmt: skip
FAILING = "expects backward to fail"
DOUBTFUL = "switches gradients in a way that is not followed"
SET = ("torch.set_grad_enabled", "torch.autograd.set_grad_enabled", "torch.autograd.grad_mode.set_grad_enabled")


def mode_of(m: Machine, value: Value) -> str:
    """`on`, `off` or `unknown` for a value used as a context manager or decorator; empty where it sets no mode."""
    if isinstance(value, Other) and value.what.startswith("grad:"):
        return "off" if infers(value) else value.what[5:]
    if isinstance(value, Ref):
        return "off" if value.name in OFF else "on" if value.name in ON else ""
    return ""


def doubtful(m: Machine, value: Value, text: str) -> bool:
    """True for what may or may not be a context manager that switches gradients: one of two, or one that is unknown."""
    if isinstance(value, Union):
        return any(mode_of(m, option) for option in value.options)
    return isinstance(value, (Ten, Other)) and not mode_of(m, value) and _SWITCHES.search(text) is not None


def expects_an_error(text: str) -> bool:
    """True for `pytest.raises(...)`, `self.assertRaises(...)` and their like."""
    return _RAISES.search(text) is not None


def infers(value: Value) -> bool:
    """True for `torch.inference_mode()`: tensors that are made under it may be written only under it."""
    if isinstance(value, Ref):
        return value.name in INFERENCE
    return isinstance(value, Other) and value.what == "grad:inference"


def manager(name: str, args: list[Value]) -> Value | None:
    """The value of `torch.no_grad()` and its like."""
    first = args[0] if args else None
    if name in OFF or name in ON:
        off = name in OFF and not (isinstance(first, Const) and first.value is False)
        if name in INFERENCE:
            return Other("grad:inference") if off else Other("grad:on")
        return Other("grad:off" if off else "grad:on")
    if name in SET:
        known = first.value if isinstance(first, Const) else None
        return Other("grad:unknown" if known is None else "grad:on" if known else "grad:off")
    return None


def decorated(m: Machine, value: Value, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Value:
    """A function after its decorators; those that are not understood leave it as it is."""
    return value


def decorator_mode(m: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The gradient mode that a function's decorators set."""
    for decorator in node.decorator_list:
        mode = mode_of(m, m.evaluate(decorator))
        if mode:
            return mode
    return ""


def decorator_infers(m: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True where a decorator runs the function in inference mode."""
    return any(infers(m.evaluate(d)) for d in node.decorator_list)


def keeper(m: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The first decorator that may keep what goes in and out of a function; empty where none can.

    Those of torch and of the language itself do not; a cache does, and nobody knows what others do.
    """
    for decorator in node.decorator_list:
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        text = ast.unparse(named)
        if text.rpartition(".")[2] in _HARMLESS:
            continue
        root = named
        while isinstance(root, ast.Attribute):
            root = root.value
        value = m.evaluate(named) if isinstance(root, ast.Name) else None
        if not isinstance(value, Ref) or not value.name.startswith("torch."):
            return text
    return ""


def special(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """`property`, `staticmethod`, `classmethod`, `contextmanager`, or empty, by the function's decorators."""
    for decorator in node.decorator_list:
        plain = isinstance(decorator, (ast.Name, ast.Attribute))
        name = getattr(decorator, "attr", getattr(decorator, "id", "")) if plain else ""
        if name in ("property", "cached_property", "staticmethod", "classmethod", "contextmanager"):
            return "property" if name == "cached_property" else name
    return ""
