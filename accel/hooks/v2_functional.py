"""``torchvision.transforms.v2.functional``: kernels for lazy tensors in its registry, which record.

After ``ToImage()`` resizing follows torch's uint8 arithmetic, not Pillow's (``accel.ops.resample.Aten``). A kernel that
cannot record a call computes the values and calls torchvision's own kernel, which also raises errors. Kernels for
Pillow images are v1's functions (``tv_functional``), are hooked by a row of the table that names them, or are here,
with the functions that have no kernels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torchvision import tv_tensors
from torchvision.transforms.functional import pil_modes_mapping
from torchvision.transforms.v2 import functional as F

from accel.hooks.compiled.stock import Originals, is_stock
from accel.hooks.patch import Body, Function, Item, Shortcut
from accel.hooks.recording import images, tensor_geometry, tensor_values
from accel.hooks.recording.tensors import recorded, then
from accel.hooks.tv_functional import resized_crop
from accel.hooks.tv_tensors import LazyTVImage, of_image
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy, values_of
from accel.ops import LEFT
from accel.ops.accept import NotFinite, are_numbers
from accel.system.private_names import private

_utils = private("torchvision.transforms.v2.functional._utils", "_KERNEL_REGISTRY")
_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_crop_image_pil",
    "_resize_image_pil",
    "_center_crop_parse_output_size",
    "_center_crop_compute_padding",
    "_center_crop_compute_crop_anchor",
    "_parse_five_crop_size",
)


def kernels(functional: Function, record: Function) -> tuple[Item, ...]:
    """The patches that register kernels of a functional for lazy tensors.

    Args:
        functional: a function of ``torchvision.transforms.v2.functional``.
        record: returns the lazy result, or None, for the functional's arguments.
    """

    def kernel_for(cls: type, _: Any) -> Function:
        own = _utils._KERNEL_REGISTRY[functional].get(cls)
        stock = is_stock(own)

        def kernel(image: LazyTensorBase, *args: Any, **kwargs: Any) -> Any:
            replaced = not stock or _utils._KERNEL_REGISTRY[functional].get(cls) is not own
            try:
                lazy = record(image, *args, **kwargs) if is_lazy(image) and not replaced else None
            except NotFinite:
                raise
            except Exception:
                lazy = None  # torchvision's own kernel raises the right error
            return functional(values_of(image), *args, **kwargs) if lazy is None else lazy

        return kernel

    registry = "torchvision.transforms.v2.functional._utils._KERNEL_REGISTRY"
    return tuple(
        Item(registry, partial(kernel_for, cls), keys=(functional, lazy))
        for lazy, cls in ((LazyTensor, torch.Tensor), (LazyTVImage, tv_tensors.Image))
    )


# -- functions without kernels, and a kernel for Pillow images -----------------------------------------------


def to_image(original: Function, inpt: Any) -> Any:
    """``torchvision.transforms.v2.functional.to_image``, lazy on Pillow images and lazy tensors."""
    lazy = of_image(inpt)
    return original(inpt) if lazy is None else lazy


def convert_image_dtype(original: Function, image: Any, dtype: Any = torch.float32) -> Any:
    lazy = tensor_values.to_dtype(image, dtype, True) if is_lazy(image) and "to_dtype" not in LEFT else None
    return original(image, dtype) if lazy is None else lazy


_CODES = {**pil_modes_mapping, **{mode.value: code for mode, code in pil_modes_mapping.items()}}

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
    image: LazyTensorBase, top: int, left: int, height: int, width: int, *args: Any, **resize: Any
) -> LazyTensorBase | None:
    if args:
        resize |= dict(zip(("size", "interpolation", "antialias"), args, strict=False))
    steps = tensor_geometry.steps(image.lazy, "v2.resized_crop", (top, left, height, width), resize)
    if steps is not None:
        return then(image, steps)
    cropped = _crop(image, top, left, height, width)
    return None if cropped is None else recorded(cropped, "v2.resize", (), resize)


def _gaussian_noise(
    image: LazyTensorBase, mean: Any = 0.0, sigma: Any = 0.1, clip: bool = True
) -> LazyTensorBase | None:
    """Draw the noise now, as torchvision draws it, and record adding it."""
    lazy = image.lazy
    floating = lazy.dtype.is_floating_point
    if len(lazy.recipes) > 1 or lazy.after or not (floating or lazy.dtype == torch.uint8):
        return None
    if not are_numbers((mean, sigma), "mean and sigma") or sigma < 0:
        return None
    like = torch.empty_strided(
        image.shape, image.stride(), dtype=lazy.dtype if floating else torch.float32, device="cpu"
    )
    if floating:
        noise = mean + torch.randn_like(like) * sigma
    else:
        noise = ((mean * 255) + torch.randn_like(like) * (sigma * 255)).to(torch.int16)
    return image.then(("gaussian_noise", (noise.reshape(lazy.shape), bool(clip))), kernel=True)


_RECORDERS: dict[Function, Function] = {
    F.center_crop: _center_crop,
    F.five_crop: _five_crop,
    F.ten_crop: _ten_crop,
    F.resized_crop: _resized_crop,
    F.gaussian_noise: _gaussian_noise,
    F.to_dtype: tensor_values.to_dtype,
    F.normalize: tensor_values.normalize,
    F.erase: tensor_values.erase,
}
_CROPS = Originals((_geometry, ("_crop_image_pil", "_resize_image_pil")))
_V2 = "torchvision.transforms.v2.functional"
PATCHES = (
    Body(f"{_V2}.to_image", to_image),
    Body(f"{_V2}._misc.convert_image_dtype", convert_image_dtype),
    Body(f"{_V2}._geometry._resize_image_pil", images.by_methods),
    Shortcut(f"{_V2}._geometry._resized_crop_image_pil", partial(resized_crop, _CODES, _CROPS)),
    *(patch for functional, record in _RECORDERS.items() for patch in kernels(functional, record)),
)
