"""What annotations, and the way a value is used, say of its kind: containers, what they hold, numbers, text."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from deinplace.analysis import facts
from deinplace.analysis.machine import Machine
from deinplace.analysis.values import Const, Other, Ref, Spec, Ten, Value

_TENSORS = (
    "torch.Tensor",
    "torch.FloatTensor",
    "torch.LongTensor",
    "torch.nn.Parameter",
    "torch.nn.parameter.Parameter",
)
_SEQUENCES = ("list", "List", "Sequence", "MutableSequence", "Iterable", "Iterator", "Collection", "deque")
_MAPPINGS = ("dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "DefaultDict", "defaultdict")
OPTIONAL = "annotated as a tensor or None"
_NUMBERS = ("int", "float", "bool", "complex")
_ITEMS = (dict, list, tuple, set, str)
_CONTAINER_ONLY = frozenset(name for kind in _ITEMS for name in dir(kind) if not name.startswith("_"))
"""Methods of Python's own containers and of text; those that tensors have too say nothing."""


@dataclass(frozen=True)
class _Reader:
    """Reads annotations with the names of the module that is being run."""

    m: Machine

    def spec(self, node: ast.expr | None, depth: int = 0) -> Spec | None:
        if node is None or depth > 6:
            return None
        if isinstance(node, ast.Constant):
            return self._constant(node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _either([self.spec(node.left, depth + 1), self.spec(node.right, depth + 1)])
        if isinstance(node, ast.Subscript):
            return self._subscript(node, depth)
        return self._named(node)

    def _constant(self, node: ast.Constant, depth: int) -> Spec | None:
        if node.value is None:
            return Spec("none")
        if isinstance(node.value, str) and len(node.value) < 200:
            try:
                return self.spec(ast.parse(node.value, mode="eval").body, depth + 1)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        return None

    def _subscript(self, node: ast.Subscript, depth: int) -> Spec | None:
        base = self._dotted(node.value).rpartition(".")[2]
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        inner = [self.spec(p, depth + 1) for p in parts]
        if base == "Optional":
            return _either([*inner, Spec("none")])
        if base == "Union":
            return _either(inner)
        if base in ("Final", "Annotated", "ClassVar"):
            return inner[0]
        if base in _SEQUENCES:
            return Spec("list", (inner[0],))
        if base in _MAPPINGS:
            return Spec("dict", (inner[-1],))
        if base in ("tuple", "Tuple"):
            same = isinstance(parts[-1], ast.Constant) and parts[-1].value is Ellipsis
            return Spec("list", (inner[0],)) if same else Spec("tuple", tuple(inner))
        return None

    def _named(self, node: ast.expr) -> Spec | None:
        dotted = self._dotted(node)
        last = dotted.rpartition(".")[2]
        if dotted in _TENSORS:
            return Spec("tensor")
        if dotted in _NUMBERS:
            return Spec("number")
        if dotted in ("str", "bytes"):
            return Spec("string")
        if dotted in ("numpy.ndarray", "np.ndarray"):
            return Spec("ndarray")
        if dotted in ("list", "tuple", "dict") or dotted.startswith(("typing.", "collections.")):
            return (
                Spec("dict") if last in _MAPPINGS else Spec("list") if last in (*_SEQUENCES, "tuple", "Tuple") else None
            )
        return Spec("set") if dotted in ("set", "frozenset") else None

    def _dotted(self, node: ast.expr) -> str:
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return ""
        value = self.m.evaluate(node)
        return value.name if isinstance(value, Ref) else ""


def _either(options: list[Spec | None]) -> Spec | None:
    """A union's spec: what all of its members agree on."""
    optional = any(o is not None and (o.what == "none" or o.optional) for o in options)
    real = [o for o in options if o is None or o.what != "none"]
    first = real[0] if real else None
    if first is None or any(o is None or o.what != first.what for o in real):
        return None
    parts = first.parts if all(o is not None and o.parts == first.parts for o in real) else ()
    return Spec(first.what, parts, optional or first.optional)


def read(m: Machine, node: ast.expr | None) -> Spec | None:
    """What an annotation says; None where it says nothing that matters here."""
    return _Reader(m).spec(node)


def outside(m: Machine, key: tuple[object, ...], origin: str, why: str, spec: Spec | None) -> Value:
    """Something that comes from outside, of an annotated kind."""
    if spec is None:
        return m.outside(key, origin, why)
    if spec.what in ("number", "string", "ndarray", "set") and not spec.optional:
        return Other(spec.what, m.terms.make("argument", m.serial()))
    if spec.what == "tensor":
        if spec.optional:
            return m.outside(key, origin, OPTIONAL, "likely")
        return m.outside(key, origin, "annotated as a tensor", "tensor")
    found = m.outside(key, origin, why)
    m.specs.setdefault(found.sids[0], spec)
    return found


def of(m: Machine, value: Value) -> Spec | None:
    """What is known of a value that no tensor operation has touched."""
    if not isinstance(value, Ten) or m.kind(value) != "unknown":
        return None
    specs = {m.specs.get(s) for s in value.sids}
    return specs.pop() if len(specs) == 1 else None


def element(m: Machine, value: Ten, key: tuple[object, ...], n: int | None = None) -> Value:
    """An element of something that is no tensor as far as is known, of the kind that its annotation gives."""
    spec = of(m, value)
    parts = spec.parts if spec is not None else ()
    inner: Spec | None = None
    if spec is not None and spec.what == "tuple":
        inner = parts[n] if n is not None and -len(parts) <= n < len(parts) else None
    elif parts:
        inner = parts[0]
    return outside(m, key, "element", "an element of a value of unknown kind", inner)


def position(index: Value) -> int | None:
    """A constant integer index."""
    return index.value if isinstance(index, Const) and type(index.value) is int else None


def used_as(m: Machine, value: Value, what: str) -> None:
    """Note that a value was used as only `what` can be; not for one whose class the program asks about."""
    if isinstance(value, Ten) and m.kind(value) == "unknown":
        for sid in value.sids:
            if sid not in m.asked:
                m.specs.setdefault(sid, Spec(what))


def method_of_containers(attr: str) -> bool:
    """True for methods that Python's containers and texts have, and tensors do not."""
    return attr in _CONTAINER_ONLY and facts.method(attr) is None
