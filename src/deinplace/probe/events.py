"""Records of what happened at run time, and the table of conflicts that a process writes out."""

from __future__ import annotations

from typing import Any

from . import frames


class Save:
    """Details of a save that only a second look collects."""

    __slots__ = ("expressions",)

    def __init__(self, expressions: list[list[int]]) -> None:
        self.expressions = expressions


class Write:
    """One operation that is about to change a storage which autograd holds."""

    __slots__ = ("module", "names", "op", "optimizer", "stack", "tensor", "views")

    def __init__(
        self,
        op: str,
        stack: frames.Stack,
        tensor: dict[str, object],
        module: dict[str, object] | None,
        optimizer: str | None,
        names: list[str],
        views: list[str],
    ) -> None:
        self.op, self.stack, self.tensor = op, stack, tensor
        self.module, self.optimizer, self.names, self.views = module, optimizer, names, views

    def plain(self) -> dict[str, object]:
        """As data for the report."""
        return {
            "op": self.op,
            "stack": frames.resolved(self.stack),
            "tensor": self.tensor,
            "module": self.module,
            "optimizer": self.optimizer,
            "names": self.names,
            "views": self.views,
        }


class Conflicts:
    """Conflicts by the lines that make them, with counts; a training loop repeats the same few."""

    def __init__(self) -> None:
        self.found: dict[Any, dict[str, Any]] = {}
        self.changed = False

    def add(self, handle: Any, kind: str, node: str, role: str, backward: frames.Stack) -> None:
        """Note one unpacked save that was overwritten."""
        writes = handle.writes
        key = (kind, node, handle.stack, writes[0].stack, _module_name(writes[0]))
        known = self.found.get(key)
        if known is not None:
            known["count"] += 1
            known["disjoint"] = known["disjoint"] and handle.disjoint
            return
        self.changed = True
        self.found[key] = {
            "kind": kind,
            "node": node,
            "disjoint": handle.disjoint,
            "count": 1,
            "backward": frames.resolved(backward),
            "save": {
                "op": node,
                "stack": frames.resolved(handle.stack),
                "tensor": describe(handle.original),
                "role": role,
                "expressions": handle.save.expressions if handle.save is not None else [],
            },
            "writes": [write.plain() for write in writes],
        }

    def plain(self) -> list[dict[str, Any]]:
        """All conflicts, in the order in which backward met them."""
        return list(self.found.values())


def _module_name(write: Write) -> object:
    return None if write.module is None else write.module.get("name")


def describe(tensor: Any) -> dict[str, object]:
    """Shape, dtype and device for reports."""
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device": tensor.device.type,
    }
