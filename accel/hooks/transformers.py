"""Hugging Face transformers: its image processors on torchvision, ``TorchvisionBackend``, take images as lazy tensors.

What they then do is recorded: torchvision's functions by their own hooks, moves of values by ``accel.lazy.placed``.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import get_worker_info

from accel.hooks.patch import Function
from accel.hooks.watching import Replace, calling
from accel.lazy import placed, search
from accel.lazy.from_pixels import lazy_image, lazy_tensor
from accel.lazy.image import LazyImage
from accel.lazy.placed import PlacedTensor
from accel.lazy.tensor import LazyTensor, materialized_in_worker
from accel.lazy.tensor_base import LazyTensorBase
from accel.processes import switch
from accel.system import counters

_CHANNELS = (1, 3, 4)  # of which transformers infers the order of an array
_BY_MODEL = ("Aria", "Fuyu", "Gemma4", "Gemma4Unified", "GraniteDocling", "LayoutLMv2", "LayoutLMv3", "Lfm2Vl")
_PLACED_OTHERWISE = frozenset(
    f"{model}ImageProcessor" for model in (*_BY_MODEL, "Llama4", "Mllama", "Molmo2", "Siglip2")
)
"""Processors that put other fields on the ``device`` than ``_finished`` does."""


class _Taken(threading.local):
    images = 0


_taken = _Taken()
"""How many images this thread's call of a processor took as lazy tensors."""


def process_image(
    original: Function,
    self: Any,
    image: Any,
    do_convert_rgb: bool | None = None,
    input_data_format: Any = None,
    device: Any = None,
    **kwargs: Any,
) -> Any:
    """``TorchvisionBackend.process_image``: a lazy uint8 tensor [channels, height, width]."""
    lazy = None
    if torch.compiler.is_compiling():
        return original(self, image, do_convert_rgb, input_data_format, device, **kwargs)
    if is_cpu(device):  # another only if somebody calls just this method
        if isinstance(image, Image.Image):
            lazy = _of_picture(image, bool(do_convert_rgb))
        elif type(image) in (torch.Tensor, np.ndarray, LazyTensor):
            lazy = _of_values(image, bool(do_convert_rgb), input_data_format)
    if lazy is None:
        return original(self, image, do_convert_rgb, input_data_format, device, **kwargs)
    _taken.images += 1
    return lazy


def _of_picture(image: Image.Image, to_rgb: bool) -> LazyTensorBase | None:
    lazy = lazy_image(image)
    if lazy is None or (to_rgb and lazy.is_transparent):  # transformers puts those before white
        return None
    converted = lazy.convert("RGB") if to_rgb else lazy
    if not isinstance(converted, LazyImage) or converted.recipe is None:
        return None
    return converted.as_tensor(LazyTensor, ("pil_to_tensor", ()), torch.uint8)


def _of_values(values: Any, to_rgb: bool, order: Any) -> LazyTensorBase | None:
    """Values of one or three channels, in the order ("channels_first", "channels_last") given or inferred."""
    if values.ndim != 3 or values.dtype not in (torch.uint8, np.dtype(np.uint8)):
        return None
    first, last = values.shape[0] in _CHANNELS, values.shape[2] in _CHANNELS
    if order is None and first == last:
        return None
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if (order if order is not None else "channels_first" if first else "channels_last") != "channels_first":
        if isinstance(tensor, LazyTensorBase):
            return None
        tensor = tensor.permute(2, 0, 1)
    lazy = lazy_tensor(tensor)
    if lazy is None or (to_rgb and lazy.lazy.shape[0] != 3):
        return None
    return lazy.contiguous()  # type: ignore[return-value]


def preprocess(original: Function, self: Any, images: Any, *args: Any, **kwargs: Any) -> Any:
    """``BaseImageProcessor.preprocess``, in which what moves values of lazy images is recorded as well.

    Values are those that the processor computes on the CPU, whatever the ``device``: they are computed or sent there in
    the end. The processor does that itself where fields lie elsewhere than ``_finished`` puts them.
    """
    if switch.active() is None or getattr(self, "backend", None) != "torchvision" or torch.compiler.is_compiling():
        return original(self, images, *args, **kwargs)
    device = torch.device("cpu")
    if not is_cpu(kwargs.get("device")):
        otherwise = any(cls.__name__ in _PLACED_OTHERWISE for cls in type(self).__mro__)
        if otherwise or any(map(_has_values, (*args, *(kwargs.get("image_like_kwargs") or {}).values()))):
            return original(self, images, *args, **kwargs)
        device = torch.device(kwargs["device"])
        kwargs["device"] = "cpu"
    code = getattr(type(self)._preprocess, "__code__", None)
    _taken.images = 0
    with placed.recording(zeros=code is not None and "zeros" in code.co_names):
        made = original(self, images, *args, **kwargs)
    if isinstance(getattr(made, "data", None), dict):
        if _taken.images and get_worker_info() is None and not search.lazy_tensors(made.data):
            counters.fallback(f"{type(self).__name__} computes values before it returns")
        made.data = {name: _finished(name, value, device) for name, value in made.data.items()}
    return made


def is_cpu(device: Any) -> bool:
    """Whether a processor's ``device`` is the CPU; an int is an accelerator's number."""
    return device is None or (not isinstance(device, int) and torch.device(device).type == "cpu")


def _has_values(given: Any) -> bool:
    """Whether what a processor is given beside images is annotations, maps or the like, and not a setting."""
    if isinstance(given, (list, tuple)):
        return any(map(_has_values, given))
    return isinstance(given, (dict, torch.Tensor, np.ndarray, Image.Image))


def _finished(name: str, value: Any, device: torch.device) -> Any:
    """An item of a processor's result, with what it computes on the device there."""
    if isinstance(value, (list, tuple)):
        return type(value)([_finished(name, each, device) for each in value])
    if isinstance(value, PlacedTensor):
        value = materialized_in_worker(value, placed=True)
    on_device = isinstance(value, torch.Tensor) and (value.is_floating_point() or "mask" in name)
    return value.to(device) if on_device and device.type != "cpu" else value


MODULES: dict[str, Replace] = {
    "transformers.image_processing_backends": calling("TorchvisionBackend.process_image", process_image),
    "transformers.image_processing_utils": calling("BaseImageProcessor.preprocess", preprocess),
}
