"""What error texts of torch and of Python lead the search to try next."""

from __future__ import annotations

import pytest

from deinplace.probe.synthesis.names import known
from deinplace.probe.synthesis.repairs import repairs, said
from deinplace.probe.synthesis.search import tensorised
from deinplace.probe.synthesis.values import Group, Plain, Tensor, parse

IMAGE = Tensor("float", (2, 3, 32, 32))
TEXTS = {
    "weight of size [64, 16, 3, 3], expected input[2, 3, 32, 32] to have 16 channels, but got 3 channels instead":
        ((2, 3, 32, 32), (2, 16, 32, 32)),
    "mat1 and mat2 shapes cannot be multiplied (128x32 and 48x10)": ((2, 64, 32), (2, 64, 48)),
    "Given normalized_shape=[48], expected input with shape [*, 48], but got input of size[2, 64, 32]":
        ((2, 64, 32), (2, 64, 48)),
    "running_mean should contain 32 elements not 24": ((2, 32, 8, 8), (2, 24, 8, 8)),
    "not enough values to unpack (expected 4, got 3)": ((2, 64, 32), (2, 32, 8, 8)),
    "too many values to unpack (expected 3)": ((2, 32, 8, 8), (2, 64, 32)),
    "Expected 2D (unbatched) or 3D (batched) input to conv1d, but got input of size: [2, 32, 8, 8]":
        ((2, 32, 8, 8), (2, 32, 64)),
    "Input height (32) doesn't match model (224).": ((2, 3, 32, 32), (2, 3, 224, 32)),
    "Dimension out of range (expected to be in range of [-2, 1], but got 2)": ((2, 32), (2, 64, 32)),
    "Kernel size: (7 x 7). Kernel size can't be greater than actual input size": ((2, 3, 4, 4), (2, 3, 8, 8)),
    "The size of tensor a (8) must match the size of tensor b (16) at non-singleton dimension 3":
        ((2, 32, 8, 8), (2, 32, 8, 16)),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_leads_to_the_shape(text: str) -> None:
    before, after = TEXTS[text]
    tried = [value for (value,) in repairs((Tensor("float", before),), text, ())][:10]
    assert after in [value.shape for value in tried if isinstance(value, Tensor)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int", "long"),
        ("tensors used as indices must be long, int, byte or bool tensors", "long"),
        ("all elements of input should be between 0 and 1", "unit"),
    ],
)
def test_a_text_leads_to_the_kind(text: str, kind: str) -> None:
    first = next(iter(repairs((IMAGE,), text, ())))[0]
    assert isinstance(first, Tensor)
    assert first.kind == kind


def test_a_list_is_tried_where_a_tensor_was_none_and_the_other_way_round() -> None:
    changed = [v for (v,) in repairs((IMAGE,), "list index out of range", ())]
    assert Group((IMAGE, IMAGE)) in changed
    back = [v for (v,) in repairs((Group((IMAGE, IMAGE)),), "'list' object has no attribute 'shape'", ())]
    assert IMAGE in back


def test_maps_of_one_size_become_a_pyramid() -> None:
    maps = Group((Tensor("float", (2, 32, 8, 8)),) * 3)
    text = "The size of tensor a (4) must match the size of tensor b (8) at non-singleton dimension 3"
    first, second = [v for (v,) in repairs((maps,), text, ())][:2]
    assert isinstance(first, Group) and isinstance(second, Group)
    assert [t.shape[2] for t in first.items if isinstance(t, Tensor)] == [16, 8, 4]
    assert [t.shape[2] for t in second.items if isinstance(t, Tensor)] == [4, 8, 16]


def test_nothing_is_tried_twice_or_beyond_what_memory_holds() -> None:
    text = "The size of tensor a (32) must match the size of tensor b (4096) at non-singleton dimension 3"
    tried = list(repairs((IMAGE,), text, (4096, 64)))
    assert len(tried) == len(set(tried))
    for (value,) in tried:
        if isinstance(value, Tensor):
            size = 1
            for n in value.shape:
                size *= n
            assert 0 < size <= 2**22


def test_both_ways_round_where_a_text_does_not_say_which() -> None:
    assert said("tensor a (8) must match the size of tensor b (16)") == [(8, 16), (16, 8)]
    assert (3, 64) in said("to have 64 channels, but got 3")


@pytest.mark.parametrize(
    ("name", "first"),
    [("in_channels", "32"), ("num_heads", "4"), ("embed_dim", "32"), ("num_classes", "10"), ("kernel_size", "3"),
     ("drop_rate", "0.1"), ("vocab_size", "64"), ("depth", "2"), ("in_chans", "3")],
)  # fmt: skip
def test_common_names_have_values_that_go_together(name: str, first: str) -> None:
    assert known(name, False)[0] == first


def test_names_that_say_nothing_have_none() -> None:
    assert known("qwertz", False) == ()


def test_notation_of_the_table() -> None:
    sizes = {"B": 2, "C": 32}
    assert parse("long:B,7", sizes, IMAGE, 9) == Tensor("long", (2, 7), 9)
    assert parse("[x; x]", sizes, IMAGE, 9) == Group((IMAGE, IMAGE))
    assert parse("(float:B; 3)", sizes, IMAGE, 9) == Group((Tensor("float", (2,), 9), Plain("3")), "tuple")
    assert parse("(8, 8)", sizes, IMAGE, 9) == Plain("(8, 8)")
    assert parse("{}", sizes, IMAGE, 9) == Plain("{}")


def test_numbers_that_lack_what_a_tensor_has_become_tensors() -> None:
    state = (IMAGE, Group((Plain("[32, 32]"), Plain("[32, 32]"))), None)
    found = [s[1] for s in tensorised(state, (1, 0, 2), "AttributeError: 'int' object has no attribute 'float'")]
    row = Group((Tensor("float", (3, 32, 32)),) * 2)
    assert Group((row, row)) in found
    assert not list(tensorised(state, (1, 0, 2), "AttributeError: 'int' object has no attribute 'emb_dim'"))
