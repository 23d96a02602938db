"""Turns any value into a small, comparable description: small tensors whole, large ones as float64 sketches.

A sketch holds the sum of magnitudes, the norm, the extremes, the number of non-finite elements and eight projections on
fixed random vectors. An element that changes by d moves every projection by d times a weight near one.
"""

from __future__ import annotations

import base64
import functools
import zlib
from typing import Any

WHOLE = 256
"""Tensors of up to this many elements are kept whole."""
PROJECTIONS = 8
WIDTH = 4099
DEPTH = 4
ITEMS = 200


class Sketcher:
    """Describes values with one torch; its own generator leaves the program's random numbers alone."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.devices: set[str] = set()

    @functools.lru_cache(maxsize=64)  # noqa: B019 - one sketcher lives as long as the process
    def weights(self, rows: int, seed: int) -> Any:
        """Fixed random vectors with entries in [0.5, 1.5] and random signs, float64, `rows` by eight."""
        torch = self.torch
        generator = torch.Generator().manual_seed(seed)
        size = torch.rand(rows, PROJECTIONS, generator=generator, dtype=torch.float64) + 0.5
        sign = torch.randint(0, 2, (rows, PROJECTIONS), generator=generator) * 2 - 1
        return size * sign

    def tensor(self, value: Any) -> dict[str, Any]:
        """Description of one tensor."""
        torch = self.torch
        self.devices.add(value.device.type)
        if value.is_nested:  # has no shape of its own
            parts = value.detach().unbind()
            return {"q": [self.tensor(part) for part in parts[:ITEMS]], "n": len(parts)}
        described: dict[str, Any] = {
            "t": str(value.dtype).removeprefix("torch."),
            "s": list(value.shape),
            "g": bool(value.requires_grad),
        }
        try:
            flat = self._flat(value)
            numbers = flat if flat.numel() <= WHOLE else self._project(flat)
            raw = numbers.to(torch.float64).contiguous()
            data = bytes(raw.numpy().tobytes() if _numpy(raw) else bytes(raw.untyped_storage()))
        except (RuntimeError, NotImplementedError, TypeError) as error:
            return {**described, "opaque": type(error).__name__}
        if flat.numel() > WHOLE:
            described["sketch"] = True
        described["v"] = base64.b64encode(data).decode()
        return described

    def _flat(self, value: Any) -> Any:
        torch = self.torch
        functions = torch._C._functorch
        while functions.is_functorch_wrapped_tensor(value):  # the values of a tensor inside torch.func transforms
            value = functions.get_unwrapped(value)
        data = value.detach()
        if data.is_sparse or data.layout != torch.strided:
            data = data.to_dense()
        if data.is_quantized:
            data = data.dequantize()
        data = data.cpu()
        if data.is_complex():
            data = torch.view_as_real(data.resolve_conj().resolve_neg())
        return data.reshape(-1).to(torch.float64)

    def _project(self, flat: Any) -> Any:
        torch = self.torch
        finite = torch.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)
        size = flat.numel()
        bad = (~torch.isfinite(flat)).sum().to(torch.float64)
        rows = -(-size // WIDTH)
        padded = torch.nn.functional.pad(finite, (0, rows * WIDTH - size)).view(rows, WIDTH)
        projected = ((padded @ self.weights(WIDTH, 1)) * self.weights(rows, 2)).sum(0)
        head = torch.stack([finite.norm(), finite.abs().sum(), finite.max(), finite.min(), bad])
        return torch.cat([head, projected])

    def value(self, value: Any, depth: int = 0) -> Any:
        """Description of any value: tensors, plain values, containers of them; None for what has no such form."""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if value is None or isinstance(value, bool | int | float | str | complex):
            return {"p": repr(value) if isinstance(value, complex) else value, "k": type(value).__name__}
        if type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "fiub":
            return self.tensor(torch.as_tensor(value.copy() if hasattr(value, "copy") else value))
        if depth < DEPTH and isinstance(value, list | tuple):
            return {"q": [self.value(item, depth + 1) for item in value[:ITEMS]], "n": len(value)}
        if depth < DEPTH and isinstance(value, dict):
            return {"m": {str(k): self.value(v, depth + 1) for k, v in list(value.items())[:ITEMS]}, "n": len(value)}
        return None


def _numpy(tensor: Any) -> bool:
    """Whether this torch can lend its memory to NumPy."""
    try:
        tensor.numpy()
    except RuntimeError:
        return False
    return True


def checksum(data: bytes) -> int:
    """CRC-32 of bytes, for states that are equal or not."""
    return zlib.crc32(data)
