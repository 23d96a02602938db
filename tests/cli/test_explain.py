"""Error messages as real torch raises them now, and as older versions spelled them, are understood."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from deinplace.cli.explain import explain
from deinplace.cli.lookup import lookup
from deinplace.cli.messages import MEANINGS, recognise, understand
from deinplace.errors import DeinplaceError
from deinplace.rules import rule

# as older versions of torch, and loggers, print them
OLD = {
    "a leaf Variable that requires grad has been used in an in-place operation.": "a parameter, or another leaf",
    "Output 0 of SplitBackward is a view and is being modified inplace.": "one of several views",
    "Output 1 of UnbindBackward0 is a view and is being modified inplace.": "one of several views",
    "Output 0 of BackwardHookFunctionBackward is a view and is being modified inplace.": "a full backward hook",
    "one of the variables needed for gradient computation has been modified by an inplace operation": "a tensor that",
    "one of the variables needed for gradient computation has been modified by an inplace operation: [CPUFloatType [3]]"
    " is at version 5; expected version 2 instead": "a tensor that",
    "[torch.cuda.HalfTensor [2, 512, 64]], which is output 0 of AsStridedBackward0, is at version 3; expected version "
    "2 instead. Hint: the backtrace further above shows the operation": "a tensor that",
    "leaf variable has been moved into the graph interior": "a part of a parameter",
    "Output 2 of ChunkBackward is a view and is being modified inplace.": "one of several views",
    "Output 0 of UnbindBackward is a view and its base or another view of its base has been modified inplace. This "
    "view is the output of a function that returns multiple views.": "one of several views",
    "Output 0 of SelectBackward is a view and is being modified inplace. This view was created inside a custom "
    "Function": "a view that autograd cannot follow",
    "A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad "
    "mode enabled.": "a view that autograd cannot follow",
    "Trying to backward through the graph a second time, but the buffers have already been freed. Specify "
    "retain_graph=True when calling backward the first time.": "the same graph",
    "Trying to backward through the graph a second time, but the saved intermediate results have already been freed.": (
        "the same graph"
    ),
    "result type Float can't be cast to the desired output type long int": "an in-place operation would have to",
    "cannot assign 'torch.cuda.FloatTensor' as parameter 'gamma' (torch.nn.Parameter or None expected)": "an attribute",
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


def broadcast() -> None:
    x = torch.ones(1)
    x += torch.ones(3)


def attribute() -> None:
    layer = torch.nn.Linear(2, 2)
    layer.weight = layer.weight + 1  # type: ignore[assignment]


def no_grad_view() -> None:
    base = torch.ones(4, requires_grad=True) * 2
    with torch.no_grad():
        row = base[0]
    row += 1


def own_function() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(_: object, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

    y = Same.apply(torch.ones(3, requires_grad=True) * 2)
    y += 1


def step() -> None:
    layer = torch.nn.Linear(8, 4, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    loss = layer(torch.ones(2, 8, requires_grad=True)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    loss.backward()


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
    broadcast: "an in-place operation would have to change the shape",
    attribute: "an attribute that holds a parameter",
    no_grad_view: "a view that autograd cannot follow",
    own_function: "a view that autograd cannot follow",
    step: "a tensor that backward needs",
}


@pytest.mark.parametrize(("program", "title"), RAISES.items(), ids=[f.__name__ for f in RAISES])
def test_what_torch_raises_is_understood(program: Callable[[], None], title: str) -> None:
    with pytest.raises((RuntimeError, TypeError)) as caught:
        program()
    assert understand(f"Traceback ...\nRuntimeError: {caught.value}").lower().startswith(title)


@pytest.mark.parametrize(("message", "title"), OLD.items())
def test_older_spellings_are_understood(message: str, title: str) -> None:
    assert understand(message).lower().startswith(title)


# what a mail, a terminal, a log or a careless hand makes of a text
PASTED: dict[str, Callable[[str], str]] = {
    "quoted": lambda text: f'"{text}"',
    "curly": lambda text: f"\u201c{text}\u201d".replace("'", "\u2019").replace("-", "\u2011"),
    "upper": str.upper,
    "wrapped": lambda text: "\n".join(text[i : i + 31] for i in range(0, len(text), 31)),
    "mail": lambda text: "\n".join(f"> {word}" for word in text.split()),
    "markdown": lambda text: f"```\nRuntimeError: `{text}`\n```",
    "launcher": lambda text: f"[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: {text}",
    "pytest": lambda text: f">       loss.backward()\nE       RuntimeError: {text}",
    "chinese": lambda text: f"报错：RuntimeError：{text}，怎么解决？",
    "traceback": lambda text: f'Traceback (most recent call last):\n  File "a.py", line 3\nRuntimeError: {text}\n\n',
    "wide": lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
}


@pytest.mark.parametrize("paste", PASTED.values(), ids=PASTED)
def test_however_it_was_pasted(paste: Callable[[str], str]) -> None:
    for meaning in MEANINGS:
        if meaning.pattern:
            assert recognise(paste(meaning.says)) is meaning


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("one of the variables needed for gradient computation has been mod", "version"),
        ("RuntimeError: one of the variables needed for gradient computation...", "version"),
        ("been modified by an inplace operation: [torch.cuda.FloatTensor [1, 256]]", "version"),
        ("is at version 4; expected version 3 instead. Hint: enable anomaly detection", "version"),
        ("a leaf Variable that requires grad is being used", "leaf"),
        ("a view of a leaf Variable that requires", "leaf-view"),
        ("Output 0 of BackwardHookFunctionBackward is a view and", "hook"),
        ("more than one element of the written-to tensor refers to", "expanded"),
        ("backward through the graph a second time (or directly", "second-backward"),
        ("Saved intermediate values of the graph are freed when you call .backward()", "second-backward"),
    ],
)
def test_a_part_is_enough(text: str, key: str) -> None:
    found = recognise(text)
    assert found is not None and found.key == key


# how people ask, in forums and search boxes, and the page that should come first
ASKED = {
    "inplace error gan": "step",
    "gan discriminator generator inplace": "step",
    "actor critic optimizer step error": "step-before-backward",
    "optimizer.step before backward": "step-before-backward",
    "backward second time": "second-backward",
    "how to fix retain_graph=True error": "second-backward",
    "leaf variable in-place": "leaf",
    "leaf variable inplace operation weight init": "leaf",
    "in-place operation": "version",
    "version mismatch": "version",
    "grad-cam hook inplace relu": "hook",
    "register_full_backward_hook inplace": "hook",
    "inplace dropout": "inplace-flag",
    "+= inplace error": "augmented-assignment",
    "slice assignment in forward": "subscript-write",
    "masked fill mask": "subscript-write",
    "hidden state rnn backward": "carried-state",
    "maml inner loop": "leaf-write",
    "fill a buffer in a loop": "buffer-loop",
    "out= argument": "out-argument",
    "expand then write inplace": "expanded",
    "silent wrong gradients numpy": "silent",
    "原地操作 报错 GAN": "step",
    "叶子变量 原地操作": "leaf",
    "第二次反向传播 计算图": "second-backward",
    "梯度计算所需的变量之一已被就地操作修改": "version",
}


@pytest.mark.parametrize(("text", "page"), ASKED.items())
def test_peoples_own_words_find_the_page(text: str, page: str) -> None:
    found = [each.ask for each in lookup(text)]
    assert page in found and len(found) <= 3, found


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
        "list index out of range",
        "No module named 'torchvision'",
        "DataLoader worker (pid 12) exited unexpectedly",
        "loss is nan",
        "how to bake bread",
        "怎么安装 CUDA",
        "hello",
    ],
)
def test_what_is_not_ours_is_one_clear_line(text: str) -> None:
    with pytest.raises(DeinplaceError) as caught:
        explain([text])
    assert "neither a rule nor an in-place error of PyTorch's" in caught.value.message
    assert "\n" not in caught.value.message


def test_the_page_of_an_error_names_rules_that_exist() -> None:
    for meaning in MEANINGS:
        assert all(rule(name).name == name for name in meaning.rules)


def test_a_matrix_that_an_optimizer_stepped_over_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError) as caught:
        step()
    assert explain([str(caught.value)]) == 0
    assert "often the weight of a Linear layer" in capsys.readouterr().out


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
    assert len({meaning.key for meaning in MEANINGS}) == len(MEANINGS)
    assert all(meaning.why and meaning.do for meaning in MEANINGS)


def test_a_pasted_message_is_explained_from_arguments_and_from_stdin(cli: Callable) -> None:
    message = "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation."
    for result in (cli("explain", *message.split()), cli("explain", "-", input=f"Traceback:\n{message}\n")):
        assert result.returncode == 0
        assert "torch.no_grad()" in result.stdout
