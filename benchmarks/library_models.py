"""Models of a library, built small and run once: the child of libraries.py, for an interpreter without deinplace.

    python library_models.py FOLDER LIBRARY --list          names, the most different ones first
    python library_models.py FOLDER LIBRARY LARGEST < REQUESTS      a line of JSON for each model that was asked for

FOLDER holds the copy of the library to import. A request is {"name", "way", "dump"}: `way` is the recipe to use (null:
the first that works), `dump` a file for values, or null.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import itertools
import json
import random
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

CPU_SECONDS, BYTES = 40, 6 << 30
BROKEN = re.compile("modified by an inplace operation|is being used in an in-place operation|being modified inplace")
HINTS = ("test_", "atto", "femto", "pico", "nano", "xxs", "xxt", "_xs", "tiny", "_ti", "mini", "small", "_s", "18", "0")
GUESSES: dict[str, Any] = {
    "in_channels": 3, "channels": 3, "num_classes": 5, "classes": 5, "out_channels": 4, "dim": 32, "depth": 2,
    "heads": 2, "mlp_dim": 32, "image_size": 32, "img_size": 32, "patch_size": 8, "spatial_dims": 2, "hidden_size": 32,
    "num_tokens": 16, "max_seq_len": 16, "in_features": 32, "out_features": 8, "dim_head": 16, "kernel_size": 3,
    "hidden_channels": 8, "num_layers": 2, "num_features": 3, "embed_dim": 32, "num_heads": 2, "features": (8, 8, 8, 8),
    "strides": (1, 2), "num_res_units": 1, "sigma": (1.5, 1.5), "size": (16, 16), "frames": 8, "frame_patch_size": 2,
    "image_patch_size": 8, "temporal_patch_size": 2, "feature_size": 12, "n_layers": 2, "n_heads": 2,
    "init_filters": 8, "edge_dim": 4, "K": 2, "alpha": 0.5, "theta": 0.5, "p": 1.0, "n_classes": 5,
}  # fmt: skip
"""What arguments without a default are given, by name."""
SPACES = {
    "kornia": ("kornia.augmentation", "kornia.filters", "kornia.color", "kornia.losses", "kornia.enhance",
               "kornia.morphology", "kornia.geometry.transform", "kornia.feature", "kornia.models"),
    "monai": ("monai.networks.nets", "monai.networks.blocks", "monai.networks.layers", "monai.losses"),
    "torch_geometric": ("torch_geometric.nn.conv", "torch_geometric.nn.models", "torch_geometric.nn.norm"),
    "torchvision": ("torchvision.ops", "torchvision.transforms"),
}  # fmt: skip
"""Modules whose classes are models too."""
Run = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
Recipe = Callable[[], Run]


def images(size: int, *lead: int) -> Tensor:
    """(2, 3, ..., size, size), in [0, 1]."""
    return torch.rand(2, 3, *lead, size, size, requires_grad=True)


def names(library: str) -> list[str]:
    """All models of a library, a different kind each time."""
    module = importlib.import_module(library)
    if library == "timm":
        families = {m: module.list_models(module=m) for m in module.list_modules()}
        return spread(families.values())
    if library == "torchvision":
        return [*sorted(module.models.list_models(), key=hinted), *classes(library)]
    if library == "segmentation_models_pytorch":
        archs = ("unet", "unetplusplus", "fpn", "pspnet", "linknet", "deeplabv3", "deeplabv3plus", "pan", "manet",
                 "upernet", "segformer", "dpt")  # fmt: skip
        encoders = [e for e in module.encoders.encoders if not e.startswith("tu-")]
        small = [e for e in sorted(encoders, key=hinted) if any(h in e for h in HINTS)]
        return [f"unet:{e}" for e in small] + [f"{a}:resnet18" for a in archs[1:]]
    return classes(library)


def hinted(name: str) -> tuple[bool, str]:
    return not any(h in name for h in HINTS), name


def spread(families: Any) -> list[str]:
    """Small names first, one of each family in turn."""
    turns = itertools.zip_longest(*(sorted(f, key=hinted) for f in families))
    return [name for turn in turns for name in turn if name is not None]


def classes(library: str) -> list[str]:
    """Module classes that a library's namespaces offer, as module:class."""
    found = {}
    for space in SPACES.get(library, tuple(_own_modules(library))):
        try:
            module = importlib.import_module(space)
        except Exception as error:  # noqa: BLE001 - any import of a library may fail in any way
            print(f"{space}: {error!r}", file=sys.stderr)
            continue
        for name, value in sorted(vars(module).items()):
            own = inspect.isclass(value) and issubclass(value, nn.Module) and value.__module__.startswith(library)
            if own and not name.startswith("_"):
                found.setdefault(value, f"{value.__module__}:{name}")
    return list(found.values())


def _own_modules(library: str) -> Iterator[str]:
    import pkgutil

    top = importlib.import_module(library)
    yield library
    yield from (f"{library}.{m.name}" for m in pkgutil.iter_modules(top.__path__) if not m.name.startswith("_"))


def recipes(library: str, name: str) -> list[Recipe]:
    """Ways to build and call a model, the smallest first."""
    if ":" in name and library != "segmentation_models_pytorch":
        return list(_class_recipes(name))
    module = importlib.import_module(library)
    if library == "timm":
        config = module.get_pretrained_cfg(name)
        size = (config.input_size if config else (3, 224, 224))[-1]
        plain = [lambda s=s: (module.create_model(name), (images(s),), {}) for s in (64, 128, size)]
        sized = [lambda s=s: (module.create_model(name, img_size=s), (images(s),), {}) for s in (64, 128)]
        return [*sized, plain[-1]] if config is None or config.fixed_input_size else plain
    if library == "torchvision":
        return list(_torchvision(module.models, name))
    arch, _, encoder = name.partition(":")
    make = lambda: module.create_model(arch, encoder_name=encoder, encoder_weights=None)  # noqa: E731
    return [lambda s=s: (make(), (images(s),), {}) for s in (64, 128)]


def _torchvision(models: Any, name: str) -> Iterator[Recipe]:
    def target() -> dict[str, Tensor]:
        box = torch.tensor([[4.0, 4.0, 40.0, 40.0]])
        return {"boxes": box, "labels": torch.tensor([1]), "masks": torch.ones(1, 64, 64, dtype=torch.uint8),
                "keypoints": torch.tensor([[[9.0, 9.0, 1.0]] * 17])}  # fmt: skip

    def pair() -> list[Tensor]:
        return [torch.rand(3, 64, 64, requires_grad=True) for _ in range(2)]

    make = models.get_model
    if "rcnn" in name or name.startswith(("ssd", "fcos", "retinanet")):
        sizes = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 96}
        for more in ({"num_classes": 2}, {}):
            yield lambda m=more: (
                make(name, weights=None, weights_backbone=None, **m, **sizes), (pair(), [target(), target()]), {}
            )  # fmt: skip
        return
    for size in (64, 128, 224, 299):
        yield lambda s=size: (make(name, weights=None), (images(s),), {})
        yield lambda s=size: (make(name, weights=None, weights_backbone=None), (images(s),), {})
        yield lambda s=size: (make(name, weights=None), (images(s), images(s)), {"num_flow_updates": 2})
    for frames, size in ((4, 64), (16, 112), (16, 224)):
        yield lambda f=frames, s=size: (make(name, weights=None), (images(s, f),), {})


def _class_recipes(name: str) -> Iterator[Recipe]:
    """Classes that say nothing of what they take: arguments are guessed by name, inputs tried in turn."""
    place, _, title = name.partition(":")
    kind = getattr(importlib.import_module(place), title)

    def edges() -> tuple[Any, ...]:
        return torch.randn(8, 3, requires_grad=True), torch.randint(8, (2, 20))

    inputs: list[Callable[[], tuple[Any, ...]]] = [
        edges,
        lambda: (images(32),),
        lambda: (images(64),),
        lambda: (images(16, 16),),
        lambda: (images(32), images(32)),
        lambda: (images(32, 8),),
        lambda: (torch.randn(2, 16, 32, requires_grad=True),),
        lambda: (torch.randint(16, (2, 16)),),
        lambda: (torch.randn(2, 3, 16, requires_grad=True),),
        lambda: (torch.randn(2, 32, requires_grad=True),),
        lambda: (torch.randn(2, 5, 16, 16, requires_grad=True), torch.randint(5, (2, 16, 16))),
        lambda: (torch.randn(2, 4, requires_grad=True), torch.randint(4, (2,))),
    ]
    for more in ({}, {"spatial_dims": 3}):
        arguments = guessed(kind, more)
        if arguments is None:
            return
        for make in inputs:
            yield lambda a=arguments, m=make: (kind(**a), m(), {})


def guessed(kind: type, more: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments for a constructor; None where one of them has no value here, or nothing takes `more`."""
    parameters = [
        p for p in inspect.signature(kind).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    known = {**GUESSES, **more}
    if set(more) - {p.name for p in parameters}:
        return None
    wanted = [p.name for p in parameters if p.default is p.empty]
    return {n: known[n] for n in wanted} if all(n in known for n in wanted) else None


def run(library: str, largest: int, name: str, way: int | None, dump: str | None) -> dict[str, Any]:
    """One model, forward and backward in train mode."""
    errors: list[str] = []
    for number, recipe in enumerate(recipes(library, name)):
        if way not in (None, number):
            continue
        try:
            return {"name": name, "way": number, **measured(recipe, largest, dump)}
        except TooLargeError as error:
            return {"name": name, "error": str(error), "large": True}
        except TookLong as error:
            errors.append(f"TookLong: {error}")
            break
        except Exception as error:  # noqa: BLE001 - so may any model, and the next recipe may fit
            errors.append(f"{type(error).__name__}: {str(error).strip().splitlines()[0][:150] if str(error) else ''}")
            if BROKEN.search(errors[-1]):
                return {"name": name, "way": number, "error": errors[-1], "broken": True}
    return {"name": name, "error": errors[-1] if errors else "no values for its arguments are known"}


class TooLargeError(Exception):
    """The model has too many parameters to be tried."""


class TookLong(BaseException):
    """The model used up its time."""


def measured(recipe: Recipe, largest: int, dump: str | None) -> dict[str, Any]:
    """Digests of everything that came of a run."""
    refuse_large(recipe, largest)
    seed()
    model, given, options = recipe()
    count = sum(p.numel() for p in model.parameters())
    seed()
    with torch.no_grad():
        for each in model.parameters():  # zeros would hide what lies behind them
            each.add_(torch.randn_like(each), alpha=0.02)
    passed = mapped(given)
    model.train()
    output = model(*passed, **options)
    outputs = dict(leaves("output", output))
    loss = [weighed(t) for t in outputs.values() if t.requires_grad and t.is_floating_point()]
    if not loss:
        raise ValueError("no output requires a gradient")
    torch.stack(loss).sum().backward()
    gradients = {f"grad {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    gradients |= {f"input grad {n}": t.grad for n, t in leaves("", given) if t.grad is not None}
    values = outputs | gradients | dict(leaves("input", passed))
    values |= {f"state {n}": t for n, t in model.state_dict().items() if isinstance(t, Tensor)}
    if dump is not None:
        torch.save({k: v.detach().clone() for k, v in values.items()}, dump)
    return {"digest": digest(values), "parameters": count, "gradients": len(gradients)}


def refuse_large(recipe: Recipe, largest: int) -> None:
    """Count a model's parameters where none is filled."""
    try:
        with torch.device("meta"):
            model, _, _ = recipe()
    except Exception:  # noqa: BLE001 - what can't be built this way may still be built the other
        return
    count = sum(p.numel() for p in model.parameters())
    if count > largest:
        raise TooLargeError(f"{count} parameters")


def mapped(value: Any) -> Any:
    """Arguments of which none is a leaf that requires grad, so that a model may write them."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {k: mapped(v) for k, v in value.items()}
    return type(value)(mapped(v) for v in value) if isinstance(value, (list, tuple)) else value


def seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import numpy

        numpy.random.seed(0)


def weighed(value: Tensor) -> Tensor:
    """A number in which every element counts differently."""
    return (value.float().flatten() * torch.linspace(-1.0, 1.1, value.numel())).sum()


def leaves(path: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors in what a model took or gave."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(f"{path}.{key}", each)
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from leaves(f"{path}.{number}", each)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(f"{path}.{field.name}", getattr(value, field.name))


def digest(values: Mapping[str, Tensor]) -> str:
    """One number for the names, shapes, types and bits of some tensors."""
    total = hashlib.blake2b(digest_size=16)
    for name, value in values.items():
        value = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
        total.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        total.update(value.contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def stopped(signum: int, frame: FrameType | None) -> None:
    raise TookLong(f"more than {CPU_SECONDS} CPU seconds")


def main() -> None:
    """List, or answer requests until there are no more."""
    folder, library = sys.argv[1:3]
    sys.path.insert(0, folder)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    module = importlib.import_module(library)
    if not str(module.__file__).startswith(folder):
        raise SystemExit(f"{library} was imported from {module.__file__}")
    if "--list" in sys.argv:
        print(json.dumps(names(library)), file=answers)
        return
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    signal.signal(signal.SIGPROF, stopped)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"begin": request["name"]}), file=answers, flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            answer = run(library, int(sys.argv[3]), request["name"], request["way"], request["dump"])
        except TookLong as error:
            answer = {"name": request["name"], "error": f"TookLong: {error}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
