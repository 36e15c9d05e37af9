"""Recorders that move the pixels of lazy tensors: as steps on the pixels, ahead of those on values, where that gives
the same, else as torchvision's kernels.

After ``ToImage()`` resizing follows torch's uint8 arithmetic, not Pillow's (``accel.ops.resample.Aten``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchvision.transforms import InterpolationMode

from accel.hooks.recording import tensor_resize
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops.accept import whole
from accel.ops.colour import permuted
from accel.ops.filters import blurred
from accel.recipe import Step
from accel.system import arithmetic
from accel.system.private_names import private

_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_parse_pad_padding",
)


def _crop(image: LazyTensorBase, top: int, left: int, height: int, width: int) -> LazyTensorBase | None:
    step = _crop_step(image, top, left, height, width)
    if step is None:
        return None
    if not inside(image, top, left, height, width):
        return image.then_on_pixels(step, interleaved=False)
    cropped = image.then_on_pixels(step)
    cropped.lazy.view = image.lazy.view or width < image.lazy.shape[2]
    return cropped


def _crop_step(image: LazyTensorBase, top: int, left: int, height: int, width: int) -> Step | None:
    box = whole(top, left, height, width)
    if box is None or height < 1 or width < 1 or not (inside(image, *box) or _is_pixels(image)):
        return None
    return "crop", box


def inside(image: LazyTensorBase, top: int, left: int, height: int, width: int) -> bool:
    """Whether a crop shows nothing but the image."""
    _, old_height, old_width = image.lazy.shape
    return top >= 0 and left >= 0 and top + height <= old_height and left + width <= old_width


def _pad(
    image: LazyTensorBase, padding: Any, fill: Any = None, padding_mode: str = "constant"
) -> LazyTensorBase | None:
    edges = whole(*_geometry._parse_pad_padding(padding))
    if edges is None:
        return None
    left, right, top, bottom = edges
    channels, height, width = image.lazy.shape
    fills = [0 if fill is None else fill] if not isinstance(fill, (list, tuple)) else list(fill)
    if not _is_pixels(image) or min(left, right, top, bottom) < 0 or len(fills) not in (1, channels):
        return None
    if padding_mode == "constant":
        possible = all(value == int(value) and 0 <= value <= 255 for value in fills)
    else:  # torch refuses to reflect more than there is
        possible = padding_mode in ("edge", "reflect", "symmetric") and fills == [0]
        possible = possible and max(left, right) < width and max(top, bottom) < height
    if not possible:
        return None
    colour = tuple(int(value) for value in fills) * (channels if len(fills) == 1 else 1)
    colours = colour if any(colour) else None
    return image.then_on_pixels(("pad", (left, top, right, bottom, padding_mode, colours)), interleaved=False)


def _permute_channels(image: LazyTensorBase, permutation: Any) -> LazyTensorBase | None:
    params = permuted(image.lazy, (permutation,)) if _is_pixels(image) else None
    return None if params is None else image.then_on_pixels(("permute_channels", params), interleaved=False)


def _gaussian_blur(version: int) -> Callable[..., LazyTensorBase | None]:
    """Recorded of one image only: torch may add up otherwise in a batch of grey ones."""
    accept = blurred(version)

    def blur(image: LazyTensorBase, kernel_size: Any, sigma: Any = None) -> LazyTensorBase | None:
        if not _is_pixels(image) or image.lazy.lead or image.lazy.shape[0] not in (1, 3) or arithmetic.autocasts():
            return None
        params = accept(image.lazy, (kernel_size, sigma))
        return None if params is None else image.then_on_pixels(("gaussian_blur", params), interleaved=False)

    return blur


def _resize(
    image: LazyTensorBase,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> LazyTensorBase | None:
    steps = tensor_resize.steps(image.lazy.shape[1:], size, interpolation, max_size, antialias)
    if not steps:
        return image if steps == () else None
    if not _is_pixels(image):
        return None
    return image.then_on_pixels(*steps, interleaved=False if image.lazy.view else None)


def resized_crop(
    image: LazyTensorBase,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> LazyTensorBase | None:
    crop = _crop_step(image, top, left, height, width)
    resize = None if crop is None else tensor_resize.steps(crop[1][2:], size, interpolation, None, antialias)
    if crop is None or resize is None or (resize and not _is_pixels(image)):
        return None
    view = image.lazy.view or width < image.lazy.shape[2]
    if resize:  # of a view torch makes a tensor of planes
        return image.then_on_pixels(crop, *resize, interleaved=False if view else None)
    cropped = image.then_on_pixels(crop)
    cropped.lazy.view = view
    return cropped


def takes_pixels(image: LazyTensorBase) -> bool:
    """Whether steps on its pixels can still be recorded: no values were put in since, and no kernel stands between."""
    lazy = image.lazy
    return not lazy.after and not any(
        kernels or (values != _PIXELS and any(name == "erase" for name, _ in values))
        for _, _, values, kernels in lazy.recipes
    )


def _is_pixels(image: LazyTensorBase) -> bool:
    """Whether the values are the pixels themselves, so that what combines them can be recorded."""
    return all(values == _PIXELS for _, _, values, _ in image.lazy.recipes)


_PIXELS = (("pil_to_tensor", ()),)

ON_PIXELS: dict[str, Callable[..., LazyTensorBase | None]] = {
    **dict.fromkeys(("v1.hflip", "v2.horizontal_flip"), lambda image: image.then_on_pixels(("hflip", ()))),
    **dict.fromkeys(("v1.vflip", "v2.vertical_flip"), lambda image: image.then_on_pixels(("vflip", ()))),
    **dict.fromkeys(("v1.crop", "v2.crop"), _crop),
    **dict.fromkeys(("v1.pad", "v2.pad"), _pad),
    "v2.resize": _resize,
    "v2.permute_channels": _permute_channels,
    "v1.gaussian_blur": _gaussian_blur(1),
    "v2.gaussian_blur": _gaussian_blur(2),
}
"""By the name of the kernel that does the same: the lazy result, or None."""
