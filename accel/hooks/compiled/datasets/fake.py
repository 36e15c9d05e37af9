"""``FakeData``: the images of a batch are drawn into one array, each from its own seed, as torchvision draws it.

Torchvision seeds torch for each image, on all devices, which takes several times as long as the image, and then
restores the state of the CPU's generator. Here the images have a generator of their own, and torch is seeded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.datasets import FakeData

from accel.codec import arrow
from accel.hooks.compiled import stock
from accel.hooks.compiled.datasets.arrays import FROM_ARRAY, Pixels
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.fixed import ImageKind
from accel.hooks.own_generators import Own
from accel.hooks.patch import copied
from accel.recipes.options import Selection
from accel.recipes.sources import Pictures

ATTRIBUTES = frozenset({"size", "num_classes", "image_size", "random_offset", "transform", "target_transform"})

Shape = tuple[int, int, int]
"""Channels, height, width."""


class FakeBatch(NamedTuple):
    """A batch of ``FakeData``: the shape of its images, the number of classes, and each image's seed."""

    shape: Shape
    classes: int
    seeds: list[int]

    @property
    def begin(self) -> ImageKind:
        """The kind of the Pillow images that torchvision would make."""
        return ImageKind(None, self.shape[0])

    def opened(self, selection: Selection) -> tuple[Pictures, list[Any]]:
        """The images and the targets.

        Raises:
            Refused: torchvision draws other images.
        """
        if not _agrees(self.shape, self.classes):
            raise Refused("FakeData draws otherwise than usual")
        planes, targets = _drawn(*self)
        state = torch.get_rng_state()
        torch.manual_seed(self.seeds[-1])  # the generators of devices keep the last seed
        torch.set_rng_state(state)
        pixels = planes[:, 0] if self.shape[0] == 1 else arrow.of_planes(planes, np.arange(len(planes)))
        return Pictures(pixels, "image in memory", selection), targets


def found(own: dict[str, Any], length: Any, indices: Sequence[int]) -> FakeBatch:
    """Find a batch in a ``FakeData`` with these attributes.

    Args:
        length: the ``__len__`` of its class.

    Raises:
        Refused: torchvision may do something else with it.
    """
    if Image.fromarray is not FROM_ARRAY or not stock.unchanged(FakeData, _used(length)):
        raise Refused("what draws FakeData was replaced")
    if own["target_transform"] is not None:
        raise Refused("there is a target_transform of tensors")
    shape, numbers = own["image_size"], [own[name] for name in ("size", "num_classes", "random_offset")]
    if type(shape) not in (tuple, list) or not {int}.issuperset(map(type, (*shape, *numbers))):
        raise Refused("FakeData has other attributes than usual")
    size, classes, offset = numbers
    if len(shape) != 3 or shape[0] not in (1, 3) or min(shape) < 1:
        raise Refused("the images are of no usual shape")
    if max(indices) >= size:
        raise Refused("an index is out of range, or a sample is unusual")
    return FakeBatch(tuple(shape), classes, [index + offset for index in indices])


def _used(length: Any) -> tuple[Any, ...]:
    """The functions and methods that torchvision uses for ``FakeData``, and their code.

    Raises:
        Refused: one of them was replaced.
    """
    drawn = [FakeData.__getitem__, length, *[getattr(torch, name) for name in _NAMES], v1.functional.to_pil_image]
    named = [
        FakeData.__getitem__.__globals__.get(name) is each for name, each in (("torch", torch), ("transforms", v1))
    ]
    if length is not FakeData.__len__ or not all(named) or v1.ToPILImage is not _TO_IMAGE:
        raise Refused("what draws FakeData was replaced")
    return (*drawn, *stock.methods(_TO_IMAGE), *[each.__code__ for each in drawn if hasattr(each, "__code__")])


_NAMES = ("get_rng_state", "manual_seed", "randn", "randint", "set_rng_state")
_TO_IMAGE = v1.ToPILImage


def _drawn(shape: Shape, classes: int, seeds: Sequence[int]) -> tuple[Pixels, list[int]]:
    """The images, uint8 [images, channels, height, width], and their targets."""
    generator, values = torch.Generator(), torch.empty(shape, dtype=torch.float32, device="cpu")
    planes, floats = np.empty((len(seeds), *shape), np.uint8), values.numpy()
    targets: list[int] = []
    for plane, seed in zip(planes, seeds, strict=True):
        generator.manual_seed(seed)
        values.normal_(generator=generator)
        targets.append(int(torch.randint(0, classes, (1,), generator=generator, dtype=torch.long)))
        plane[:] = (floats * 255).astype(np.uint8)  # above 255 the result depends on the processor and on the call
    return planes, targets


@lru_cache(maxsize=64)
def _agrees(shape: Shape, classes: int) -> bool:
    """Whether torchvision draws the same images of this shape; tried once, on a generator of its own."""
    own, getitem, found = torch.Generator(), FakeData.__getitem__, FakeData(_TRIED, shape, classes)
    named = {
        "get_rng_state": own.get_state,
        "set_rng_state": own.set_state,
        "manual_seed": own.manual_seed,
    }
    theirs = copied(getitem, {**getitem.__globals__, "torch": SimpleNamespace(**{**vars(torch), **named})})
    planes, targets = _drawn(shape, classes, range(_TRIED))
    channels, height, width = shape
    for number, (plane, target) in enumerate(zip(planes, targets, strict=True)):
        with Own(own):
            image, label = theirs(found, number)
        pixels = np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)
        if target != label or not np.array_equal(pixels, plane):
            return False
    return True


_TRIED = 3
