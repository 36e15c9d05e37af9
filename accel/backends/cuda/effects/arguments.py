"""The arguments of effects for the kernel that runs them: a line for each op, at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL.Image import Resampling

from accel.backends.shared import box_blur, gaussian
from accel.backends.shared.gaussian import Shape
from accel.ops.row import Params


class Arguments(NamedTuple):
    """Fields of an op's descriptor, and data that is sent along: ``size`` bytes, made by ``data`` as they are sent.

    ``op``: its name in ``effect.h``. ``then``: an op to run on the result.
    """

    op: str
    numbers: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    sampling: int = 0
    fill: tuple[int, ...] = ()
    size: int = 0
    data: Callable[[], npt.NDArray[Any]] | None = None
    then: Arguments | None = None


def _blur(params: Params, shape: Shape) -> Arguments | None:
    order = gaussian.order_of(params, shape)
    if order is None:
        return None
    kernel_x, kernel_y = params[:2]

    def data() -> npt.NDArray[np.uint8]:
        blur = gaussian.prepared(params, order)
        limits = np.float32(0.5) - np.array([blur.dark, blur.bright], np.float32)
        ends = np.array([each for weights in (blur.across, blur.down) for each in _ends(weights)], np.int32)
        parts = (limits, ends, blur.across, blur.down, blur.window)
        return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])

    size = 4 * (6 + kernel_x + kernel_y + kernel_x * kernel_y)
    return Arguments("BLURRED", counts=(kernel_x, kernel_y, order == "fused"), size=size, data=data)


def _box_blur(radii: Params, passes: int) -> Arguments:
    """Chain blurs, those along the rows first."""
    found = None
    for across, radius in enumerate(reversed(radii)):
        for _ in range(passes if radius else 0):
            found = Arguments("BOX_BLURRED", counts=(*box_blur.weights(radius), across), then=found)
    return found or Arguments("COPIED")


def _ends(weights: npt.NDArray[np.float32]) -> tuple[int, int]:
    """The half-open range in which weights are not 0; at least one long."""
    places = np.flatnonzero(weights)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 1)


def _affine(params: Params, shape: Shape) -> Arguments:
    a, sampling, fill = params[2:]
    if sampling != Resampling.NEAREST:
        return Arguments("WARPED", numbers=a, sampling=sampling, fill=fill)
    starts = (a[2] + a[0] * 0.5 + a[1] * 0.5, a[5] + a[3] * 0.5 + a[4] * 0.5)
    return Arguments("FIXED", numbers=tuple(map(_fixed, (starts[0], *a[:2], starts[1], *a[3:5]))), fill=fill)


def _fixed(value: float) -> int:
    """A number in 1/65536 (Geometry.c, FIX)."""
    return math.floor(value * 65536.0 + 0.5)


def _erased(params: Params, shape: Shape) -> Arguments | None:
    """The arguments, if the value has the rectangle's size or repeats; else None, as torch broadcasts in other ways."""
    top, left, height, width, value = params
    channels = shape[2]
    if value.dim() != 3 or value.shape[0] not in (1, channels) or not value.numel():
        return None
    if value.shape[1] not in (1, height) or value.shape[2] not in (1, width):
        return None
    rows, columns = value.shape[1:]

    def given() -> npt.NDArray[np.uint8]:
        return np.asarray(value.to(torch.uint8).expand(channels, -1, -1).permute(1, 2, 0).contiguous())

    counts = (top, left, height, width, rows, columns)
    return Arguments("ERASED", counts=counts, size=channels * rows * columns, data=given)


ARGUMENTS: dict[str, Callable[[Params, Shape], Arguments | None]] = {
    "convert": lambda params, shape: Arguments("GREY"),
    "to_grayscale": lambda params, shape: Arguments("GREY"),
    "adjust_saturation": lambda params, shape: Arguments("SATURATED", numbers=params),
    "adjust_hue": lambda params, shape: Arguments("HUE", counts=(int(params[0] * 255) & 255,)),
    "permute_channels": lambda params, shape: Arguments(
        "PERMUTED", counts=(sum(source << 8 * channel for channel, source in enumerate(params[0])),)
    ),
    "adjust_sharpness": lambda params, shape: Arguments("SHARPENED", numbers=params),
    "gaussian_blur": _blur,
    "box_blur": lambda params, shape: _box_blur(params, 1),
    "pillow_gaussian_blur": lambda params, shape: _box_blur(tuple(map(box_blur.radius_of, params)), box_blur.PASSES),
    "affine": _affine,
    "perspective": lambda params, shape: Arguments(
        "WARPED", numbers=params[2], counts=(1,), sampling=params[3], fill=params[4]
    ),
    "transpose": lambda params, shape: Arguments("TRANSPOSED"),
    "erase_image": _erased,
    "adjust_contrast": lambda params, shape: Arguments("CONTRAST", numbers=params),
    "autocontrast": lambda params, shape: Arguments("AUTOCONTRAST"),
    "equalize": lambda params, shape: Arguments("EQUALIZED"),
}
