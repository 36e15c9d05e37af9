"""Libraries that make an array of an image only to wrap it in a tensor: WebDataset's ``decode("torchrgb")`` and
``"torchrgb8"``, datasets' format "torch", LitData's JPEG files with Exif. Their tensor is a lazy one."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import torch
from PIL import Image, ImageOps

from accel.hooks.patch import Function
from accel.hooks.watching import calling
from accel.lazy.from_pixels import lazy_image
from accel.lazy.tensor import LazyTensor
from accel.recipes.recipe import Step

_TORCH = {"torchrgb8": torch.uint8, "torchrgb": torch.float32, "torch": torch.float32}


def decoded(original: Function, self: Any, key: str, data: Any) -> Any:
    """WebDataset's ``ImageHandler(...)(key, data)``: a tensor [3, height, width], uint8 or float32 in [0, 1]."""
    dtype = _TORCH.get(self.imagespec)
    if dtype is None or re.sub(r".*[.]", "", key).lower() not in self.extensions:
        return original(self, key, data)
    with io.BytesIO(data) as stream:
        image = Image.open(stream)
        image.load()
        lazy = lazy_image(image.convert("RGB"))
    step: Step = ("pil_to_tensor", ()) if dtype == torch.uint8 else ("to_tensor", (dtype,))
    return original(self, key, data) if lazy is None else lazy.as_tensor(LazyTensor, step, dtype)


def tensorized(original: Function, self: Any, value: Any) -> Any:
    """``TorchFormatter._tensorize(value)`` of datasets: of an image, a uint8 tensor [channels, height, width]."""
    is_image = isinstance(value, Image.Image) and not self.torch_tensor_kwargs
    lazy = lazy_image(value) if is_image else None
    return original(self, value) if lazy is None else lazy.as_uint8_tensor(LazyTensor)


def turned(original: Function, data: bytes) -> Any:
    """``_decode_image_tensor(data)`` of LitData: a uint8 tensor [3, height, width], upright if the file has Exif."""
    if not sys.modules[_LITDATA]._jpeg_has_exif_app1(data):
        return original(data)
    image = Image.open(io.BytesIO(data))
    image.load()
    lazy = lazy_image(ImageOps.exif_transpose(image).convert("RGB"))
    return original(data) if lazy is None else lazy.as_tensor(LazyTensor, ("pil_to_tensor", ()), torch.uint8)


_LITDATA = "litdata.streaming.serializers"

MODULES = {
    _LITDATA: calling("_decode_image_tensor", turned),
    "webdataset.autodecode": calling("ImageHandler.__call__", decoded),
    "datasets.formatting.torch_formatter": calling("TorchFormatter._tensorize", tensorized),
}
