"""An abstract run: its tensors, the graph that autograd would build, what is observed, and what classes give."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from deinplace.analysis.index import ClassInfo, FunctionInfo
from deinplace.analysis.memory import Memory, join, stronger, tensors_in
from deinplace.analysis.records import Frame
from deinplace.analysis.source import names_in, span_of
from deinplace.analysis.store import Store
from deinplace.analysis.values import (
    NO_IDS,
    Cls,
    Const,
    Fields,
    Fn,
    Grad,
    Items,
    Kind,
    Lam,
    Obj,
    Other,
    Ref,
    Storage,
    Ten,
    Torch,
    Union,
    Value,
)
from deinplace.model import Place, Span

if TYPE_CHECKING:
    pass

MAX_DEPTH = 24
GLANCE_DEPTH = 3


class Machine(Store):
    """Answers about what lives in memory. Evaluation itself lies in `expressions`, `statements` and `calls`."""

    def kind(self, value: Ten) -> Kind:
        """How sure it is that this is a tensor: as sure as for the least sure storage."""
        kinds = {self.m.storage(s).kind for s in value.sids}
        return "tensor" if kinds == {"tensor"} else "unknown" if "unknown" in kinds else "likely"

    def refine(self, value: Value, why: str, kind: Kind = "tensor") -> None:
        """Note that a value was used as only tensors are."""
        if isinstance(value, Ten):
            for sid in value.sids:
                known = self.m.storage(sid)
                if known.kind == "unknown" or (known.kind == "likely" and kind == "tensor"):
                    self.update(sid, kind=kind, why=why)

    def read(self, value: Ten) -> int:
        """The term of what a tensor holds now."""
        if value.choice is not None:
            return self._chosen(value, self.read, {})
        return self.terms.get(self.m.storage(value.sids[0]).term, value.path)

    def _chosen(self, value: Ten, of: Callable[[Ten], int], known: dict[int, int]) -> int:
        """The term of a value that hangs on conditions; choices share parts, and each part is looked at once."""
        if value.choice is None:
            return of(value)
        if id(value) not in known:
            self.step()
            condition, yes, no = value.choice
            parts = self._chosen(yes, of, known), self._chosen(no, of, known)
            known[id(value)] = self.terms.choose(condition, *parts)
        return known[id(value)]

    def graph_of(self, value: Ten) -> int:
        """The term of how gradients leave a tensor; 0 for none."""
        if value.choice is not None:
            return self._chosen(value, self.graph_of, {})
        graph = 0 if value.cut else self.m.storage(value.sids[0]).graph
        return self.terms.get(graph, value.path) if graph else 0

    def own_graph(self, value: Ten) -> int:
        """The same for whoever may ask for a tensor's own gradient: a leaf is told from a copy of it.

        A copy computes the same, but it is no leaf: backward leaves no `.grad` there, and what was computed from the
        leaf before does not lead to it. What came from outside may be a leaf until an operation of this run writes it.
        """
        if value.choice is not None:
            return self._chosen(value, self.own_graph, {})
        graph = self.graph_of(value)
        known = self.m.storage(value.sids[0])
        made = value.cut or value.path or known.nodes or (known.origin == "fresh" and "leaf" not in known.flags)
        return graph if made or not graph else self.terms.make("own", graph)

    def graphs_of(self, value: Value) -> int:
        """The term of how gradients leave the tensors that a value is or holds; 0 for none."""
        if isinstance(value, Ten):
            return self.own_graph(value)
        graphs = [self.own_graph(t) for t in tensors_in(value, self.m)]
        return self.terms.make("graphs", *graphs) if any(graphs) else 0

    def grad_of(self, value: Ten) -> Grad:
        """Whether a tensor requires gradients."""
        if value.cut:
            return "no"
        grads: set[Grad] = {self.m.storage(s).grad for s in value.sids}
        return grads.pop() if len(grads) == 1 else "maybe"

    def nodes_of(self, value: Ten) -> frozenset[int]:
        """The backward nodes that made a tensor."""
        return NO_IDS if value.cut else NO_IDS.union(*(self.m.storage(s).nodes for s in value.sids))

    def behind(self, nodes: frozenset[int]) -> frozenset[int]:
        """Backward nodes, and all that they lead to."""
        seen, todo = set(nodes), list(nodes)
        while todo:
            for parent in self.parents[todo.pop()]:
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
        return frozenset(seen)

    def dtype_of(self, value: Ten) -> str:
        """A tensor's dtype where it is known."""
        dtypes = {self.m.storage(s).dtype for s in value.sids}
        return dtypes.pop() if len(dtypes) == 1 else ""

    def node(self, inputs: list[Ten]) -> int:
        """A backward node over inputs."""
        self.parents.append(NO_IDS.union(*(self.nodes_of(t) for t in inputs)) if inputs else NO_IDS)
        return len(self.parents) - 1

    def mixed(self, inputs: list[Ten]) -> Grad:
        """Whether a result of these inputs requires gradients."""
        out: Grad = "no"
        for value in inputs:
            out = stronger(out, self.grad_of(value))
        return "no" if self.grad == "off" else "maybe" if self.grad == "unknown" and out == "yes" else out

    def term_of(self, value: Value, depth: int = 3) -> int:
        """The term of any value."""
        make = self.terms.make
        if isinstance(value, Ten):
            return self.read(value)
        if isinstance(value, Const):
            return make("const", type(value.value).__name__, repr(value.value))
        if isinstance(value, Other):
            return value.term or make("other", value.what)
        if isinstance(value, Ref):
            return make("ref", value.name)
        if isinstance(value, Fn):
            return make("function", value.info.path, value.info.qualname)
        if isinstance(value, Union):
            return make("union", *(self.term_of(v, depth) for v in value.options))
        if isinstance(value, Obj) and depth:
            content = self.m.peek(value.oid)
            if isinstance(content, Items):
                return make(value.what, *(self.term_of(v, depth - 1) for v in content.items))
            if isinstance(content, Fields):
                pairs = sorted(
                    ((str(k), self.term_of(v, depth - 1)) for k, v in content.fields.items() if k != "inplace")
                )
                return make(value.what, *pairs)
        return make(type(value).__name__)

    # places and events

    def place(self, node: ast.AST | None = None, frame: Frame | None = None) -> Place:
        """Where `node` of the running function stands."""
        frame = frame or self.frames[-1]
        node = node or frame.node
        key = (node, frame.module.path, frame.function)
        found = self.places.get(key)
        if found is None:
            span = span_of(node) if node is not None and hasattr(node, "lineno") else Span(1, 0, 1, 0)
            found = self.places[key] = Place(frame.module.path, span, frame.function)
        return found

    def stack(self, node: ast.AST | None = None) -> tuple[Place, ...]:
        """The running functions, innermost first."""
        frames = self.frames[::-1]
        return tuple(self.place(node if n == 0 else None, f) for n, f in enumerate(frames))

    def observe(self, what: str, *terms: object) -> None:
        """Record an event that somebody outside may see."""
        self.trace.append((what, *terms))

    def tick(self) -> int:
        """Advance the clock that orders writes and backward passes."""
        self.clock += 1
        return self.clock

    def sink(self, values: list[Ten]) -> None:
        """A backward pass, or a hand-over to somebody who may run one, over these values."""
        self.sinks.append((NO_IDS.union(*(self.nodes_of(v) for v in values)) if values else NO_IDS, self.tick()))

    def merge(self, first: Memory | None, second: Memory | None) -> Memory | None:
        """Two paths meet."""
        if first is None or second is None:
            return first if second is None else second
        return join(first, second, self.terms, self.terms.make("condition", self.serial()))

    def merge_at(self, first: Memory | None, second: Memory | None, condition: int) -> Memory | None:
        """The two paths of a condition meet."""
        return join(first, second, self.terms, condition)

    def storage(self, sid: int) -> Storage:
        """What is known of a storage."""
        return self.m.storage(sid)

    def fields_of(self, value: Obj) -> Fields:
        """Contents of a dict or an instance."""
        return self.m.fields(value.oid)

    def items_of(self, value: Obj) -> Items:
        """Contents of a list or tuple."""
        return self.m.items(value.oid)

    def merge_all(self, memories: Iterator[Memory | None] | list[Memory | None]) -> Memory | None:
        """Any number of paths meet."""
        out: Memory | None = None
        for memory in memories:
            out = self.merge(out, memory)
        return out

    def escape(self, value: Value, to: str, depth: int = 4) -> None:
        """Somebody unknown may keep `value`."""
        held = list(tensors_in(value, self.m, depth))
        if isinstance(value, (Lam, Fn)) and value.closure:  # whoever calls it sees what it closes over
            node = value.node if isinstance(value, Lam) else value.info.node
            names = names_in([node])
            for fid in value.closure:
                content = self.m.peek(fid)
                if isinstance(content, Fields):
                    held += [t for n in names & content.fields.keys() for t in tensors_in(content.fields[n], self.m, 2)]
        for tensor in held:
            for sid in tensor.sids:
                known = self.m.storage(sid)
                if to not in known.flags and len(known.flags) < 4:
                    self.update(sid, flags=known.flags | {to})

    def text(self, node: ast.expr) -> str:
        """What an expression says."""
        found = self.labels.get(node)
        if found is None:
            found = self.labels[node] = ast.unparse(node)
        return found

    @property
    def frame(self) -> Frame:
        """The innermost frame."""
        return self.frames[-1]

    def torch_tag(self, value: Value) -> Torch | None:
        """The description of a module of torch's own."""
        if isinstance(value, Obj) and value.what == "module":
            tag = self.m.fields(value.oid).tag
            return tag if isinstance(tag, Torch) else None
        return None

    def class_of(self, value: Value) -> ClassInfo | None:
        """The class of an instance of one of the project's classes."""
        if isinstance(value, Obj) and value.what == "instance":
            tag = self.m.fields(value.oid).tag
            return tag if isinstance(tag, ClassInfo) else None
        return None

    # classes

    def bases(self, info: ClassInfo) -> list[ClassInfo | str]:
        """The class and its ancestors, depth first; dotted names for those outside the project."""
        known = self.orders.get(info)
        if known is not None:
            return known
        order: list[ClassInfo | str] = [info]
        self.orders[info] = order
        module = self.index.modules[info.path]
        fid = self.globals.get(info.path)
        if fid is None:
            return order
        self.frames.append(Frame(fid, module, module.source.tree, "<module>"))
        for base in info.node.bases:
            value = self.evaluate(base) if isinstance(base, (ast.Name, ast.Attribute)) else None
            if isinstance(value, Cls):
                order += [b for b in self.bases(value.info) if b not in order]
            elif isinstance(value, Ref):
                order.append(value.name)
        self.frames.pop()
        return order

    def method_of(self, value: Value, name: str) -> Value | None:
        """A bound method of an instance of one of the project's classes."""
        owner = self.class_of(value)
        method = self.find_method(owner, name) if owner is not None else None
        if method is None:
            return None
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.node.decorator_list)
        return Fn(method, (), None if static else value, self.defaults_of(method))

    def defaults_of(self, info: FunctionInfo) -> tuple[tuple[str, Value], ...]:
        """A method's defaults, evaluated in its module; the same objects at every call."""
        key = ("defaults", info.node)
        found = self.default_values.get(key)
        if found is None:
            module = self.index.modules[info.path]
            fid = self.globals.get(info.path, -1)
            self.frames.append(Frame(fid, module, module.source.tree, "<module>"))
            args = info.node.args
            plain = [*args.posonlyargs, *args.args]
            pairs = list(zip(plain[::-1], args.defaults[::-1], strict=False))
            pairs += [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
            found = tuple((a.arg, self.evaluate(d)) for a, d in pairs) if fid >= 0 else ()
            self.default_values[key] = found
            self.frames.pop()
        return found

    def class_field(self, info: ClassInfo, name: str) -> Value | None:
        """A class attribute."""
        for base in self.bases(info):
            if isinstance(base, ClassInfo):
                found = self.class_fields.get(base, {}).get(name)
                if found is not None:
                    return found
        return None

    def entered(self, info: FunctionInfo) -> bool:
        """True while `info` runs; recursion is cut."""
        depth = GLANCE_DEPTH if self.glance else MAX_DEPTH
        code = self.patched.get(info.node, info.node)
        return sum(f.scope is code for f in self.frames) >= 2 or len(self.frames) > depth
