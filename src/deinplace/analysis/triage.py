"""Which functions are worth an abstract run: those with a write that may reach a tensor that backward still needs.

A look at one function's own statements is a hundredth of the cost of a run. What is dropped here cannot break backward:
numbers, strings and containers, initialisation, and new buffers that are filled before anybody reads them.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping

from deinplace.analysis import facts
from deinplace.analysis.imports import dotted_path
from deinplace.analysis.scan import Scan
from deinplace.analysis.source import Function

_TEXT = (ast.JoinedStr, ast.Dict, ast.DictComp, ast.Set, ast.SetComp, ast.Lambda)
_CONTAINERS = (ast.List, ast.ListComp, ast.Tuple, *_TEXT)
_LITERALS = (ast.Constant, *_CONTAINERS)
_PLAIN_CALLS = frozenset(
    {"len", "int", "float", "bool", "str", "repr", "list", "dict", "set", "tuple", "range", "isinstance", "hasattr",
     "ord", "hash", "id", "enumerate", "sorted", "zip", "format", "frozenset", "defaultdict", "OrderedDict", "Counter",
     "deque"}
)  # fmt: skip
_PLAIN_METHODS = frozenset(
    {"item", "tolist", "size", "dim", "numel", "numpy", "join", "format", "element_size", "stride"}
)
_PLAIN_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "__name__"})
_PLAIN_PACKAGES = ("math.", "numpy.", "os.", "time.", "random.", "re.", "json.", "sys.", "pandas.", "collections.")
_OFF = ("no_grad", "inference_mode")
_BUILTINS = frozenset(n for n in (*dir(builtins), *dir(list), *dir(dict), *dir(str)) if facts.method(n) is None)
_DICT_METHODS = frozenset({"items", "keys", "setdefault", "update", "append", "extend", "popitem", "pop"})


class Triage:
    """Judges the functions of one file. `imports` says what its imported names stand for."""

    def __init__(self, imports: Mapping[str, str], text: str = "") -> None:
        self.imports = imports
        self.inference = "inference_mode" in text

    def writes(self, function: Function, found: Scan, attributes: Mapping[str, list[ast.expr]]) -> bool:
        """True where one of a function's writes may matter. `attributes` holds what its class sets on `self`."""
        off = any(_is_off(d) for d in function.decorator_list)
        if function.name != "forward" and not self._computes(function, found):
            return False
        return any(self._matters(site, found, attributes, off) for site in found.sites)

    def _computes(self, function: Function, found: Scan) -> bool:
        """True where anything in a function can be a tensor: something of torch's, a call into code, an annotation."""
        if not found.called <= _BUILTINS or any(self.imports.get(n, "").startswith("torch") for n in found.loads):
            return True
        args = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        return any(a.annotation is not None and "Tensor" in ast.unparse(a.annotation) for a in args)

    def flags(self, found: Scan) -> bool:
        """True where a module may be built that works in place."""
        return any(isinstance(s, ast.Call) and self._flag(s) for s in found.sites)

    def _flag(self, node: ast.Call) -> bool:
        return any(k.arg == "inplace" and not _is_constant(k.value, (False, None)) for k in node.keywords)

    def _matters(self, site: ast.AST, found: Scan, attributes: Mapping[str, list[ast.expr]], off: bool) -> bool:
        if isinstance(site, ast.AugAssign):
            return self._augmented(site, found, attributes)
        if isinstance(site, ast.Assign):
            return any(self._stored(t, site, found, attributes, off) for t in site.targets)
        return isinstance(site, ast.Call) and self._call(site, found, off)

    def _augmented(self, site: ast.AugAssign, found: Scan, attributes: Mapping[str, list[ast.expr]]) -> bool:
        if isinstance(site.value, _CONTAINERS) or _is_text(site.value):
            return False
        target = site.target
        if isinstance(site.op, (ast.Add, ast.Sub)) and self._unread(target, found):
            return False
        if isinstance(target, ast.Subscript) and self._plain_element(target, found, attributes):
            # an element may be a tensor, whatever holds it: `losses["all"] += loss`
            return not self._plain(site.value, found, attributes, set())
        if isinstance(target, ast.Subscript):
            return True
        return not self._plain(target, found, attributes, set())

    def _stored(
        self, target: ast.expr, site: ast.Assign, found: Scan, attributes: Mapping[str, list[ast.expr]], off: bool
    ) -> bool:
        if isinstance(target, ast.Attribute):
            return target.attr in ("data", "real", "imag")
        if not isinstance(target, ast.Subscript) or off:
            return False
        value = site.value
        if isinstance(value, _TEXT) or _is_text(value) or _is_constant(value, (None,)):
            return False
        return not self._plain_element(target, found, attributes) and not self._unread(target.value, found)

    def _plain_element(self, target: ast.Subscript, found: Scan, attributes: Mapping[str, list[ast.expr]]) -> bool:
        """An element of what is no tensor: by its index, or by what holds it."""
        return _is_text(target.slice) or self._plain(target.value, found, attributes, set())

    def _call(self, site: ast.Call, found: Scan, off: bool) -> bool:
        func = site.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if self._flag(site) or any(k.arg == "out" and not _is_constant(k.value, (None, False)) for k in site.keywords):
            return not found.builds and not _builds(name)
        if not name.endswith("_") or name.endswith("__"):
            return False
        if isinstance(func, ast.Name):
            dotted = self.imports.get(name, "")
            return not dotted.startswith("torch.nn.init.") and (
                facts.method(name) is not None or facts.function(dotted) is not None
            )
        if self._initialises(func):
            return False
        entry = facts.method(name)
        if entry is None:
            return facts.function(self._dotted(func)) is not None
        if name == "requires_grad_" or (off and "div" not in name):
            return False
        return bool(entry.saves & {"self", "result"}) or not (
            isinstance(func, ast.Attribute) and self._unread(func.value, found)
        )

    def _initialises(self, func: ast.expr) -> bool:
        """True for `init.normal_` and its like."""
        dotted = self._dotted(func)
        return dotted.rpartition(".")[0].endswith(("init", "initialization")) or dotted.startswith(_PLAIN_PACKAGES)

    def _dotted(self, node: ast.expr) -> str:
        path = dotted_path(node)
        return ".".join([self.imports.get(path[0], path[0]), *path[1:]]) if path else ""

    def _plain(
        self, node: ast.expr | None, found: Scan, attributes: Mapping[str, list[ast.expr]], seen: set[str]
    ) -> bool:
        """True where an expression is surely no tensor, whichever way the function runs."""
        if node is None:
            return False
        if isinstance(node, ast.Compare):
            return all(self._plain(n, found, attributes, seen) for n in (node.left, *node.comparators))
        if isinstance(node, _LITERALS):
            return True
        if isinstance(node, ast.Name):
            return self._plain_name(node.id, found, attributes, seen)
        if isinstance(node, ast.BinOp):
            both = (self._plain(side, found, attributes, seen) for side in (node.left, node.right))
            return all(both) or isinstance(node.left, _CONTAINERS) or _is_text(node.left)
        if isinstance(node, ast.UnaryOp):
            return self._plain(node.operand, found, attributes, seen)
        if isinstance(node, ast.IfExp):
            return all(self._plain(n, found, attributes, seen) for n in (node.body, node.orelse))
        if isinstance(node, ast.BoolOp):
            return all(self._plain(n, found, attributes, seen) for n in node.values)
        if isinstance(node, ast.Attribute):
            return node.attr in _PLAIN_ATTRIBUTES or self._plain_attribute(node, found, attributes, seen)
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return isinstance(node, ast.Call) and self._plain_call(node)

    def _plain_name(self, name: str, found: Scan, attributes: Mapping[str, list[ast.expr]], seen: set[str]) -> bool:
        if name in seen:
            return True
        if found.methods.get(name, frozenset()) & _DICT_METHODS:
            return True
        bound = found.bound.get(name)
        if not bound:
            return False
        inner = {*seen, name}
        whole = found.builds or all(isinstance(b, _CONTAINERS) or (b is not None and _is_text(b)) for b in bound)
        grown = [] if whole else found.grown.get(name, [])
        return all(self._plain(value, found, attributes, inner) for value in (*bound, *grown))

    def _plain_attribute(
        self, node: ast.Attribute, found: Scan, attributes: Mapping[str, list[ast.expr]], seen: set[str]
    ) -> bool:
        """`self.x` that its class only ever binds to what is no tensor."""
        name = f"self.{node.attr}"
        if not isinstance(node.value, ast.Name) or node.value.id != "self" or name in seen:
            return name in seen
        bound = attributes.get(node.attr)
        empty = Scan()
        return bool(bound) and all(self._plain(v, empty, attributes, {*seen, name}) for v in bound or ())

    def _plain_call(self, node: ast.Call) -> bool:
        func = node.func
        if isinstance(func, ast.Name) and func.id in _PLAIN_CALLS:
            return True
        if isinstance(func, ast.Attribute) and func.attr in _PLAIN_METHODS:
            return True
        return self._dotted(func).startswith(_PLAIN_PACKAGES)

    def _unread(self, target: ast.expr, found: Scan) -> bool:
        """True for a write into a buffer that was made here and that nobody reads before its last write."""
        base = _root(target)
        if not isinstance(base, ast.Name) or found.nested or self.inference:
            return False
        bound = found.bound.get(base.id, [None])
        if not all(isinstance(b, ast.Call) and self._makes(b) for b in bound):
            return False
        mine = [node for node in found.loads.get(base.id, ()) if node is not base]
        roots = {id(_root(t)) for site in found.sites for t in _targets(site)}
        reads = [node for node in mine if id(node) not in roots]
        last = max((site.end_lineno for site in found.sites if _writes_to(site, base.id)), default=0)  # type: ignore[attr-defined]
        loop = next((lp for lp in found.loops if _inside(base, lp) and not all(_inside(b, lp) for b in bound)), None)
        return all(node.lineno > last and (loop is None or not _inside(node, loop)) for node in reads)

    def _makes(self, node: ast.Call) -> bool:
        """A factory of new tensors that require no gradients."""
        if any(k.arg == "requires_grad" for k in node.keywords):
            return False
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr.startswith("new_"):
            return True
        entry = facts.function(self._dotted(func))
        return entry is not None and entry.factory


def _is_off(decorator: ast.expr) -> bool:
    func = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(func, "attr", getattr(func, "id", "")) in _OFF


def _builds(name: str) -> bool:
    """True for the name of a class: it builds a module, whose forward is judged by itself."""
    return name[:1].isupper()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _is_constant(node: ast.AST, values: tuple[object, ...]) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is v for v in values)


def _targets(site: ast.AST) -> Iterator[ast.expr]:
    if isinstance(site, ast.AugAssign):
        yield site.target
    elif isinstance(site, ast.Assign):
        yield from site.targets
    elif isinstance(site, ast.Call) and isinstance(site.func, ast.Attribute):
        yield site.func.value


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _writes_to(site: ast.AST, name: str) -> bool:
    return any(isinstance(root := _root(t), ast.Name) and root.id == name for t in _targets(site))


def _inside(node: ast.AST | None, outer: ast.AST) -> bool:
    if node is None:
        return False
    return outer.lineno <= node.lineno and node.end_lineno <= outer.end_lineno  # type: ignore[attr-defined, no-any-return]
