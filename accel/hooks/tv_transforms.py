"""Classes of ``torchvision.transforms``: their random draws, with less work around these."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

from PIL import Image
from torchvision.transforms import RandomCrop

from accel.hooks.patch import Attribute, Function, Shortcut
from accel.hooks.random_params import checked, some_crop, usual, with_cheap_tensors
from accel.hooks.recording.tensors import linear_transformation
from accel.lazy.image import LazyImage
from accel.system.private_names import private

F_pil = private("torchvision.transforms._functional_pil", "pad")


def place(original: FunctionType, arguments: Callable[[random.Random], tuple[Any, ...]]) -> Function:
    """``get_params`` of a crop (img, ...) -> (top, left, height, width)."""
    quick = with_cheap_tensors(original, get_dimensions=_dimensions)
    if not checked(original, quick, arguments):
        return original

    def get_params(img: Any, *args: Any, **kwargs: Any) -> Any:
        return (quick if isinstance(img, LazyImage) and usual() else original)(img, *args, **kwargs)

    return get_params


def flip(original: FunctionType) -> Function:
    """``forward`` of ``torchvision.transforms.RandomHorizontalFlip`` or ``RandomVerticalFlip`` (img) -> image."""
    quick = with_cheap_tensors(
        original,
        hflip=lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        vflip=lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    )
    if not checked(original, quick, _some_flip):
        return original

    def forward(self: Any, img: Any) -> Any:
        lazy = isinstance(img, LazyImage) and type(self.p) is float
        return (quick if lazy and usual() else original)(self, img)

    return forward


def crop(original: FunctionType) -> Function:
    """``forward`` of ``torchvision.transforms.RandomCrop`` (img) -> image, of a Pillow image."""
    quick = with_cheap_tensors(
        original,
        get_dimensions=_dimensions,
        pad=lambda image, padding, fill, mode="constant": F_pil.pad(image, padding, fill, mode),
        crop=lambda image, top, left, height, width: image.crop((left, top, left + width, top + height)),
    )
    if not checked(original, quick, _some_crop_transform):
        return original

    def forward(self: Any, img: Any) -> Any:
        padded = self.padding is not None and isinstance(img, Image.Image)
        return (quick if padded or isinstance(img, LazyImage) else original)(self, img)

    return forward


def _dimensions(image: Any) -> tuple[int, int, int]:
    """Channels, height and width of a Pillow image; nobody asks for its channels."""
    width, height = image.size
    return 3, height, width


# -- arguments to compare a shortcut with the original by ---------------------------------------------------


def _some_small_crop(generator: random.Random) -> tuple[Any, ...]:
    size = generator.randint(5, 40), generator.randint(5, 40)
    return Image.new("L", size), (generator.randint(1, size[1]), generator.randint(1, size[0]))


def _some_crop_transform(generator: random.Random) -> tuple[Any, ...]:
    image = Image.effect_noise((generator.randint(5, 40), generator.randint(5, 40)), 50)
    size = generator.randint(3, 50)
    padding = generator.choice((None, 4, (1, 2), (1, 2, 3, 4)))
    mode = generator.choice(("constant", "reflect"))
    return RandomCrop(size, padding, True, generator.choice((0, 7)), mode), image


def _some_flip(generator: random.Random) -> tuple[Any, ...]:
    image = Image.linear_gradient("L").resize((3, 2))
    return SimpleNamespace(p=generator.choice((0.0, 0.1, 0.5, 1.0, generator.random()))), image


PATCHES = (
    Shortcut("torchvision.transforms.RandomResizedCrop.get_params", partial(place, arguments=some_crop)),
    Shortcut("torchvision.transforms.RandomCrop.get_params", partial(place, arguments=_some_small_crop)),
    Shortcut("torchvision.transforms.RandomCrop.forward", crop),
    Shortcut("torchvision.transforms.RandomHorizontalFlip.forward", flip),
    Shortcut("torchvision.transforms.RandomVerticalFlip.forward", flip),
    Attribute("torchvision.transforms.LinearTransformation.forward", linear_transformation),
)
