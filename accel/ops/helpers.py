"""Rows of the table for steps on tensors that are no function of torchvision's, but recorded along with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from accel.ops.memory_layout import Layout, strides
from accel.ops.row import KernelOp


def _with_noise(values: torch.Tensor, noise: torch.Tensor, clip: bool) -> torch.Tensor:
    """v2's ``gaussian_noise`` with noise that was drawn when it was recorded: float for floats, int16 for uint8."""
    noisy = values + noise.to(values.device)
    if clip:
        noisy = torch.clamp(noisy, 0, 1 if values.is_floating_point() else 255)
    return noisy.to(values.dtype)


def _linear(values: torch.Tensor, matrix: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """``LinearTransformation`` of v1 and v2."""
    flat = values.reshape(-1, matrix.shape[0]) - mean.to(values.device)
    return torch.mm(flat, matrix.to(values.device, flat.dtype)).reshape(values.shape)


def _levels(values: torch.Tensor) -> torch.Tensor:
    """The uint8 pixels that ``to_pil_image`` makes of values."""
    if not values.is_floating_point():
        return values
    if values.device.type == "cpu":
        return torch.from_numpy((values.numpy() * 255).astype(np.uint8))
    return (values * 255).to(torch.uint8)


def _weighted(values: torch.Tensor, weight: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((1, 1, 1), weight, dtype=dtype, device=values.device).mul(values)


def _mixup(batch: torch.Tensor, lam: float) -> torch.Tensor:
    return batch.roll(1, 0).mul_(1.0 - lam).add_(batch.mul(lam))


def _cutmix(batch: torch.Tensor, box: tuple[int, int, int, int]) -> torch.Tensor:
    x1, y1, x2, y2 = box
    rolled, output = batch.roll(1, 0), batch.clone()
    output[..., y1:y2, x1:x2] = rolled[..., y1:y2, x1:x2]
    return output


THREADS = "threads"
"""The step with the number of threads where the steps after it were recorded, which torch's sums depend on."""


def _ordered(batch: torch.Tensor, order: torch.memory_format) -> torch.Tensor:
    return batch.contiguous(memory_format=order)


def in_memory(values: torch.Tensor, *layout: Any) -> torch.Tensor:
    """The values in another ``Layout``; on a device, where it decides no bits, as they are."""
    *lead, channels, height, width = values.shape
    target = Layout(*layout)
    lies = strides(tuple(lead), (channels, height, width), target)
    sizes = list(zip(values.shape, values.stride(), lies, strict=True))
    if values.device.type != "cpu" or all(size == 1 or now == then for size, now, then in sizes):
        return values
    length = 1 + sum((size - 1) * stride for size, _, stride in sizes)  # zeros between them, as files may be made of it
    storage = torch.zeros(length, dtype=values.dtype, device="cpu").untyped_storage()
    memory = torch.empty(0, dtype=values.dtype, device="cpu").set_(storage, 0, values.shape, lies)
    own = slice(1) if target.expanded else slice(None)
    memory[..., own, :, :].copy_(values[..., own, :, :])
    return memory


def same_threads(steps: tuple[tuple[str, tuple[Any, ...]], ...]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The ``THREADS`` step to record between these steps and a kernel that is recorded now; () if it is the same."""
    here = THREADS, (torch.get_num_threads(),)
    for step in reversed(steps):
        if step[0] == THREADS:
            return () if step == here else (here,)
    return (here,)


def _helper(name: str, params: tuple[str, ...], apply: Callable[..., torch.Tensor], **more: Any) -> KernelOp:
    """A row for a step that is recorded along with others, so it has no samples of its own."""
    return KernelOp(name, lambda values, params: apply(values, *params), params, (), apply=apply, **more)


ROWS = (
    _helper("gaussian_noise", ("noise", "clip"), _with_noise, elementwise=True, holds_tensors=True),
    _helper("linear_transformation", ("matrix", "mean"), _linear, holds_tensors=True),
    _helper("to_levels", (), _levels, elementwise=True),
    _helper("weighted", ("weight", "dtype"), _weighted, elementwise=True),
    _helper("plus", ("other",), torch.add, holds_tensors=True),
    _helper("mixup", ("lam",), _mixup),
    _helper("cutmix", ("box",), _cutmix),
    _helper("contiguous", ("memory_format",), _ordered, elementwise=True),
    _helper("in_memory", Layout._fields, in_memory, elementwise=True),
    _helper(THREADS, ("number",), lambda values, number: values),
)
