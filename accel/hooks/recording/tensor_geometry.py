"""Calls of torchvision's functions on lazy tensors that are recorded as steps on pixels.

After ``ToImage()`` resizing follows torch's uint8 arithmetic, not Pillow's (``accel.ops.resample.Aten``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode

from accel.lazy.state import LazyState
from accel.ops import resample
from accel.ops.accept import listed, whole
from accel.ops.colour import permuted
from accel.ops.filters import blurred
from accel.ops.resample import Aten
from accel.planning import order
from accel.recipes.recipe import Step
from accel.system import arithmetic, counters
from accel.system.private_names import private

_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_check_interpolation",
    "_compute_resized_output_size",
    "_do_native_uint8_resize_on_cpu",
    "_parse_pad_padding",
)

Steps = tuple[Step, ...] | None
"""Steps; None: the call is not recorded as steps on pixels, and torchvision's function raises if it is wrong."""


def steps(lazy: LazyState, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
    """The steps on pixels that a call of a function is recorded as; None if it is not."""
    of_call = _STEPS.get(name)
    if of_call is None:
        return None
    try:
        found = of_call(lazy, *args, **kwargs)
    except Exception:  # torchvision's function raises the right error
        return None
    return None if found is None or not _may_lead(lazy, found) else found


def may_be_pixels(name: str) -> bool:
    """Whether calls of a function may be recorded as steps on pixels, depending on the steps before them."""
    return name in _STEPS


def _may_lead(lazy: LazyState, steps: tuple[Step, ...]) -> bool:
    """Whether steps on pixels may be moved ahead of the steps on values that a tensor has."""
    size = lazy.shape[1:]
    return not lazy.after and False not in [order.may_lead(steps, recipe.steps, size) for recipe in lazy.recipes]


def _crop(lazy: LazyState, top: int, left: int, height: int, width: int) -> Steps:
    box = whole(top, left, height, width)
    before = top + height < 0 or left + width < 0  # torchvision makes something else of such boxes
    return None if box is None or before or height < 1 or width < 1 else (("crop", box),)


def _pad(lazy: LazyState, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Steps:
    edges = _geometry._parse_pad_padding(padding)
    channels, height, width = lazy.shape
    fills = listed(fill)
    if {*map(type, edges)} != {int} or not {*map(type, fills)} <= {int, float}:  # torch's pad may refuse them
        return None
    left, right, top, bottom = edges
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


def _pad_v1(lazy: LazyState, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Steps:
    return None if isinstance(fill, (list, tuple)) else _pad(lazy, padding, fill, padding_mode)


def _permute_channels(lazy: LazyState, permutation: Any) -> Steps:
    params = permuted(lazy, (permutation,))
    return None if params is None else (("permute_channels", params),)


def _gaussian_blur(version: int) -> Callable[..., Steps]:
    """Record the blur of single images only: in a batch of grey ones torch may add up in another order."""
    accept = blurred(version)

    def blur(lazy: LazyState, kernel_size: Any, sigma: Any = None) -> Steps:
        if lazy.dtype != torch.uint8 or lazy.lead or lazy.shape[0] not in (1, 3) or arithmetic.autocasts():
            return None
        params = accept(lazy, (kernel_size, sigma))
        return None if params is None else (("gaussian_blur", params),)

    return blur


def _resize(lazy: LazyState, *args: Any, **kwargs: Any) -> Steps:
    return _resized(lazy, lazy.shape[1:], *args, **kwargs)


def _resized_crop(lazy: LazyState, top: int, left: int, height: int, width: int, **resize: Any) -> Steps:
    crop = _crop(lazy, top, left, height, width)
    resized = None if crop is None else _resized(lazy, crop[0][1][2:], **resize)
    return None if crop is None or resized is None else crop + resized


# -- resizing: torch's arithmetic depends on what it was compiled for, and on the CPU ------------------------

_RESAMPLE = {
    (InterpolationMode.BILINEAR, True): Aten.BILINEAR,
    (InterpolationMode.BICUBIC, True): Aten.BICUBIC,
    (InterpolationMode.LANCZOS, True): Aten.LANCZOS,
    (InterpolationMode.BILINEAR, False): Aten.BILINEAR_POINT,
    (InterpolationMode.BICUBIC, False): Aten.BICUBIC_POINT,
}


def _resized(
    lazy: LazyState,
    old: tuple[int, int],
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: Any = None,
    antialias: Any = True,
) -> Steps:
    """The step that resizes pixels of the ``old`` (height, width) as torchvision does; () if the size is the same."""
    mode = _geometry._check_interpolation(interpolation)
    op, code = _resampling(mode, bool(antialias))
    new = whole(*_geometry._compute_resized_output_size(old, size=size, max_size=max_size))
    if mode == InterpolationMode.LANCZOS and not antialias:
        return None
    if new == old:
        return ()
    if op is None or new is None or min(new) < 1 or lazy.dtype != torch.uint8:
        return None
    height, width = new
    if op == "resize" and (height * width == 1 or (width == 1 and not _vectors())):
        return None  # torch 2.15 refuses the first and, without vector instructions, computes the second wrongly
    return ((op, (height, width, *code)),)


@cache
def _resampling(mode: InterpolationMode, antialias: bool) -> tuple[str | None, tuple[int, ...]]:
    """The op of a resize and its code for the interpolation, if it has one; the op is None if it is not recorded."""
    if mode == InterpolationMode.NEAREST:
        return "nearest", ()
    if mode == InterpolationMode.NEAREST_EXACT:
        return ("nearest_exact" if _picks_alike() else None), ()
    code = _RESAMPLE.get((mode, antialias))
    if code is None or not (_vectors() or _geometry._do_native_uint8_resize_on_cpu(mode)):
        return None, ()  # torchvision interpolates in float32
    return "resize", (int(code),)


def _vectors() -> bool:
    native: bool = _geometry._do_native_uint8_resize_on_cpu(InterpolationMode.BILINEAR)
    return native


def _picks_alike() -> bool:
    """Whether torch's nearest-exact picks the same pixels as ``resample.nearest_exact``, tried where roundings differ.

    They differ where torch is compiled for fused multiplication and addition, as it is for AVX2 and AVX512.
    """
    for length, size in ((2, 41), (2, 47), (4, 166), (10, 205), (4, 282), (14, 385)):
        for other in (1, 128):
            places = torch.arange(length, dtype=torch.uint8, device="cpu").view(1, 1, 1, length)
            shown = torch.nn.functional.interpolate(places, (other, size), mode="nearest-exact")[0, 0, 0]
            if not np.array_equal(shown.numpy(), resample.nearest_exact(length, size, other)):
                counters.fallback("nearest-exact of tensors is left to torch, which rounds otherwise on this machine")
                return False
    return True


_STEPS: dict[str, Callable[..., Steps]] = {
    **dict.fromkeys(("v1.hflip", "v2.horizontal_flip"), lambda lazy: (("hflip", ()),)),
    **dict.fromkeys(("v1.vflip", "v2.vertical_flip"), lambda lazy: (("vflip", ()),)),
    **dict.fromkeys(("v1.crop", "v2.crop"), _crop),
    "v1.pad": _pad_v1,
    "v2.pad": _pad,
    "v2.resize": _resize,
    "v2.resized_crop": _resized_crop,
    "v2.permute_channels": _permute_channels,
    "v1.gaussian_blur": _gaussian_blur(1),
    "v2.gaussian_blur": _gaussian_blur(2),
}
"""The functions that make steps of a call's arguments, by the name of torchvision's function."""
