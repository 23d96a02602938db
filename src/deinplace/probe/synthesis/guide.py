"""What a built module tells about its input: its first layers, its sizes, and the side of its images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .names import SIZES
from .values import Tensor

_SIDES = ("img_size", "image_size", "input_size", "input_resolution", "resolution", "feat_size", "window_size", "res")


class Guide:
    """Guesses for the main tensor of one module (or of none), the likeliest first."""

    def __init__(self, module: nn.Module | None = None, rank: int | None = None) -> None:
        self.module = module
        self.rank = rank
        self.sizes: dict[str, int] = dict(SIZES)
        self.high = 16
        self.numbers = tuple(self._numbers()) if module is not None else ()
        found = list(dict.fromkeys(self._guesses()))
        if found and len(found[0].shape) >= 2:
            first = found[0]
            self.sizes["C"] = first.shape[1] if len(first.shape) >= 4 else first.shape[-1]
        if rank is not None:
            found.sort(key=lambda t: len(t.shape) != rank)
        self.inputs: tuple[Tensor, ...] = tuple(found)

    @property
    def main(self) -> Tensor:
        """The likeliest input."""
        return self.inputs[0]

    def _guesses(self) -> Iterator[Tensor]:
        if self.module is not None:
            yield from self._of_layers(self.module)
        c = self.sizes["C"]
        for shape in ((2, c, 8, 8), (2, 64, c), (2, c), (2, 8, 8, c), (2, c, 64), (64, c), (2, c, 4, 8, 8),
                      (2, 4, 64, 8), (c,), (c, 3, 3, 3), ()):  # fmt: skip
            yield Tensor("float", shape)

    def _of_layers(self, module: nn.Module) -> Iterator[Tensor]:
        """From the layers that take the input: those that are registered first."""
        sides = tuple(self._sides(module))
        seen = 0
        for layer in module.modules():
            shapes = list(_of_layer(layer, sides, self.sizes))
            if not shapes:
                continue
            yield from shapes
            seen += 1
            if seen == 4:
                return

    @staticmethod
    def _sides(module: nn.Module) -> Iterator[tuple[int, int]]:
        """Height and width of the images it was built for, where it says so."""
        for part in (module, *module.children()):
            for name in _SIDES:
                value = getattr(part, name, None)
                if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1024:
                    yield (value, value)
                elif isinstance(value, tuple | list) and all(isinstance(v, int) and 0 < v < 1024 for v in value):
                    if len(value) == 2:
                        yield (value[0], value[1])
                    elif len(value) == 3:
                        yield (value[1], value[2])

    def _numbers(self) -> Iterator[int]:
        """Sizes that the module knows: whole numbers among its attributes, and shapes of its parameters."""
        assert self.module is not None
        found: dict[int, None] = {}
        for count, part in enumerate(self.module.modules()):
            if count == 12:
                break
            for value in vars(part).values():
                for number in value if isinstance(value, tuple | list) else (value,):
                    if type(number) is int and 1 < number < 4097:
                        found[number] = None
        for count, parameter in enumerate(self.module.parameters()):
            if count == 8:
                break
            found.update(dict.fromkeys(n for n in parameter.shape if 1 < n < 4097))
        yield from found


def _of_layer(layer: nn.Module, sides: tuple[tuple[int, int], ...], sizes: Mapping[str, int]) -> Iterator[Tensor]:
    """Inputs that one layer would take."""
    known: Any = layer
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        places = sides or (((32, 32), (64, 64)) if known.in_channels <= 4 else ((8, 8), (16, 16)))
        for h, w in places:
            yield Tensor("float", (2, known.in_channels, h, w))
    elif isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
        yield Tensor("float", (2, known.in_channels, 64))
    elif isinstance(layer, nn.Conv3d | nn.ConvTranspose3d):
        yield Tensor("float", (2, known.in_channels, 8, 16, 16))
    elif isinstance(layer, nn.Linear):
        yield Tensor("float", (2, 64, known.in_features))
        yield Tensor("float", (2, known.in_features))
        yield Tensor("float", (2, 8, 8, known.in_features))
    elif isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        yield Tensor("long", (2, 16), known.num_embeddings)
    elif isinstance(layer, nn.RNNBase):
        yield Tensor("float", (2, 16, known.input_size))
    elif isinstance(layer, nn.RNNCellBase):
        yield Tensor("float", (2, known.input_size))
    elif isinstance(layer, nn.MultiheadAttention):
        yield Tensor("float", (2, 64, known.embed_dim))
    elif isinstance(layer, nn.LayerNorm):
        for lead in ((2, 64), (2, 8, 8), (2,)):
            yield Tensor("float", (*lead, *known.normalized_shape))
    elif isinstance(layer, nn.GroupNorm):
        yield Tensor("float", (2, known.num_channels, 8, 8))
    elif isinstance(layer, nn.modules.batchnorm._NormBase):
        yield Tensor("float", (2, known.num_features, *_places(layer)))


def _places(layer: nn.Module) -> tuple[int, ...]:
    """Places that a normalisation expects after its channels, told by its name's digit."""
    name = type(layer).__name__
    return (64,) if "1d" in name else (4, 8, 8) if "3d" in name else (8, 8)


def parameter_count(module: nn.Module) -> int:
    """How many numbers the module holds."""
    return sum(p.numel() for p in module.parameters() if isinstance(p, torch.Tensor))
