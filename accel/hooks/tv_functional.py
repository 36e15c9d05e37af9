"""``torchvision.transforms.functional`` and its functions for Pillow images, which record on lazy ones.

A function's checks are made when it is recorded, by torchvision's own code where that is cheap. Functions of colours
are hooked by the rows of the table that name them (``table``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.functional import pil_modes_mapping

from accel.codec.header import Raw
from accel.hooks.compiled.stock import Originals
from accel.hooks.patch import Body, Function, Shortcut
from accel.hooks.recording import images, tensor_values
from accel.lazy.from_pixels import lazy_crop, lazy_grey, lazy_image
from accel.lazy.image import LazyImage, LazyPlainImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import LEFT, OPS, accept
from accel.planning import order, values
from accel.recipes.recipe import Recipe, Source
from accel.system.private_names import private

F_pil = private("torchvision.transforms._functional_pil", "crop", "resize", "get_dimensions")


def resized_crop(codes: Mapping[Any, int], own: Originals, original: Function) -> Function:
    """``resized_crop`` of v1, and v2's for Pillow images, without the intermediate calls and checks.

    Args:
        codes: Pillow's codes by interpolation. own: the functions that the original calls.
    """

    def resized_crop(
        img: Any,
        top: Any,
        left: Any,
        height: Any,
        width: Any,
        size: Any,
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: Any = True,
    ) -> Any:
        lazy = isinstance(img, LazyImage) and img.recipe is not None and own.hold()
        code = codes.get(interpolation) if lazy else None
        if code is not None and antialias is not False:
            resized = img.crop_and_resize(top, left, height, width, size, code)
            if resized is not None:
                return resized
        more = () if antialias is True else (antialias,)  # only v1's has this parameter
        return original(img, top, left, height, width, size, interpolation, *more)

    return resized_crop


def to_tensor(original: Function, pic: Any) -> Any:
    lazy = pic if isinstance(pic, LazyImage) and pic.recipe is not None else lazy_image(pic)
    if lazy is None:
        return original(pic)
    dtype = torch.get_default_dtype()
    return lazy.as_tensor(LazyTensor, ("to_tensor", (dtype,)), dtype)


def pil_to_tensor(original: Function, pic: Any) -> Any:
    lazy = lazy_image(pic)
    return original(pic) if lazy is None else lazy.as_uint8_tensor(LazyTensor)


def to_pil_image(original: Function, pic: Any, mode: Any = None) -> Any:
    lazy = is_lazy(pic) and isinstance(pic, LazyTensorBase) and not pic.lazy.lead
    image = _as_image(pic) if lazy and mode in (None, "L" if pic.lazy.shape[0] == 1 else "RGB") else None
    return original(pic, mode) if image is None else image


def _as_image(tensor: LazyTensorBase) -> LazyImage | None:
    """A lazy tensor's values as a lazy image; None if an 8-bit image cannot hold them."""
    lazy = tensor.lazy
    (channels, height, width), dtype = lazy.shape, lazy.dtype
    if channels not in (1, 3) or dtype not in (torch.uint8, torch.float16, torch.float32, torch.float64):
        return None
    mode, size = "RGB" if channels == 3 else "L", (width, height)
    source, steps = lazy.recipes[0]
    pixel_steps, value_steps, kernels = order.parts(steps)
    table = None if kernels or values.erases(value_steps) else values.table(channels, value_steps)
    levels = None if table is None else _levels(table)
    if levels is None:
        origin = Recipe(source, (*steps, ("to_levels", ())))
        pixels = Source(b"", Raw(width, height, mode), f"{source.name}, as a tensor", source.selection, origin=origin)
        return LazyPlainImage.make(Recipe(pixels), mode, size, {})
    image: LazyImage = LazyPlainImage.make(Recipe(source, pixel_steps), mode, size, {})
    if bool((levels != torch.arange(256)).any()):
        image = image.then("point", (levels.numpy().tobytes(),))
    return image


def _levels(table: torch.Tensor) -> torch.Tensor | None:
    """The levels that a table's values are converted to; None if the conversion depends on the machine."""
    if not table.dtype.is_floating_point:
        return table
    scaled = table.numpy() * 255
    return torch.from_numpy(scaled.astype(np.uint8)) if ((scaled >= 0) & (scaled < 256)).all() else None


# -- for Pillow images: _functional_pil ---------------------------------------------------------------------


def crop(original: Function, img: Any, *box: Any, **kwargs: Any) -> Any:
    """``torchvision.transforms._functional_pil.crop``, which copies only the crop of an eager image."""
    lazy = lazy_crop(img, box) if len(box) == 4 and not kwargs and "crop" not in LEFT else None
    if lazy is not None:
        return lazy
    cropped = original(img, *box, **kwargs)
    return lazy_image(cropped) or cropped


def pad(original: Function, img: Any, padding: Any, fill: Any = 0, padding_mode: Any = "constant") -> Any:
    """``torchvision.transforms._functional_pil.pad``."""
    lazy = lazy_image(img)
    img, sides = lazy or img, accept.sides(padding)
    if lazy is None or sides is None:
        return original(img, padding, fill, padding_mode)  # which also raises for wrong arguments
    width, height = lazy.size
    constant, colour = padding_mode == "constant", _colour(fill, len(lazy.getbands()))
    known = constant or (padding_mode in ("edge", "reflect", "symmetric") and min(sides) >= 0)
    if not known or colour is None or width + sides[0] + sides[2] < 1 or height + sides[1] + sides[3] < 1:
        return original(img, padding, fill, padding_mode)
    return lazy.pad(sides, padding_mode, colour if constant else None)


def _colour(fill: Any, channels: int) -> tuple[int, ...] | None:
    """A fill as one int per channel, as torchvision passes it to Pillow; None for other forms."""
    if type(fill) is int:
        return (fill,) * channels
    colour = accept.listed(fill)
    colour *= channels if len(colour) == 1 else 1
    if len(colour) != channels or not all(isinstance(value, (int, float)) for value in colour):
        return None
    return tuple(int(value) for value in colour)


def to_grayscale(original: Function) -> Function:
    """``to_grayscale``, which for one output channel copies only the grey pixels of an eager image."""
    of_lazy = images.recorder(OPS["to_grayscale"], accept.channels, False, original)

    def to_grayscale(img: Any, num_output_channels: Any) -> Any:
        grey = lazy_grey(img) if type(num_output_channels) is int and num_output_channels == 1 else None
        return of_lazy(img, num_output_channels) if grey is None else grey

    return to_grayscale


_OF_TENSORS = (tensor_values.convert_image_dtype, tensor_values.normalize, tensor_values.erase)
_METHODS = ("hflip", "vflip", "resize", "rotate", "affine", "perspective")
_V1, _OF_IMAGES = "torchvision.transforms.functional", "torchvision.transforms._functional_pil"
_CROPS = Originals(*[(functions, ("crop", "resize", "get_dimensions")) for functions in (F, F_pil)])
PATCHES = (
    Shortcut(f"{_V1}.resized_crop", partial(resized_crop, pil_modes_mapping, _CROPS)),
    *(Body(f"{_V1}.{function.__name__}", function) for function in (to_tensor, pil_to_tensor, to_pil_image)),
    *(Body(f"{_V1}.{record.__name__}", partial(tensor_values.by_v1, record)) for record in _OF_TENSORS),
    *(Body(f"{_OF_IMAGES}.{name}", images.by_methods) for name in _METHODS),
    Shortcut(f"{_OF_IMAGES}.to_grayscale", to_grayscale),
    Body(f"{_OF_IMAGES}.crop", crop),
    Body(f"{_OF_IMAGES}.pad", pad),
)
