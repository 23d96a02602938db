"""Error messages as real torch raises them now, and as older versions spelled them, are understood."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from deinplace.cli.messages import MEANINGS, understand

OLD = {
    "a leaf Variable that requires grad has been used in an in-place operation.": "a parameter, or another leaf",
    "Output 0 of SplitBackward is a view and is being modified inplace.": "one of several views",
    "Output 1 of UnbindBackward0 is a view and is being modified inplace.": "one of several views",
    "Output 0 of BackwardHookFunctionBackward is a view and is being modified inplace.": "a full backward hook",
    "one of the variables needed for gradient computation has been modified by an inplace operation": "a tensor that",
}


def version() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    y = x.relu()
    y += 1
    y += 1
    y.sum().backward()


def leaf() -> None:
    torch.ones(2, requires_grad=True).add_(1)


def leaf_view() -> None:
    torch.ones(2, requires_grad=True)[0] = 1


def multi_view() -> None:
    first, _ = (torch.ones(4, requires_grad=True) * 2).chunk(2)
    first += 1


def hook_view() -> None:
    layer = torch.nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *_: None)
    out = layer(torch.ones(1, 2, requires_grad=True))
    out += 1


def expanded() -> None:
    torch.ones(1).expand(3).add_(1)


def overlapping() -> None:
    x = torch.arange(4.0)
    x[1:] += x[:-1]


def second() -> None:
    y = torch.ones(2, requires_grad=True).exp().sum()
    y.backward()
    y.backward()


def out_grad() -> None:
    torch.add(torch.ones(2, requires_grad=True), 1, out=torch.empty(2))


def inference() -> None:
    with torch.inference_mode():
        x = torch.ones(2)
    x += 1


def cast() -> None:
    x = torch.ones(2, dtype=torch.long)
    x += 0.5


def detach_view() -> None:
    (torch.ones(4, requires_grad=True) * 2).split(2)[0].detach_()


RAISES = {
    version: "a tensor that backward needs",
    leaf: "a parameter, or another leaf",
    leaf_view: "a part of a parameter",
    multi_view: "one of several views",
    hook_view: "a full backward hook",
    expanded: "an expanded tensor",
    overlapping: "the tensor read and the tensor written overlap",
    second: "the same graph is walked twice",
    out_grad: "out= is used",
    inference: "a tensor from inference mode",
    cast: "an in-place operation would have to change the dtype",
    detach_view: "detach_() was called on a view",
}


@pytest.mark.parametrize(("program", "title"), RAISES.items(), ids=[f.__name__ for f in RAISES])
def test_what_torch_raises_is_understood(program: Callable[[], None], title: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        program()
    assert understand(f"Traceback ...\nRuntimeError: {caught.value}").lower().startswith(title)


@pytest.mark.parametrize(("message", "title"), OLD.items())
def test_older_spellings_are_understood(message: str, title: str) -> None:
    assert understand(message).lower().startswith(title)


def test_numbers_of_a_version_mismatch_are_read() -> None:
    with pytest.raises(RuntimeError) as caught:
        version()
    for message in (str(caught.value), str(caught.value).replace(" Relu,", " ReluBackward0,")):
        assert "shape (2, 3), made by Relu, was written 2 times after" in " ".join(understand(message).split())


def test_other_errors_are_not_ours() -> None:
    assert understand("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)") == ""
    assert understand("") == ""


def test_every_meaning_says_why_and_what_to_do() -> None:
    assert len({meaning.title for meaning in MEANINGS}) == len(MEANINGS)
    assert all(meaning.why and meaning.do for meaning in MEANINGS)


def test_a_pasted_message_is_explained_from_arguments_and_from_stdin(cli: Callable) -> None:
    message = "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation."
    for result in (cli("explain", *message.split()), cli("explain", "-", input=f"Traceback:\n{message}\n")):
        assert result.returncode == 0
        assert "torch.no_grad()" in result.stdout
