"""Classes of ``torchvision.transforms.v2``: random parameters, and methods that look at types, not at functionals."""

from __future__ import annotations

import functools
import random
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torchvision.transforms.v2 import functional as F

from accel.hooks import tv_transforms
from accel.hooks.patch import Attribute, Body, Function
from accel.hooks.recording.tensors import linear_transformation
from accel.lazy.image import LazyImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops.memory_layout import PLANAR
from accel.ops.tensors import frozen


def make_params(original: FunctionType) -> Function:
    """``make_params`` of ``torchvision.transforms.v2.RandomResizedCrop``: (images) -> top, left, height, width."""

    def quick(self: Any, flat_inputs: list[Any]) -> Any:
        size, logs = _size_of_one(flat_inputs), self._log_ratio.tolist()
        top, left, height, width = tv_transforms.resized_crop(size, self.scale, self.ratio, logs)
        return {"top": top, "left": left, "height": height, "width": width}

    if not tv_transforms.checked(original, quick, _some_crop_of_v2):
        return original

    @functools.wraps(original)
    def make_params(self: Any, flat_inputs: list[Any]) -> Any:
        one = len(flat_inputs) == 1 and isinstance(flat_inputs[0], (LazyTensorBase, LazyImage))
        quickly = one and isinstance(self._log_ratio, torch.Tensor) and tv_transforms.usual()
        return (quick if quickly else original)(self, flat_inputs)

    return make_params


def _size_of_one(images: list[Any]) -> tuple[int, int]:
    image = images[0]
    if not isinstance(image, torch.Tensor):
        return image.height, image.width
    lazy = image.__dict__.get("lazy")  # faster than a tensor's ``shape``
    height, width = (image if lazy is None else lazy).shape[-2:]
    return height, width


def _some_crop_of_v2(generator: random.Random) -> tuple[Any, ...]:
    image, scale, ratio = tv_transforms.some_crop(generator)
    return SimpleNamespace(scale=scale, ratio=ratio, _log_ratio=torch.log(torch.tensor(ratio))), [image]


def get_fill(original: Function, fill_dict: Any, inpt_type: Any) -> Any:
    """``torchvision.transforms.v2._utils._get_fill``, which looks up exact types: with the type behind a lazy one."""
    return original(fill_dict, inpt_type.becomes if issubclass(inpt_type, (LazyImage, LazyTensorBase)) else inpt_type)


def to_dtype(original: Function) -> Function:
    """``torchvision.transforms.v2.ToDtype.transform``, which looks up exact types if it has several dtypes."""

    @functools.wraps(original)
    def transform(self: Any, inpt: Any, params: Any) -> Any:
        if isinstance(self.dtype, dict) and is_lazy(inpt):
            dtype = self.dtype.get(inpt.becomes, self.dtype.get("others"))
            if isinstance(dtype, torch.dtype):
                return F.to_dtype(inpt, dtype, self.scale)
            original(self, inpt.becomes(torch.empty(1, 1, 1, device="cpu")), params)  # which may warn, or raise
            return inpt
        return original(self, inpt, params)

    return transform


def to_pure_tensor(original: Function, self: Any, inpt: Any, params: Any) -> Any:
    """``torchvision.transforms.v2.ToPureTensor.transform``."""
    return inpt.as_lazy(LazyTensor) if is_lazy(inpt) else original(self, inpt, params)


def mixed(name: str, param: str, original: Function, self: Any, inpt: Any, params: dict[str, Any]) -> Any:
    """``MixUp.transform`` and ``CutMix.transform``, recorded on a lazy batch as a step on the whole batch."""
    if not is_lazy(inpt) or not isinstance(inpt, LazyTensorBase) or len(inpt.lazy.lead) != 1:
        return original(self, inpt, params)
    if name == "mixup" and not inpt.lazy.dtype.is_floating_point:
        return original(self, inpt, params)
    self._check_image_or_video(inpt, batch_size=params["batch_size"])
    turned = name == "mixup" and inpt.lazy.layout.transposed  # torch's roll then makes it planar
    return inpt.then((name, (frozen(params[param]),)), layout=PLANAR if turned else None, on_batch=True)


PATCHES = (
    Attribute("torchvision.transforms.v2.RandomResizedCrop.make_params", make_params),
    Body("torchvision.transforms.v2._utils._get_fill", get_fill),
    Attribute("torchvision.transforms.v2.ToDtype.transform", to_dtype),
    Body("torchvision.transforms.v2.ToPureTensor.transform", to_pure_tensor),
    Body("torchvision.transforms.v2.LinearTransformation.transform", linear_transformation),
    Body("torchvision.transforms.v2.MixUp.transform", partial(mixed, "mixup", "lam")),
    Body("torchvision.transforms.v2.CutMix.transform", partial(mixed, "cutmix", "box")),
)
