"""What printed types mean, and which classes are tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.typing_evidence.classes import Classes
from deinplace.typing_evidence.kinds import kind, known

TYPES = {
    "tensor": (
        "Tensor", "torch._tensor.Tensor", "Parameter", "torch.nn.parameter.Parameter", "Tensor | None", "None | Tensor",
        "Tensor | Parameter", "Unknown & Tensor", "Tensor & ~AlwaysFalsy", "(Tensor & ~AlwaysFalsy) | None",
        "torch._tensor.Tensor | None",
    ),
    "other": (
        "int", "Literal[1]", "typing.Literal['a | b', \"c[\"]", "int | float", "str | None", "list[Tensor]",
        "tuple[Tensor, ...] | list[Unknown]", "dict[str, Tensor]", "ndarray[tuple[int], dtype[float64]]",
        "numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]", "<class 'ReLU'>", "type[torch.nn.ReLU]",
        "(x: Tensor, *, y: int) -> Tensor", "Overload[(a: Tensor) -> Tensor, (b: int) -> Tensor]",
        "Conv2d", "Counter[str]",
        "torch._C.Size", "torch.nn.modules.conv.Conv2d", "collections.OrderedDict[str, torch._tensor.Tensor]",
        "bound method Tensor.add_(other: Tensor) -> Tensor", "<module 'numpy'>", "defaultdict[str, int]",
    ),
    "unknown": (
        "Unknown", "typing.Any", "Any", "@Todo(x)", "Never", "object", "None", "Tensor | int", "Tensor | Unknown",
        "Tensor | Module", "int | Unknown", "Unknown | Literal[3]", "T@f", "Self@forward", "Strange", "some.lib.Image",
        "",
        "Tensor | list[Tensor]", "@_", "Literal[1] | Tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), [(t, k) for k, texts in TYPES.items() for t in texts])
def test_printed_types(text: str, wanted: str) -> None:
    assert kind(text, known) == wanted


def test_the_names_of_torchs_own_tensors_tell_them_apart() -> None:
    import torch
    import torch.nn.utils._expanded_weights  # brings one more

    todo, seen = [torch.Tensor], set[type]()
    while todo:
        cls = todo.pop()
        todo += [c for c in cls.__subclasses__() if c not in seen]
        seen.add(cls)
    ours = [c for c in seen if c.__module__.startswith("torch") and not c.__name__.startswith("_")]
    assert len(ours) > 3
    for cls in ours:
        assert known(f"{cls.__module__}.{cls.__qualname__}") in ("tensor", "unknown"), cls
    others = (
        torch.nn.Module,
        torch.Size,
        torch.dtype,
        torch.device,
        torch.optim.SGD,
        torch.nn.utils.rnn.PackedSequence,
    )
    assert {known(f"torch.{cls.__qualname__}") for cls in others} == {"other"}


def project(**files: str) -> dict[str, Source]:
    made = {f"/p/{name}.py": text for name, text in files.items()}
    return {path: Source.parse(path, text.encode()) for path, text in made.items()}


CLASSES = """
import torch
from torch import Tensor, nn
from elsewhere import Strange
from enum import Enum
import numpy as np
class Own(Tensor): ...
class Deep(Own): ...
class Param(nn.Parameter): ...
class Net(nn.Module): ...
class Plain: ...
class Kind(Enum): ...
class Odd(Strange): ...
class Both(Strange, torch.Tensor): ...
class Loop(Loop): ...
class Array(np.ndarray): ...
class Generic(dict[str, Tensor]): ...
def f():
    class Inner(Tensor): ...
"""


@pytest.mark.parametrize(
    ("name", "wanted"),
    {
        "Own": "subclass", "Deep": "subclass", "a.Own": "subclass", "Param": "subclass", "Net": "other",
        "Plain": "other",
        "Kind": "other", "Odd": "unknown", "Both": "subclass", "Loop": "unknown", "Array": "other", "Generic": "other",
        "Inner": "subclass", "b.Own": "other", "Tensor": "tensor", "Mixed": "unknown", "a.Mixed": "subclass",
    }.items(),
)  # fmt: skip
def test_classes_of_the_project(name: str, wanted: str) -> None:
    other = "class Own: ...\n" if name == "b.Own" else ""
    look = Classes(project(a=CLASSES + "class Mixed(Tensor): ...\n", b=other + "class Mixed: ...\n"))
    assert look(name) == wanted


def test_a_projects_own_class_called_tensor_makes_that_name_uncertain() -> None:
    look = Classes(project(a="class Tensor:\n    pass\n"))
    assert look("Tensor") == "unknown"
    assert look("torch._tensor.Tensor") == "tensor"
    assert look("a.Tensor") == "other"


def test_classes_of_installed_packages_are_read_where_they_lie(tmp_path: Path) -> None:
    package = tmp_path / "lib"
    package.mkdir()
    (package / "__init__.py").write_text("from .image import Image, Mask\nfrom .gone import Lost\n")
    (package / "image.py").write_text(
        "from torch import Tensor\nimport abc\nclass Image(abc.ABC): ...\nclass Mask(Tensor): ...\n"
    )
    look = Classes({}, (tmp_path,))
    assert [look(f"lib.{n}") for n in ("Image", "Mask", "image.Mask", "Lost", "None")] == [
        "other", "subclass", "subclass", "unknown", "unknown",
    ]  # fmt: skip
