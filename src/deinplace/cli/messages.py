"""PyTorch's in-place errors, in the spellings of old and new versions, and what each one means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import fill


@dataclass(frozen=True)
class Meaning:
    """A kind of error: how to know it, what happened, and what to do."""

    pattern: str
    title: str
    why: str
    do: str


_RUN = '`deinplace run train.py` names both lines; `deinplace fix . --run "python train.py"` mends and proves it.'

# the first that matches is taken: the special come before the general
MEANINGS = (
    Meaning(
        r"needed for gradient computation has been modified by an inplace operation",
        "a tensor that backward needs was overwritten",
        "Autograd kept this tensor while the forward ran, and something changed its memory before backward used it. "
        "PyTorch names the operation that kept the tensor, never the line that overwrote it. The counter that it "
        "compares is shared by a tensor, its views and its detach() aliases. An optimizer's step() between the "
        "forward and a later backward overwrites weights in the same way.",
        _RUN,
    ),
    Meaning(
        r"a view of a leaf Variable that requires grad (is being|has been) used in an in-?place operation",
        "a part of a parameter is written where autograd watches",
        "The tensor written is a view, such as `weight[0]`, of a leaf that requires grad, which would stop being one.",
        "For an initialisation or a hand-written update, put the unchanged statement under `with torch.no_grad():`. "
        "Where the new value should be part of the graph, build a new tensor: `w = weight.clone(); w[0] = ...`.",
    ),
    Meaning(
        r"a leaf Variable that requires grad (is being|has been) used in an in-?place operation",
        "a parameter, or another leaf, is written where autograd watches",
        "A leaf that requires grad has no history that the write could join.",
        "For an initialisation or a hand-written update, put the unchanged statement under `with torch.no_grad():`; "
        "`w = w - lr * w.grad` is no repair, since the new w is no leaf and gets no .grad. Where the new value should "
        "be part of the graph, use the out-of-place form under another name.",
    ),
    Meaning(
        r"BackwardHookFunction(Backward)? is a view and is being modified in-?place",
        "a full backward hook meets an in-place operation",
        "register_full_backward_hook wraps a module's inputs and outputs in views, which the next in-place operation, "
        "often an activation with inplace=True, may not write.",
        "Turn inplace off in the module that follows the hooked one, or write `x = x + y` for `x += y`. " + _RUN,
    ),
    Meaning(
        r"Output \d+ of \w*(Split|Unbind|Chunk)\w* is a view and is being modified in-?place"
        r"|function that returns multiple views",
        "one of several views from split, chunk, unbind or iteration is written",
        "These functions return several views of one tensor at once, and autograd does not track writes to them.",
        "Use the out-of-place form, or clone the part before it is written. " + _RUN,
    ),
    Meaning(
        r"view was created in (no_grad|inference) mode|created inside a `?no_grad`? context|"
        r"Output \d+ of \w+ is a view and (is being|its base or another view of its base has been) modified in-?place",
        "a view that autograd cannot follow is written",
        "The view was made by a custom Function or under no_grad, so a write through it cannot be given a gradient.",
        "Clone the view before it is written, or make it where grad mode is on. " + _RUN,
    ),
    Meaning(
        r"more than one element of the written-to tensor refers to a single memory location",
        "an expanded tensor is written",
        "expand(), broadcast_to() and some strides make many elements share one memory cell: a write would hit all.",
        "Clone before the write, `x = x.clone()`, or use the out-of-place form.",
    ),
    Meaning(
        r"some elements of the input tensor and the written-to tensor refer to a single memory location"
        r"|unsupported operation: the input tensors cannot be any of the output tensors",
        "the tensor read and the tensor written overlap",
        "`x[1:] += x[:-1]` and its like read what they are writing.",
        "Clone what is read: `x[1:] += x[:-1].clone()`.",
    ),
    Meaning(
        r"Can't detach views in-?place",
        "detach_() was called on a view",
        "A view shares history with its base and cannot lose it alone.",
        "Use `x = x.detach()`.",
    ),
    Meaning(
        r"Trying to backward through the graph a second time",
        "the same graph is walked twice",
        "The first backward freed what it had saved. Often a state is carried from one iteration into the next with "
        "its history: retain_graph=True then only turns this error into the one about in-place operations.",
        "Detach what is carried over: `state = state.detach()`; or add the losses and call backward once.",
    ),
    Meaning(
        r"functions with out=\.\.\. arguments don't support automatic differentiation",
        "out= is used where a gradient is wanted",
        "Autograd does not record operations that write into out=.",
        "Assign the result instead: `y = torch.add(a, b)` for `torch.add(a, b, out=y)`.",
    ),
    Meaning(
        r"[Ii]nplace update to inference tensor|Inference tensors cannot be saved for backward",
        "a tensor from inference mode is used for training",
        "Tensors made under torch.inference_mode() have no version counter and can never take part in autograd.",
        "Clone it outside inference mode, or make it under torch.no_grad().",
    ),
    Meaning(
        r"result type \w+ can't be cast to the desired output type",
        "an in-place operation would have to change the dtype",
        "`x += y` keeps the dtype of x, and the result does not fit it.",
        "Convert what is added, or write `x = x + y`, which changes the dtype of x.",
    ),
)  # fmt: skip

_DETAIL = re.compile(
    r"\[torch\.(?P<type>[\w.]+) \[(?P<shape>[\d, ]*)\]\](?:, which is output (?P<output>\d+) of (?P<node>\w+),)? is at "
    r"version (?P<now>\d+); expected version (?P<then>\d+)"
)

_BACKWARD = re.compile(r"Backward\d*$")


def understand(text: str) -> str:
    """What an error means and what to do about it, in plain lines; empty where it is not one of these."""
    flat = " ".join(text.split())
    for meaning in MEANINGS:
        if re.search(meaning.pattern, flat, re.IGNORECASE):
            parts = [meaning.title[0].upper() + meaning.title[1:], _wrap(meaning.why), _detail(flat), _wrap(meaning.do)]
            return "\n\n".join(part for part in parts if part)
    return ""


def _detail(flat: str) -> str:
    """What the numbers of a version mismatch say about this very tensor."""
    found = _DETAIL.search(flat)
    if found is None:
        return ""
    writes = int(found["now"]) - int(found["then"])
    made = f", made by {_BACKWARD.sub('', found['node'])}," if found["node"] else ""
    times = "once" if writes == 1 else f"{writes} times"
    return _wrap(f"Here: a {found['type']} of shape ({found['shape']}){made} was written {times} after it was saved.")


def _wrap(text: str) -> str:
    return fill(text, 80, break_long_words=False, break_on_hyphens=False)
