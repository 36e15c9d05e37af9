"""Classes of ``torchvision.transforms``: random parameters drawn as torchvision does, with less work between the draws.

Most of the host's work for an image is torchvision's drawing of parameters, and most of that is making one-element
tensors. What compiled pipelines draw (``compiled.drawing_formulas``) is drawn here in the same way, into one tensor
again and again: the draws, their order and the results are the same, which is checked before it is used.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import RandomCrop
from torchvision.transforms import functional as F

from accel.hooks.compiled import stock
from accel.hooks.compiled.random_numbers.live import of_thread
from accel.hooks.compiled.random_numbers.tape import UNIT, rounded
from accel.hooks.compiled.stock import Originals
from accel.hooks.compiled.transforms import drawing_formulas as formulas
from accel.hooks.compiled.transforms import padding
from accel.hooks.compiled.transforms.draws import log_bounds
from accel.hooks.own_generators import Own
from accel.hooks.patch import Body, Function, Shortcut
from accel.hooks.recording.tensors import linear_transformation
from accel.lazy.image import LazyImage
from accel.system.private_names import private

F_pil = private("torchvision.transforms._functional_pil", "get_dimensions", "pad", "crop", "hflip", "vflip")


def usual() -> bool:
    """Whether torch itself draws: its functions are its own, and float32 on the CPU."""
    return stock.usual() and _of_torch.hold()


_of_torch = Originals((torch, ("tensor", "exp", "empty", "randint", "rand", "log")))


def happens(probability: float) -> bool:
    """``bool(torch.rand(1) < probability)``."""
    return formulas.happens(of_thread.live, UNIT, rounded(probability))


def resized_crop(size: tuple[int, int], scale: Any, ratio: Any, logs: Any) -> tuple[int, int, int, int]:
    """The top, left, height and width of a ``RandomResizedCrop`` of an image of this (height, width)."""
    return formulas.resized_crop(of_thread.live, *size, (scale[0], scale[1]), logs, min(ratio), max(ratio))


def resized_crop_params(original: FunctionType) -> Function:
    """``RandomResizedCrop.get_params``."""

    def quick(img: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
        return resized_crop(img.size[::-1], scale, ratio, log_bounds(tuple(ratio)))

    if not checked(original, quick, some_crop):
        return original
    own = Originals((F, ("get_dimensions",)), (F_pil, ("get_dimensions",)))

    def get_params(img: Any, scale: Any, ratio: Any) -> Any:
        lazy = isinstance(img, LazyImage) and type(ratio) in (tuple, list) and len(ratio) == 2
        return (quick if lazy and usual() and own.hold() else original)(img, scale, ratio)

    return get_params


def crop_params(original: FunctionType) -> Function:
    """``RandomCrop.get_params``."""

    def quick(img: Any, output_size: Any) -> Any:
        (width, height), (rows, columns) = img.size, output_size
        if height < rows or width < columns:
            return original(img, output_size)  # which raises an error
        return *formulas.crop(of_thread.live, height, width, rows, columns, True), rows, columns

    if not checked(original, quick, _some_small_crop):
        return original
    own = Originals((F, ("get_dimensions",)), (F_pil, ("get_dimensions",)))

    def get_params(img: Any, output_size: Any) -> Any:
        return (quick if isinstance(img, LazyImage) and usual() and own.hold() else original)(img, output_size)

    return get_params


def crop(original: FunctionType) -> Function:
    """``RandomCrop.forward``, for Pillow images."""

    def quick(self: Any, img: Any) -> Any:
        def pad(image: Any, by: Any) -> Any:
            return F_pil.pad(image, by, self.fill, self.padding_mode)

        img = padding.in_turn(pad, self.padding, self.size if self.pad_if_needed else (0, 0), img)
        top, left, height, width = self.get_params(img, self.size)
        return img.crop((left, top, left + width, top + height))

    if not checked(original, quick, _some_crop_transform):
        return original
    names = "get_dimensions", "pad", "crop"
    own = Originals((F, names), (F_pil, names))

    def forward(self: Any, img: Any) -> Any:
        padded = self.padding is not None and isinstance(img, Image.Image)
        return (quick if (padded or isinstance(img, LazyImage)) and own.hold() else original)(self, img)

    return forward


def flip(method: Image.Transpose, original: FunctionType) -> Function:
    """``RandomHorizontalFlip.forward`` or ``RandomVerticalFlip.forward``; ``method``: Pillow's for such a flip."""

    def quick(self: Any, img: Any) -> Any:
        return img.transpose(method) if happens(self.p) else img

    if not checked(original, quick, _some_flip):
        return original
    own = Originals((F, ("hflip", "vflip")), (F_pil, ("hflip", "vflip")))

    def forward(self: Any, img: Any) -> Any:
        lazy = isinstance(img, LazyImage) and type(self.p) is float
        return (quick if lazy and usual() and own.hold() else original)(self, img)

    return forward


# -- the check ----------------------------------------------------------------------------------------------

_alike: dict[CodeType, bool] = {}


def checked(one: FunctionType, other: Function, arguments: Callable[[random.Random], tuple[Any, ...]]) -> bool:
    """Whether two versions of a function, given the same draws, return the same and leave the same generator state.

    It is unknown, so False, while torch's default is another dtype than the float32 that is drawn.
    """
    if torch.get_default_dtype() is not torch.float32:
        return False
    code = one.__code__
    if code not in _alike:
        _alike[code] = _draw_alike(one, other, arguments)
    return _alike[code]


def _draw_alike(
    one: Callable[..., Any], other: Callable[..., Any], arguments: Callable[[random.Random], tuple[Any, ...]]
) -> bool:
    generator = random.Random(0)
    elsewhere = torch.get_default_device().type != "cpu"
    with torch.device("cpu") if elsewhere else nullcontext():  # the context costs more than the draws
        for _ in range(12):
            inputs = arguments(generator)
            seed = generator.randint(0, 99)
            by_one, by_other = (torch.Generator().manual_seed(seed) for _ in range(2))
            with Own(by_one):
                expected = one(*inputs)
            try:
                with Own(by_other):
                    found = other(*inputs)
            except Exception:
                return False
            if not _same(found, expected) or not torch.equal(by_one.get_state(), by_other.get_state()):
                return False
    return True


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


# -- random arguments for comparing a shortcut with the original --------------------------------------------


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


def some_crop(generator: random.Random) -> tuple[Any, ...]:
    """Arguments for ordinary crops, and for images so flat that only the fallback crop is left."""
    image = Image.new("L", (generator.randint(1, 600), generator.choice((3, 400))))
    return image, (generator.uniform(0.01, 1), 1.0), (0.75, generator.uniform(0.8, 3))


PATCHES = (
    Shortcut("torchvision.transforms.RandomResizedCrop.get_params", resized_crop_params),
    Shortcut("torchvision.transforms.RandomCrop.get_params", crop_params),
    Shortcut("torchvision.transforms.RandomCrop.forward", crop),
    Shortcut("torchvision.transforms.RandomHorizontalFlip.forward", partial(flip, Image.Transpose.FLIP_LEFT_RIGHT)),
    Shortcut("torchvision.transforms.RandomVerticalFlip.forward", partial(flip, Image.Transpose.FLIP_TOP_BOTTOM)),
    Body("torchvision.transforms.LinearTransformation.forward", linear_transformation),
)
