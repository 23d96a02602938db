"""PyTorch's in-place errors: how to know each in the spellings of old and new versions, what it means, what to do.

The page of errors in the documentation is made from this table, too.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from textwrap import fill


@dataclass(frozen=True)
class Meaning:
    """A kind of error: how to know it, what happened, and what to do."""

    key: str
    """Its name in links."""
    pattern: str
    """Matched in what `squeezed` leaves of a text, its own spaces, hyphens and apostrophes left out; empty where
    PyTorch says nothing at all."""
    says: str
    """The error as PyTorch prints it, or what is seen where it prints none."""
    title: str
    why: str
    do: str
    rules: tuple[str, ...] = ()
    """Names of the rules that speak of it."""
    words: str = ""
    """Other words that people use for it."""

    @property
    def headline(self) -> str:
        """The title as a sentence begins; code stays as it is."""
        first = self.title.split(" ", 1)[0]
        return self.title[0].upper() + self.title[1:] if first.isalpha() else self.title


_RUN = '`deinplace run train.py` names both lines; `deinplace fix . --run "python train.py"` mends and proves it.'

# the first that matches is taken: the special come before the general
MEANINGS = (
    Meaning(
        "version",
        r"needed for gradient computation|modified by an in ?place operation"
        r"|is at version \d+ expected version",
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[torch.FloatTensor [64, 128]], which is output 0 of Relu, is at version 1; expected version 0 instead.",
        "a tensor that backward needs was overwritten",
        "Autograd kept this tensor while the forward ran, and something changed its memory before backward used it. "
        "PyTorch names the operation that kept the tensor, never the line that overwrote it. The counter that it "
        "compares is shared by a tensor, its views and its detach() aliases. An optimizer's step() between the "
        "forward and a later backward overwrites weights in the same way.",
        _RUN,
        ("augmented-assignment", "inplace-flag", "subscript-write", "step-before-backward", "buffer-loop"),
        "version mismatch inplace error",
    ),
    Meaning(
        "leaf-view",
        r"a view of a leaf variable|leaf variable has been moved into the graph interior",
        "a view of a leaf Variable that requires grad is being used in an in-place operation.",
        "a part of a parameter is written where autograd watches",
        "The tensor written is a view, such as `weight[0]`, of a leaf that requires grad, which would stop being one.",
        "For an initialisation or a hand-written update, put the unchanged statement under `with torch.no_grad():`. "
        "Where the new value should be part of the graph, build a new tensor: `w = weight.clone(); w[0] = ...`.",
        ("leaf-write",),
        "slice row of weight embedding padding",
    ),
    Meaning(
        "leaf",
        r"leaf variable that requires grad",
        "a leaf Variable that requires grad is being used in an in-place operation.",
        "a parameter, or another leaf, is written where autograd watches",
        "A leaf that requires grad has no history that the write could join.",
        "For an initialisation or a hand-written update, put the unchanged statement under `with torch.no_grad():`; "
        "`w = w - lr * w.grad` is no repair, since the new w is no leaf and gets no .grad. Where the new value should "
        "be part of the graph, use the out-of-place form under another name.",
        ("leaf-write",),
        "leaf tensor node inplace parameter weight init initialize",
    ),
    Meaning(
        "hook",
        r"backward hook function(backward)?\d* is a view",
        "Output 0 of BackwardHookFunction is a view and is being modified inplace.",
        "a full backward hook meets an in-place operation",
        "register_full_backward_hook wraps a module's inputs and outputs in views, which the next in-place operation, "
        "often an activation with inplace=True, may not write.",
        "Turn inplace off in the module that follows the hooked one, or write `x = x + y` for `x += y`. " + _RUN,
        ("inplace-flag", "view-write"),
        "hooks grad-cam gradcam shap captum register_full_backward_hook inplace",
    ),
    Meaning(
        "several-views",
        r"output \d+ of \w*(split|unbind|chunk)\w* is a view and|function that returns multiple views",
        "Output 0 of Split is a view and is being modified inplace. This view is the output of a function that "
        "returns multiple views.",
        "one of several views from split, chunk, unbind or iteration is written",
        "These functions return several views of one tensor at once, and autograd does not track writes to them.",
        "Use the out-of-place form, or clone the part before it is written. " + _RUN,
        ("view-write",),
        "loop over tensor rows inplace",
    ),
    Meaning(
        "view",
        r"view (that )?was created in(side)? (a )?(no_?grad|inference)|created inside a custom (autograd )?function"
        r"|output \d+ of \w+ is a view and",
        "A view was created in no_grad mode and is being modified inplace with grad mode enabled.",
        "a view that autograd cannot follow is written",
        "The view was made by a custom Function or under no_grad, so a write through it cannot be given a gradient.",
        "Clone the view before it is written, or make it where grad mode is on. " + _RUN,
        ("view-write",),
        "custom autograd function view inplace",
    ),
    Meaning(
        "expanded",
        r"more than one element of the written to tensor",
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location.",
        "an expanded tensor is written",
        "expand(), broadcast_to() and some strides make many elements share one memory cell: a write would hit all.",
        "Clone before the write, `x = x.clone()`, or use the out-of-place form.",
        ("view-write",),
        "expand expand_as broadcast inplace write",
    ),
    Meaning(
        "overlap",
        r"some elements of the input tensor and the written to tensor"
        r"|unsupported operation the input tensors cannot be any of the output tensors",
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
        "location.",
        "the tensor read and the tensor written overlap",
        "`x[1:] += x[:-1]` and its like read what they are writing.",
        "Clone what is read: `x[1:] += x[:-1].clone()`.",
        ("subscript-write",),
    ),
    Meaning(
        "detach",
        r"cant detach views in ?place",
        "Can't detach views in-place. Use detach() instead.",
        "detach_() was called on a view",
        "A view shares history with its base and cannot lose it alone.",
        "Use `x = x.detach()`. Where zero_grad() calls it under DistributedDataParallel, set `gradient_as_bucket_view` "
        "to False, or let zero_grad set the gradients to None.",
        ("inplace-method",),
        "detach_ view",
    ),
    Meaning(
        "second-backward",
        r"backward through the graph (for )?(a|the) second time"
        r"|(buffers|results|tensors after they) have already been freed"
        r"|saved intermediate values of the graph are freed",
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed).",
        "the same graph is walked twice",
        "The first backward freed what it had saved. Often a state is carried from one iteration into the next with "
        "its history: retain_graph=True then only turns this error into the one about in-place operations.",
        "Detach what is carried over: `state = state.detach()`; or add the losses and call backward once.",
        ("carried-state",),
        "retain_graph retain graph backward twice again call two losses",
    ),
    Meaning(
        "out",
        r"arguments dont support automatic differentiation",
        "add(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
        "requires grad.",
        "out= is used where a gradient is wanted",
        "Autograd does not record operations that write into out=.",
        "Assign the result instead: `y = torch.add(a, b)` for `torch.add(a, b, out=y)`.",
        ("out-argument",),
    ),
    Meaning(
        "inference",
        r"in ?place update to inference tensor|inference tensors cannot be saved for backward",
        "Inplace update to inference tensor outside InferenceMode is not allowed.",
        "a tensor from inference mode is used for training",
        "Tensors made under torch.inference_mode() have no version counter and can never take part in autograd.",
        "Clone it outside inference mode, or make it under torch.no_grad().",
    ),
    Meaning(
        "dtype",
        r"result type \w+ cant be cast to the desired output type",
        "result type Float can't be cast to the desired output type Long",
        "an in-place operation would have to change the dtype",
        "`x += y` keeps the dtype of x, and the result does not fit it.",
        "Convert what is added, or write `x = x + y`, which changes the dtype of x.",
        ("augmented-assignment",),
    ),
    Meaning(
        "shape",
        r"output with shape [\d ]*doesnt match the broadcast shape",
        "output with shape [1] doesn't match the broadcast shape [3]",
        "an in-place operation would have to change the shape",
        "`x += y` keeps the shape of x: y is broadcast to it, never the other way round.",
        "Write `x = x + y`, which takes the shape of both together, or make x that large from the start.",
        ("augmented-assignment",),
    ),
    Meaning(
        "parameter",
        r"cannot assign torch\w+ as parameter|cannot assign \w+ as parameter \w+ torch ?nn ?parameter or none expected",
        "cannot assign 'torch.FloatTensor' as parameter 'weight' (torch.nn.Parameter or None expected)",
        "an attribute that holds a Parameter was given a plain tensor",
        "`self.weight = self.weight + 1` makes a tensor that is no Parameter. It is what is left when an in-place "
        "update of a parameter is written out of place by hand.",
        "Leave the in-place update as it was and put it under `with torch.no_grad():`; or give the new value another "
        "name, and leave the Parameter alone.",
        ("leaf-write",),
    ),
    Meaning(
        "step",
        "",
        "(modified by an inplace operation, although no in-place operation is near)",
        "an optimizer stepped between a forward and a backward that needs the old weights",
        "step() writes the parameters in place. A graph that was built with the old weights cannot be differentiated "
        "any more. GANs, actor and critic, and several losses that share one forward meet it; switching inplace=True "
        "off does not help, since nothing of that kind is at fault.",
        "Call every backward() that needs the old weights before the step that overwrites them, or compute the forward "
        "again after it. " + _RUN,
        ("step-before-backward",),
        "gan generator discriminator adversarial reinforcement actor critic a2c ppo multiple losses optimizers "
        "inplace error two optimizers step",
    ),
    Meaning(
        "silent",
        "",
        "(no error at all: gradients are wrong)",
        "a write that no version counter sees",
        "Writes through `.data`, NumPy memory, DLPack, raw pointers and foreign kernels do not count versions. "
        "Backward runs to its end, with the values that it finds.",
        "`deinplace run train.py` reports writes through .data as hidden; `deinplace run --paranoid train.py` compares "
        "copies of all saved tensors, and finds the others, too.",
        ("inplace-method", "clone-where-saved"),
        "silent silently wrong gradient numpy dlpack .data no error",
    ),
)  # fmt: skip

_DETAIL = re.compile(
    r"\[(?P<type>[\w.]+) \[(?P<shape>[\d, ]*)\]\](?:, which is output (?P<output>\d+) of (?P<node>\w+),)? is at "
    r"version (?P<now>\d+); expected version (?P<then>\d+)",
    re.IGNORECASE,
)
_BACKWARD = re.compile(r"Backward\d*$", re.IGNORECASE)
_LOG_PREFIX = re.compile(r"^\s*(?:\[?rank\s?\d+\]?:|E\s{2,}|[>|])+", re.MULTILINE)


def understand(text: str) -> str:
    """What an error means and what to do about it, in plain lines; empty where it is not one of these."""
    meaning = recognise(text)
    return page(meaning, text) if meaning else ""


def recognise(text: str) -> Meaning | None:
    """The kind of error that a text holds, however it was pasted; None where it is none of these."""
    flat = squeezed(text)
    known = (m for m in MEANINGS if m.pattern)
    return next((m for m in known if re.search(re.sub(r"[ '\-_]", "", m.pattern), flat)), None)


def squeezed(text: str) -> str:
    """A text's letters and digits alone, in lower case: quotes, line breaks, marks and spaces do not count."""
    plain = unicodedata.normalize("NFKC", _LOG_PREFIX.sub("", text)).casefold()
    return "".join(char for char in plain if char.isalnum())


def page(meaning: Meaning, text: str = "") -> str:
    """What is said of an error; `text` may hold it with its numbers."""
    detail, rules = _detail(" ".join(_LOG_PREFIX.sub("", text).split()))
    names = dict.fromkeys((*rules, *meaning.rules))
    more = f"More: {', '.join(f'`deinplace explain {name}`' for name in names)}" if names else ""
    parts = [meaning.headline, *map(_wrap, (meaning.why, *detail, meaning.do, more))]
    return "\n\n".join(part for part in parts if part)


def _detail(flat: str) -> tuple[list[str], tuple[str, ...]]:
    """What the numbers of a version mismatch say about this very tensor, and the rules that they point at."""
    found = _DETAIL.search(flat)
    if found is None:
        return [], ()
    writes = int(found["now"]) - int(found["then"])
    node = _BACKWARD.sub("", found["node"] or "")
    made = f", made by {node}," if node else ""
    times = "once" if writes == 1 else f"{writes} times"
    said = [f"Here: a {found['type']} of shape ({found['shape']}){made} was written {times} after it was saved."]
    if not node:
        said.append(
            "No operation made it: it is a parameter or a buffer, so look for an optimizer's step() (or a buffer's "
            "update) between the forward and this backward."
        )
        return said, ("step-before-backward", "carried-state")
    if node.casefold() in ("asstrided", "t", "transpose", "permute") and found["shape"].count(",") == 1:
        said.append(
            "A matrix that is a view is often the weight of a Linear layer, which a step() between the forward and "
            "this backward overwrote; or it is a part of a tensor that a loop fills."
        )
        return said, ("step-before-backward", "buffer-loop")
    return said, ()


def _wrap(text: str) -> str:
    whole = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)  # a command stays on one line
    return fill(whole, 80, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
