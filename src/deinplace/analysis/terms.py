"""Terms: numbers that stand for values, so that two programs can be compared without running them.

Equal terms are equal values. An operation's term is made of its name and its arguments' terms; a copy has the term of
what it copies; a write into a part of a tensor is a `put`, a read of a part a `get`.
"""

from __future__ import annotations


class Terms:
    """A table of terms. Two analyses are comparable when they share one."""

    def __init__(self) -> None:
        self._ids: dict[tuple[object, ...], int] = {}
        self._parts: list[tuple[object, ...]] = [("none",)]

    def make(self, *parts: object) -> int:
        """The term of an operation and its operands."""
        found = self._ids.get(parts)
        if found is None:
            found = self._ids[parts] = len(self._parts)
            self._parts.append(parts)
        return found

    def parts(self, term: int) -> tuple[object, ...]:
        """What a term was made of."""
        return self._parts[term]

    def choose(self, condition: int, yes: int, no: int) -> int:
        """`yes` where the condition held, `no` elsewhere."""
        yes, no = self._under(condition, yes, 1), self._under(condition, no, 2)
        return yes if yes == no else self.make("phi", condition, yes, no)

    def _under(self, condition: int, term: int, side: int) -> int:
        parts = self._parts[term]
        while parts[0] == "phi" and parts[1] == condition:
            term = int(str(parts[1 + side]))
            parts = self._parts[term]
        return term

    def get(self, base: int, path: tuple[object, ...]) -> int:
        """The part of `base` at `path`, looking through writes to parts that lie elsewhere."""
        if not path:
            return base
        while True:
            parts = self._parts[base]
            if parts[0] != "put":
                break
            if parts[2] == path:
                return int(str(parts[3]))
            if not self.disjoint(parts[2], path):
                break
            base = int(str(parts[1]))
        return self.make("get", base, path) if base else 0

    def put(self, base: int, path: tuple[object, ...], value: int) -> int:
        """`base` after `value` was written to its part at `path`."""
        return self.make("put", base, path, value) if path else value

    def disjoint(self, first: object, second: object) -> bool:
        """True where two paths share a prefix and then name parts that cannot overlap."""
        if not (isinstance(first, tuple) and isinstance(second, tuple)):
            return False
        for a, b in zip(first, second, strict=False):
            if a != b:
                return isinstance(a, tuple) and isinstance(b, tuple) and self._apart(a, b)
        return False

    def _apart(self, a: tuple[object, ...], b: tuple[object, ...]) -> bool:
        """Two index steps: `("index", part, part, ...)`, each part a term; or outputs `("output", n)`."""
        if a[0] == b[0] == "output":
            return True
        if a[0] != "index" or b[0] != "index" or len(a) != len(b):
            return False
        return any(self._parts_apart(x, y) for x, y in zip(a[1:], b[1:], strict=True)) and not any(
            self._kind(x) == "any" or self._kind(y) == "any" for x, y in zip(a[1:], b[1:], strict=True)
        )

    def _kind(self, term: object) -> object:
        return self._parts[int(str(term))][0]

    def _parts_apart(self, x: object, y: object) -> bool:
        """`:k` and `k:`, or two different constants."""
        p, q = self._parts[int(str(x))], self._parts[int(str(y))]
        if p[0] == q[0] == "const":
            return p != q and p[1] == q[1] == "int" and (str(p[2]).startswith("-") == str(q[2]).startswith("-"))
        if p[0] == q[0] == "slice" and p[3] == q[3]:
            none = self.make("const", "NoneType", "None")
            return (
                (p[1] == none and q[1] == p[2] != none) or (q[1] == none and p[1] == q[2] != none) or self._ranges(p, q)
            )
        return False

    def _ranges(self, p: tuple[object, ...], q: tuple[object, ...]) -> bool:
        """Constant, non-negative, non-overlapping bounds."""
        bounds = []
        for part in (p[1], p[2], q[1], q[2]):
            made = self._parts[int(str(part))]
            if made[0] != "const" or made[1] != "int" or str(made[2]).startswith("-"):
                return False
            bounds.append(int(str(made[2])))
        return bounds[1] <= bounds[2] or bounds[3] <= bounds[0]
