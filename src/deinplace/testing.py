"""For the tests of users: equal gradients of two functions, and errors that name the line which overwrote a tensor.

Torch is imported when one of these is called, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from deinplace.model import Place
    from deinplace.report.view import View

__all__ = ["InPlaceError", "assert_same_gradients", "watch"]


class InPlaceError(RuntimeError):
    """Backward needs a tensor that was overwritten, or autograd refuses a write: both lines, where there are two.

    `saved` and `overwritten` are (path, line, function), or None where no line of the user's own is known.
    """

    def __init__(
        self,
        message: str,
        saved: tuple[str, int, str] | None = None,
        overwritten: tuple[str, int, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.saved, self.overwritten = saved, overwritten


def assert_same_gradients(
    f: Callable[..., Any],
    g: Callable[..., Any],
    inputs: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dtype: torch.dtype | None = None,
    rtol: float | None = None,
    atol: float = 1e-7,
    loss: Callable[[Any], torch.Tensor] | None = None,
    arguments: bool = True,
    repair: bool = False,
    seed: int = 0,
) -> None:
    """Check that `g` computes what `f` computes: results, gradients, and what either leaves in its arguments.

    Both are called with copies of `inputs` and `kwargs`, which may hold tensors, modules, and containers of them. Every
    float tensor among them, every parameter of a module, and every leaf that a function has captured gets a gradient;
    those of all float tensors in the result enter, each element with a weight of its own. Where `f` and `g` are modules
    or methods of modules, copies of them are called, with the parameters and buffers of `f`. Random generators start
    from `seed` each time.

    Args:
        f: What counts as right.
        g: What is compared with it.
        inputs: Positional arguments, or a single tensor.
        kwargs: Keyword arguments.
        dtype: Floating-point type to compute in, such as `torch.float64`; by default that of the inputs.
        rtol: Largest error relative to a tensor's largest magnitude; by default 1e-5, 1e-9 for float64, 2e-3 for
            float16, 2e-2 for bfloat16.
        atol: Largest absolute error besides.
        loss: Makes the scalar to go backward from; by default a weighted sum of the result.
        arguments: Whether what the arguments hold after the call has to agree, too.
        repair: Run `f` with a copy of each saved tensor that it overwrites, so that backward sees what was meant: for
            an `f` that fails with an in-place error.
        seed: Where random numbers start.

    Raises:
        AssertionError: the first thing that differs: which gradient, by how much, and where.

    >>> import torch
    >>> def f(x, r):
    ...     y = torch.relu(x)
    ...     y = y + r
    ...     return y * 2
    >>> def g(x, r):
    ...     y = torch.relu(x)
    ...     return (y - r) * 2
    >>> inputs = (torch.ones(3), torch.ones(3))
    >>> assert_same_gradients(f, f, inputs)
    >>> assert_same_gradients(f, g, inputs)
    Traceback (most recent call last):
    ...
    AssertionError: result: 3 of 3 elements differ, by up to 4 at (0,): f gives 4, g gives 0 (allowed 4.01e-05)
    """
    import torch

    from deinplace.probe import gradients, guard_backward

    given = ((inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs), dict(kwargs or {}))
    state = gradients.state_of(f)
    if repair:
        with guard_backward.repaired():
            first = gradients.called(f, state, given, dtype, loss, seed)
    else:
        first = gradients.called(f, state, given, dtype, loss, seed)
    try:
        second = gradients.called(g, state, given, dtype, loss, seed)
    except Exception as error:
        raise AssertionError(f"f returns, g raises {type(error).__name__}: {error}") from error
    pairs = [("result", first.result, second.result)]
    if arguments:
        pairs += [(f"after the call, {name}", value, second.arguments[name]) for name, value in first.arguments.items()]
    for name in dict.fromkeys((*first.gradients, *second.gradients)):
        pairs.append((f"gradient of {name}", first.gradients.get(name), second.gradients.get(name)))
    for what, a, b in pairs:
        words = gradients.difference(what, a, b, rtol, atol)
        if words:
            raise AssertionError(words)


@contextmanager
def watch(*, hidden: bool = True) -> Iterator[None]:
    """Raise an error that names both lines where PyTorch names none, or only the one that saved.

    Inside the block, which may also be a test that this decorates, every tensor that autograd keeps and every write is
    seen. Where backward needs an overwritten tensor, `InPlaceError` names the line that saved it and the line that
    overwrote it; PyTorch's own error is its cause. A write that autograd refuses on the spot is raised likewise.

    Args:
        hidden: Raise as well where PyTorch notices nothing, as for a write through `.data`, and gradients would be
            silently wrong.

    Raises:
        InPlaceError: backward needs what was overwritten, or autograd refuses a write.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> with watch():
    ...     y = x.exp()
    ...     y += 1
    ...     y.sum().backward()
    Traceback (most recent call last):
    ...
    deinplace.testing.InPlaceError: backward needs the output of exp ...
    """
    from deinplace.probe.guard_backward import guarded

    with guarded(_overwritten, _refused, hidden):
        yield


def _overwritten(entry: dict[str, Any]) -> InPlaceError:
    """The error for a save that was overwritten."""
    from deinplace.report import words
    from deinplace.verify import account

    conflict = account.conflict(entry)
    ends = (("saved", conflict.save.place), ("overwritten", conflict.write.place))
    view = _view(place for _, place in ends)
    lines = [words.sentence(conflict, view), *(_line(word, place, view) for word, place in ends if place is not None)]
    return InPlaceError("\n".join(lines), *(_plain(place) for _, place in ends))


def _refused(entry: dict[str, Any], error: RuntimeError) -> InPlaceError:
    """The error for a write that autograd refuses."""
    from deinplace.verify import account

    stack = account.places(entry["stack"])
    place = stack[0] if stack else None
    lines = [str(error).strip().splitlines()[0]]
    if place is not None:
        lines.append(_line("written", place, _view([place])))
    return InPlaceError("\n".join(lines), None, _plain(place))


def _line(word: str, place: Place, view: View) -> str:
    code = (view.line(place.path, place.span.line) or "").strip()
    return f"  {word}: {view.at(place)} in {place.function}" + (f": {code}" if code else "")


def _view(places: Any) -> View:
    """A view that knows the files of some places."""
    from pathlib import Path

    from deinplace.files import read_text
    from deinplace.report.view import View

    paths = {place.path for place in places if place is not None}
    texts = {path: read_text(path) for path in paths}
    return View(str(Path.cwd()), {path: text for path, text in texts.items() if text is not None})


def _plain(place: Place | None) -> tuple[str, int, str] | None:
    return (place.path, place.span.line, place.function) if place is not None else None
