"""Which functions make modules or tensors: all others matter little for what a constructor leaves behind."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from deinplace.analysis import facts
from deinplace.analysis.imports import dotted_path
from deinplace.analysis.index import ClassInfo, FunctionInfo, Index, Lineage, ModuleInfo

_KEEPS = frozenset({"register_buffer", "register_parameter", "add_module", "register_module"})
_GROWS = frozenset({"append", "extend", "insert", "update"})
_UNKNOWN = "?"
_BUILTINS = frozenset(dir(builtins))


class Builders:
    """Answers for the functions of a project, each found out once, from the source alone.

    A function makes something where, in a value that is more than a test, it calls or names what in torch gives a
    tensor or a module, constructs one of the project's modules, or calls what it was handed or what makes something.
    It keeps something where it binds that to an attribute, an element, or by `register_buffer` and its like.
    """

    def __init__(self, lineage: Lineage, index: Index) -> None:
        self._lineage, self._index = lineage, index
        self._making: dict[FunctionInfo, bool] = {}
        self._keeping: dict[FunctionInfo, bool] = {}

    def matters(self, info: FunctionInfo, discarded: bool) -> bool:
        """True where a call of this function may make a module or a tensor that stays, with its result `discarded`."""
        if info.name == "__init__" and info.owner is not None and self._lineage.is_module(info.owner):
            return True
        return self.keeps(info) or (not discarded and self.makes(info))

    def makes(self, info: FunctionInfo) -> bool:
        """True where the result may be, or hold, a module or a tensor that was made there."""
        known = self._making.get(info)
        if known is None:
            self._making[info] = False  # while it is being found out: one that calls itself
            known = self._making[info] = any(self._made(info, value) for value, _ in _values(info.node.body))
        return known

    def keeps(self, info: FunctionInfo) -> bool:
        """True where it may leave a module or a tensor behind in what it was given."""
        known = self._keeping.get(info)
        if known is None:
            self._keeping[info] = False
            known = self._keeping[info] = any(
                self._discarded(info, value) if where is None else self._stored(info, where, value)
                for value, where in _values(info.node.body, discarded=True)
            )
        return known

    def _stored(self, info: FunctionInfo, where: list[ast.expr], value: ast.expr) -> bool:
        kept = any(isinstance(t, ast.Subscript) or (isinstance(t, ast.Attribute) and t.attr != "data") for t in where)
        return kept and self._made(info, value)

    def _discarded(self, info: FunctionInfo, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call):
            return False
        func = value.func
        if isinstance(func, ast.Attribute) and func.attr in _KEEPS:
            return True
        if isinstance(func, ast.Attribute) and func.attr in _GROWS:
            return any(self._made(info, arg) for arg in value.args)
        found = self._callee(info, func)
        return isinstance(found, FunctionInfo) and self.keeps(found)

    def _made(self, info: FunctionInfo, value: ast.expr) -> bool:
        """True where an expression holds something that makes a module or a tensor."""
        todo: list[ast.AST] = [value]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
                    continue
                if self._call_makes(info, node.func):
                    return True
            elif isinstance(node, (ast.Name, ast.Attribute)) and _of_torch(self._dotted(info.path, node)):
                return True
            elif isinstance(node, ast.IfExp):
                todo += [node.body, node.orelse]
                continue
            elif isinstance(node, ast.Compare):
                continue
            todo += ast.iter_child_nodes(node)
        return False

    def _call_makes(self, info: FunctionInfo, func: ast.expr) -> bool:
        found = self._callee(info, func)
        if isinstance(found, ClassInfo):
            init = self._lineage.find_method(found, "__init__")
            return self._lineage.is_module(found) or (init is not None and self.keeps(init))
        if found is not None:
            return self.makes(found)
        if isinstance(func, ast.Name):
            return self._dotted(info.path, func) == _UNKNOWN
        return not isinstance(func, (ast.Attribute, ast.Call))

    def _callee(self, info: FunctionInfo, func: ast.expr) -> FunctionInfo | ClassInfo | None:
        """The function or class of the project that is called there, where its name says so."""
        if isinstance(func, ast.Name) and func.id == "cls" and info.owner is not None:
            return info.owner
        if isinstance(func, ast.Attribute) and info.owner is not None:
            if isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
                return self._lineage.find_method(info.owner, func.attr)
            if isinstance(func.value, ast.Call) and isinstance(func.value.func, ast.Name):
                above = func.value.func.id == "super"
                return self._lineage.find_method(info.owner, func.attr, info.owner) if above else None
        if not isinstance(func, (ast.Name, ast.Attribute)):
            return None
        return self._named(self._dotted(info.path, func), self._index.modules[info.path], 3)

    def _named(self, dotted: str, near: ModuleInfo, depth: int) -> FunctionInfo | ClassInfo | None:
        base, _, last = dotted.rpartition(".")
        module = self._index.module(base, near.path) if base else near
        if module is None or not depth:
            return None
        found = module.named_classes.get(last) or module.named.get(last)
        further = module.imports.get(last)
        return found if found is not None or further is None else self._named(further, module, depth - 1)

    def _dotted(self, path: str, node: ast.expr) -> str:
        """The dotted name of what stands there: its own where this file defines it, `?` for a local name."""
        name, *rest = dotted_path(node) or ("",)
        module = self._index.modules[path]
        imported = module.imports.get(name)
        if imported is not None:
            return ".".join([imported, *rest])
        if rest or not name:
            return ""
        known = name in module.named or name in module.named_classes
        return name if known else "" if name in _BUILTINS else _UNKNOWN


def _values(body: list[ast.stmt], discarded: bool = False) -> Iterator[tuple[ast.expr, list[ast.expr] | None]]:
    """Values that statements return, bind or yield, and the targets; `discarded`: those that they leave, too."""
    todo: list[ast.AST] = [*body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Expr):
            if isinstance(node.value, (ast.Yield, ast.YieldFrom)) and node.value.value is not None:
                yield node.value.value, []
            elif discarded:
                yield node.value, None
            elif isinstance(node.value, ast.Call) and getattr(node.value.func, "attr", "") in _GROWS:
                yield from ((arg, []) for arg in node.value.args)
        elif isinstance(node, ast.Assign):
            yield node.value, node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            yield node.value, [node.target]
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node.value, []
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            todo += node.body
        else:
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                todo += getattr(node, name, None) or []


def _of_torch(dotted: str) -> bool:
    """True for the name of a module class, and of a function that gives tensors."""
    if not dotted.startswith("torch.") or dotted == "torch.nn.Module":
        return False
    if dotted.startswith("torch.nn.") and not dotted.startswith(("torch.nn.init.", "torch.nn.functional.")):
        return dotted.rpartition(".")[2][:1].isupper()
    entry = facts.function(dotted)
    return entry is not None and entry.returns != "other"
