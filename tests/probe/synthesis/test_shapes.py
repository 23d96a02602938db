"""Shapes that errors and docstrings name."""

from __future__ import annotations

import pytest

from deinplace.probe.synthesis.shapes import documented, spoken

TEXTS = {
    "Boxes shape must be (N, 4, 2) or (B, N, 4, 2). Got torch.Size([2, 4, 8, 8]).": [(4, 4, 2), (2, 4, 4, 2)],
    "Expected shape: ['B', 'N', '2', '3'] Actual shape: [2, 32, 8, 8]": [(2, 4, 2, 3)],
    "Invalid input shape, we expect BxNx3x3": [(2, 4, 3, 3)],
    "expected a tensor of shape (*, 3, H, W)": [(2, 3, 8, 8)],
    "mat1 and mat2 shapes cannot be multiplied (128x32 and 48x10)": [],
    "expected input[2, 3, 32, 32] to have 16 channels": [],
    "(see the docs, there)": [],
}


@pytest.mark.parametrize("text", TEXTS)
def test_shapes_with_names_are_read(text: str) -> None:
    assert list(spoken(text)) == TEXTS[text]


def scale(image: object, boxes: object, factor: object) -> None:
    """Scale.

    Args:
        image: the image with shape :math:`(B, C, H, W)`.
        boxes (Tensor): corners,
            shape (N, 4).
        factor: a number, or a pair (h, w).

    Returns:
        image: shape (C, H, W).
    """


def test_a_docstring_gives_each_parameter_its_shape() -> None:
    assert documented(scale, "image") == ((2, 32, 8, 8),)
    assert documented(scale, "boxes") == ((4, 4),)
    assert documented(scale, "factor") == documented(scale, "other") == ()
