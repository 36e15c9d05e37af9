"""Steps on pixels that are equal to torchvision's functions on lazy tensors.

After ``ToImage()`` resizing follows torch's uint8 arithmetic, not Pillow's (``accel.ops.resample.Aten``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision.transforms import InterpolationMode

from accel.hooks.recording import tensor_resize
from accel.lazy.state import LazyState
from accel.ops.accept import whole
from accel.ops.colour import permuted
from accel.ops.filters import blurred
from accel.planning import order
from accel.recipe import Step
from accel.system import arithmetic
from accel.system.private_names import private

_geometry = private("torchvision.transforms.v2.functional._geometry", "_parse_pad_padding")

Steps = tuple[Step, ...] | None
"""None: there are none, or torchvision says what is wrong."""


def steps(lazy: LazyState, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
    """The steps on pixels that a call of a function is recorded as; None where it is not."""
    of_call = _STEPS.get(name)
    if of_call is None:
        return None
    try:
        found = of_call(lazy, *args, **kwargs)
    except Exception:  # torchvision says what is wrong
        return None
    return None if found is None or not _may_lead(lazy, found) else found


def _may_lead(lazy: LazyState, steps: tuple[Step, ...]) -> bool:
    """Whether steps on pixels may be recorded on a tensor."""
    size = lazy.shape[1:]
    return not lazy.after and False not in [order.may_lead(steps, recipe.steps, size) for recipe in lazy.recipes]


def _crop(lazy: LazyState, top: int, left: int, height: int, width: int) -> Steps:
    box = whole(top, left, height, width)
    return None if box is None or height < 1 or width < 1 else (("crop", box),)


def _pad(lazy: LazyState, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Steps:
    edges = whole(*_geometry._parse_pad_padding(padding))
    if edges is None:
        return None
    left, right, top, bottom = edges
    channels, height, width = lazy.shape
    fills = [0 if fill is None else fill] if not isinstance(fill, (list, tuple)) else list(fill)
    if lazy.dtype != torch.uint8 or min(left, right, top, bottom) < 0 or len(fills) not in (1, channels):
        return None
    if padding_mode == "constant":
        possible = all(value == int(value) and 0 <= value <= 255 for value in fills)
    else:  # torch refuses to reflect more than there is
        possible = padding_mode in ("edge", "reflect", "symmetric") and fills == [0]
        possible = possible and max(left, right) < width and max(top, bottom) < height
    if not possible:
        return None
    colour = tuple(int(value) for value in fills) * (channels if len(fills) == 1 else 1)
    return (("pad", (left, top, right, bottom, padding_mode, colour if any(colour) else None)),)


def _permute_channels(lazy: LazyState, permutation: Any) -> Steps:
    params = permuted(lazy, (permutation,))
    return None if params is None else (("permute_channels", params),)


def _gaussian_blur(version: int) -> Callable[..., Steps]:
    """Recorded of one image only: torch may add up otherwise in a batch of grey ones."""
    accept = blurred(version)

    def blur(lazy: LazyState, kernel_size: Any, sigma: Any = None) -> Steps:
        if lazy.dtype != torch.uint8 or lazy.lead or lazy.shape[0] not in (1, 3) or arithmetic.autocasts():
            return None
        params = accept(lazy, (kernel_size, sigma))
        return None if params is None else (("gaussian_blur", params),)

    return blur


def _resize(
    lazy: LazyState,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Steps:
    steps = tensor_resize.steps(lazy.shape[1:], size, interpolation, max_size, antialias)
    return None if steps and lazy.dtype != torch.uint8 else steps


def _resized_crop(
    lazy: LazyState,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Steps:
    crop = _crop(lazy, top, left, height, width)
    resize = None if crop is None else tensor_resize.steps(crop[0][1][2:], size, interpolation, None, antialias)
    return None if crop is None or resize is None or (resize and lazy.dtype != torch.uint8) else crop + resize


_STEPS: dict[str, Callable[..., Steps]] = {
    **dict.fromkeys(("v1.hflip", "v2.horizontal_flip"), lambda lazy: (("hflip", ()),)),
    **dict.fromkeys(("v1.vflip", "v2.vertical_flip"), lambda lazy: (("vflip", ()),)),
    **dict.fromkeys(("v1.crop", "v2.crop"), _crop),
    **dict.fromkeys(("v1.pad", "v2.pad"), _pad),
    "v2.resize": _resize,
    "v2.resized_crop": _resized_crop,
    "v2.permute_channels": _permute_channels,
    "v1.gaussian_blur": _gaussian_blur(1),
    "v2.gaussian_blur": _gaussian_blur(2),
}
"""By the name of the function."""
