"""The ops of torchvision that are measured, on images of ``SIZE``; policies; and whole pipelines from files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from PIL import ImageFilter
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from bench.pipelines import PIPELINES

SIZE = (375, 500)
"""(height, width)"""

Op = Callable[[Any], Any]

TURN: dict[str, Any] = {"angle": 13.0, "fill": [9, 20, 31]}
SHEARED: tuple[Any, ...] = (7.0, [12, -8], 1.1, [5.0, -3.0])
CORNERS = ([[0, 0], [499, 0], [499, 374], [0, 374]], [[20, 11], [480, 30], [470, 360], [9, 340]])
DISPLACEMENT = torch.linspace(-0.05, 0.05, 2 * SIZE[0] * SIZE[1]).view(1, *SIZE, 2)


OPS: dict[str, Op] = {
    "crop": lambda image: F.crop(image, 20, 30, 224, 224),
    "hflip": F.hflip,
    "vflip": F.vflip,
    "pad, constant": lambda image: F.pad(image, 16, (1, 2, 3)),
    "pad, reflect": lambda image: F.pad(image, 16, padding_mode="reflect"),
    "resize, bilinear": lambda image: F.resize(image, [256, 341]),
    "resize, bicubic": lambda image: F.resize(image, [256, 341], Mode.BICUBIC),
    "resize, nearest": lambda image: F.resize(image, [256, 341], Mode.NEAREST),
    "rotate, nearest": lambda image: F.rotate(image, **TURN),
    "rotate, bilinear": lambda image: F.rotate(image, interpolation=Mode.BILINEAR, expand=True, **TURN),
    "rotate, bicubic": lambda image: F.rotate(image, interpolation=Mode.BICUBIC, **TURN),
    "rotate by 90": lambda image: F.rotate(image, 90, expand=True),
    "affine, nearest": lambda image: F.affine(image, *SHEARED, interpolation=Mode.NEAREST),
    "affine, bilinear": lambda image: F.affine(image, *SHEARED, interpolation=Mode.BILINEAR),
    "translate, nearest": lambda image: F.affine(image, 0, [12, -8], 1.0, [0.0, 0.0]),
    "perspective, nearest": lambda image: F.perspective(image, *CORNERS, interpolation=Mode.NEAREST),
    "perspective, bilinear": lambda image: F.perspective(image, *CORNERS, interpolation=Mode.BILINEAR),
    "perspective, bicubic": lambda image: F.perspective(image, *CORNERS, interpolation=Mode.BICUBIC),
    "elastic": lambda image: F.elastic_transform(image, DISPLACEMENT),
    "brightness": lambda image: F.adjust_brightness(image, 1.3),
    "contrast": lambda image: F.adjust_contrast(image, 0.7),
    "saturation": lambda image: F.adjust_saturation(image, 1.4),
    "hue": lambda image: F.adjust_hue(image, 0.1),
    "gamma": lambda image: F.adjust_gamma(image, 0.8),
    "sharpness": lambda image: F.adjust_sharpness(image, 1.8),
    "grayscale, 1 channel": lambda image: F.rgb_to_grayscale(image, 1),
    "grayscale, 3 channels": lambda image: F.rgb_to_grayscale(image, 3),
    "invert": F.invert,
    "posterize": lambda image: F.posterize(image, 3),
    "solarize": lambda image: F.solarize(image, 128),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "permute channels": lambda image: F2.permute_channels(image, [2, 0, 1]),
    "gaussian blur, 5 x 5": lambda image: F.gaussian_blur(image, 5),
    "gaussian blur, 23 x 23": lambda image: F.gaussian_blur(image, 23),
    "JPEG": lambda image: F2.jpeg(image, 75),
}
POLICIES: dict[str, Callable[[], Op]] = {
    "ColorJitter": lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "AutoAugment": T.AutoAugment,
    "RandAugment": T.RandAugment,
    "TrivialAugmentWide": T.TrivialAugmentWide,
}
"""Policies, made anew for every backend; their draws depend only on the seed."""


def _train(*more: Any) -> Callable[[], Op]:
    return lambda: T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *more, T.ToTensor()])


_SIMCLR = T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8), T.RandomGrayscale(p=0.2), T.GaussianBlur(23)
FROM_FILES: dict[str, Callable[[], Op]] = {
    "train": PIPELINES["train"].v1,
    "train with RandAugment": PIPELINES["randaugment"].v1,
    "train with TrivialAugmentWide": PIPELINES["trivialaugment"].v1,
    "train with ColorJitter(0.4, 0.4, 0.4, 0.1)": PIPELINES["jitter"].v1,
    "train with GaussianBlur(23)": _train(T.GaussianBlur(23)),
    "train with Pillow's GaussianBlur(1.5)": _train(lambda image: image.filter(ImageFilter.GaussianBlur(1.5))),
    "SimCLR": _train(*_SIMCLR),
}
"""Pipelines of a Pillow image from the loader."""
