"""``torchvision.transforms.v2.functional``'s registry of kernels: those for lazy tensors record.

After ``ToImage()`` resizing follows torch's uint8 arithmetic, not Pillow's (``recording.tensor_resize``). A kernel that
cannot record what it is asked for computes the values and hands over to torchvision's own, which also raises what is to
be raised.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from accel.hooks.patch import Function, Item
from accel.hooks.recording import tensor_geometry
from accel.hooks.recording.tensor_values import in_place, numbers, recorded_erase, recorded_value
from accel.hooks.recording.tensors import recorded, then
from accel.hooks.tv_tensors import LazyTVImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy, values_of
from accel.ops.accept import NotFinite, are_numbers
from accel.system.private_names import private

_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_center_crop_parse_output_size",
    "_center_crop_compute_padding",
    "_center_crop_compute_crop_anchor",
    "_parse_five_crop_size",
)


def _kernel(functional: Function, record: Function, absent: Any) -> Function:
    """The kernel of a functional for lazy tensors, where torchvision has none."""

    def kernel(image: LazyTensorBase, *args: Any, **kwargs: Any) -> Any:
        if is_lazy(image):
            try:
                lazy = record(image, *args, **kwargs)
            except NotFinite:
                raise
            except Exception:
                lazy = None  # wrong arguments: torchvision's own kernel says so
            if lazy is not None:
                return lazy
        return functional(values_of(image), *args, **kwargs)

    return kernel


def kernels(functional: Function, record: Function) -> tuple[Item, ...]:
    """The kernels of a functional for lazy tensors.

    Args:
        functional: of ``torchvision.transforms.v2.functional``.
        record: gives the lazy result, or None, from the functional's arguments.
    """
    registry = "torchvision.transforms.v2.functional._utils._KERNEL_REGISTRY"
    kernel = partial(_kernel, functional, record)
    return tuple(Item(registry, kernel, keys=(functional, cls)) for cls in (LazyTensor, LazyTVImage))


# -- recorders: the lazy result, or None --------------------------------------------------------------------


def _crop(image: LazyTensorBase, top: int, left: int, height: int, width: int) -> LazyTensorBase | None:
    return recorded(image, "v2.crop", (top, left, height, width), {})


def _center_crop(image: LazyTensorBase, output_size: Any) -> LazyTensorBase | None:
    _, old_height, old_width = image.lazy.shape
    height, width = _geometry._center_crop_parse_output_size(output_size)
    if height > old_height or width > old_width:
        left, top, right, bottom = _geometry._center_crop_compute_padding(height, width, old_height, old_width)
        padded = _crop(image, -top, -left, old_height + top + bottom, old_width + left + right)
        if padded is None:
            return None
        image = padded
        _, old_height, old_width = image.lazy.shape
    top, left = _geometry._center_crop_compute_crop_anchor(height, width, old_height, old_width)
    return _crop(image, top, left, height, width)


def _five_crop(image: LazyTensorBase, size: Any) -> tuple[LazyTensorBase, ...] | None:
    height, width = _geometry._parse_five_crop_size(size)
    _, old_height, old_width = image.lazy.shape
    if height > old_height or width > old_width:
        return None
    bottom, right = old_height - height, old_width - width
    corners = [(0, 0), (0, right), (bottom, 0), (bottom, right)]
    crops = [*[_crop(image, *corner, height, width) for corner in corners], _center_crop(image, [height, width])]
    lazy = tuple(crop for crop in crops if crop is not None)
    return lazy if len(lazy) == 5 else None


def _ten_crop(image: LazyTensorBase, size: Any, vertical_flip: bool = False) -> tuple[LazyTensorBase, ...] | None:
    flipped = recorded(image, "v2.vertical_flip" if vertical_flip else "v2.horizontal_flip", (), {})
    if flipped is None:
        return None
    first, second = _five_crop(image, size), _five_crop(flipped, size)
    return None if first is None or second is None else first + second


def _resized_crop(
    image: LazyTensorBase,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> LazyTensorBase | None:
    args = (top, left, height, width, size, interpolation, antialias)
    steps = tensor_geometry.steps(image.lazy, "v2.resized_crop", args, {})
    if steps is not None:
        return then(image, steps)
    cropped = _crop(image, top, left, height, width)
    if cropped is None:
        return None
    return recorded(cropped, "v2.resize", (size, interpolation), {"antialias": antialias})


def _gaussian_noise(
    image: LazyTensorBase, mean: Any = 0.0, sigma: Any = 0.1, clip: bool = True
) -> LazyTensorBase | None:
    """The noise is drawn now, as torchvision draws it, and added later."""
    lazy = image.lazy
    floating = lazy.dtype.is_floating_point
    if len(lazy.recipes) > 1 or lazy.after or not (floating or lazy.dtype == torch.uint8):
        return None
    if not are_numbers((mean, sigma), "mean and sigma") or sigma < 0:
        return None
    like = torch.empty_strided(image.shape, image.stride(), dtype=lazy.dtype if floating else torch.float32)
    if floating:
        noise = mean + torch.randn_like(like) * sigma
    else:
        noise = ((mean * 255) + torch.randn_like(like) * (sigma * 255)).to(torch.int16)
    return image.then(("gaussian_noise", (noise.reshape(lazy.shape), bool(clip))), kernel=True)


def to_dtype(image: LazyTensorBase, dtype: Any = torch.float, scale: bool = False) -> LazyTensorBase | None:
    if not isinstance(dtype, torch.dtype):
        return None
    if dtype == image.lazy.dtype:
        return image
    return recorded_value(image, ("to_dtype", (dtype, scale)), dtype)


def _normalize(image: LazyTensorBase, mean: Any, std: Any, inplace: bool = False) -> LazyTensorBase | None:
    if not image.lazy.dtype.is_floating_point or (inplace and image.lazy.aliased):
        return None
    means, stds = numbers(mean), numbers(std)
    if means is None or stds is None:
        return None
    lazy = recorded_value(image, ("normalize", (means, stds)), image.lazy.dtype)
    return in_place(image, lazy) if inplace and lazy is not None else lazy


def _erase(image: LazyTensorBase, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
    lazy = None if inplace and image.lazy.aliased else recorded_erase(image, i, j, h, w, v)
    return in_place(image, lazy) if inplace and lazy is not None else lazy


_RECORDERS: dict[Function, Function] = {
    F.center_crop: _center_crop,
    F.five_crop: _five_crop,
    F.ten_crop: _ten_crop,
    F.resized_crop: _resized_crop,
    F.gaussian_noise: _gaussian_noise,
    F.to_dtype: to_dtype,
    F.normalize: _normalize,
    F.erase: _erase,
}
PATCHES = tuple(patch for functional, record in _RECORDERS.items() for patch in kernels(functional, record))
