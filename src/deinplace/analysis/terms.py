"""Terms: numbers that stand for values, so that two programs can be compared without running them.

Equal terms are equal values. An operation's term is made of its name and its arguments' terms; a copy has the term of
what it copies; a write into a part of a tensor is a `put`, a read of a part a `get`.
"""

from __future__ import annotations

_UNIT = 10_000_000
"""More than there are steps in a unit."""


class Terms:
    """A table of terms. Two analyses are comparable when they share one."""

    def __init__(self) -> None:
        self._ids: dict[tuple[object, ...], int] = {}
        self._parts: list[tuple[object, ...]] = [("none",)]
        self._split: dict[int, tuple[object, ...]] = {}
        """How terms that are joined from parts come apart again: the step that leads to the parts."""
        self._owned = False
        self._bases: dict[tuple[str, str], int] = {}

    def base(self, unit: tuple[str, str]) -> int:
        """Where the serial numbers of a unit begin: the same for each run of it, apart from those of all others."""
        return self._bases.setdefault(unit, len(self._bases) * _UNIT)

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
        """`yes` where the condition held, `no` elsewhere. Condition 0 is never the same one twice."""
        if condition:
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
            return self.whole(base)
        while True:
            parts = self._parts[base]
            if parts[0] == "get":
                return self.get(int(str(parts[1])), (*parts[2], *path))  # type: ignore[misc]
            if parts[0] == "joined" and len(path) > 1 and self._split.get(base) == path[0]:
                return self.get(int(str(parts[2 + _number(path[1])])), path[2:])
            if parts[0] != "put":
                break
            written = parts[2]
            assert isinstance(written, tuple)
            if path[: len(written)] == written:
                return self.get(int(str(parts[3])), path[len(written) :])
            own = _own(written)
            if written[: len(path)] == path and own <= len(path):
                return self.put(self.get(int(str(parts[1])), path), written[len(path) :], int(str(parts[3])))
            if not self.disjoint(written, path) and path[:own] == written[:own]:
                break
            base = int(str(parts[1]))
        return self.make("get", base, path) if base else 0

    def whole(self, base: int) -> int:
        """`base` without the writes to memory of others: what torch refuses to write where elements are shared."""
        parts = self._parts[base]
        if not self._owned or parts[0] != "put":
            return base
        rest, written = self.whole(int(str(parts[1]))), parts[2]
        assert isinstance(written, tuple)
        return rest if _own(written) else self.make("put", rest, written, int(str(parts[3])))

    def put(self, base: int, path: tuple[object, ...], value: int) -> int:
        """`base` after `value` was written to its part at `path`."""
        self._owned = self._owned or bool(_own(path))
        at = next((n for n, step in enumerate(path) if n and _is(step, "output")), 0)
        count, dim = self._several(path[at - 1]) if at else (0, 0)
        if not at or _number(path[at]) >= count:
            return self.make("put", base, path, value) if path else value
        # The whole is its parts one after the other, as `torch.cat` would join them.
        whole = self.get(base, path[: at - 1])
        parts = [self.get(whole, (path[at - 1], ("output", n))) for n in range(count)]
        number = _number(path[at])
        parts[number] = self.put(parts[number], path[at + 1 :], value)
        term = self.join(dim, parts)
        self._split[term] = path[at - 1]  # type: ignore[assignment]
        return self.put(base, path[: at - 1], term)

    def join(self, dim: int, parts: list[int]) -> int:
        """Parts one after the other along a dimension."""
        return self.make("joined", dim, *parts)

    def _several(self, step: object) -> tuple[int, int]:
        """How many parts `chunk` and its like give, and along which dimension; 0 parts where that is not known."""
        if not isinstance(step, tuple) or step[0] != "op":
            return 0, 0
        op, rest = step[1], step[2:]
        named: dict[str, object] = {"dim": self.make("const", "int", "0")}
        named.update(zip(("sizes", "dim"), (r for r in rest if isinstance(r, int)), strict=False))
        named.update(dict(r for r in rest if isinstance(r, tuple)))
        sizes = next((v for k, v in named.items() if k != "dim"), 0)
        made = self._parts[int(str(sizes))]
        if op in ("chunk", "tensor_split") and made[:2] == ("const", "int") and str(made[2]).isdigit():
            return int(str(made[2])), int(str(named["dim"]))
        if op in ("split", "split_with_sizes") and made[0] in ("list", "tuple"):
            return len(made) - 1, int(str(named["dim"]))
        return 0, 0

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
        if a[0] == b[0] == "select":
            return a[1] == b[1] and self._parts_apart(a[2], b[2])
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


def _is(step: object, kind: str) -> bool:
    return isinstance(step, tuple) and step[0] == kind


def _own(path: tuple[object, ...]) -> int:
    """Where a path leaves the memory of its base: the number of steps up to there, 0 where it stays in it."""
    return next((n + 1 for n, step in enumerate(path) if _is(step, "own")), 0)


def _number(step: object) -> int:
    return int(str(step[1])) if isinstance(step, tuple) else 0
