"""Torchvision's datasets that keep all images in one array: those of a batch are copied at once, into one array.

No Pillow images are made of them, which would take longer than everything else that is done to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torchvision.datasets import CIFAR10, MNIST, SVHN, USPS

from accel.codec import arrow
from accel.hooks.compiled import stock
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.fixed import ImageKind
from accel.recipes.options import Selection
from accel.recipes.sources import Pictures

Pixels = npt.NDArray[np.uint8]
FROM_ARRAY = Image.fromarray


class Storage(NamedTuple):
    """How a dataset class stores its images.

    Attributes:
        data, targets: the names of its attributes. view: makes of ``data`` the array that torchvision's Pillow images
            are made from, [images, height, width] or [images, height, width, 3]; None if it is of another kind.
        whole: whether the class converts a target to int.
    """

    data: str
    targets: str
    view: Callable[[Any], Any]
    whole: bool = True


def _array(data: Any) -> Any:
    return data if type(data) is np.ndarray else None


def _of_torch(data: Any) -> Any:
    plain = type(data) is torch.Tensor and data.is_cpu and data.layout == torch.strided and not data.requires_grad
    return data.numpy() if plain and data.dtype == torch.uint8 else None


def _grey(data: Any) -> Any:
    return data if _is(data, 3) else None


STORAGES: dict[Any, Storage] = {
    CIFAR10.__getitem__: Storage("data", "targets", _array, whole=False),
    MNIST.__getitem__: Storage("data", "targets", lambda data: _grey(_of_torch(data))),
    SVHN.__getitem__: Storage("data", "labels", lambda data: data.transpose(0, 2, 3, 1) if _is(data, 4) else None),
    USPS.__getitem__: Storage("data", "targets", _grey),
}
"""By the class's ``__getitem__``, so that a subclass with one of its own is not found."""


def _is(data: Any, dimensions: int) -> bool:
    return type(data) is np.ndarray and data.ndim == dimensions


class ArrayBatch(NamedTuple):
    """A batch's images: the dataset's array and their places in it, and their targets."""

    array: Pixels
    places: npt.NDArray[np.int64]
    targets: Sequence[Any]

    @property
    def begin(self) -> ImageKind:
        """The kind of the Pillow images that torchvision would make."""
        return ImageKind(None, 3 if self.array.ndim == 4 else 1)

    def opened(self, selection: Selection) -> tuple[Pictures, Sequence[Any]]:
        """The images as a copy, as the array may change before values are computed, and the targets."""
        return Pictures(_copied(self.array, self.places), "image in memory", selection), self.targets


def found(getitem: Any, storage: Storage, own: dict[str, Any], indices: Sequence[int]) -> ArrayBatch:
    """Find a batch in a dataset with this ``__getitem__`` and these attributes.

    Raises:
        Refused: torchvision may do something else with it.
    """
    named = tuple([getitem.__globals__.get(name) for name in getitem.__code__.co_names])
    if Image.fromarray is not FROM_ARRAY or not stock.unchanged((getitem,), named):
        raise Refused("what makes Pillow images of arrays was replaced")
    array = storage.view(own[storage.data])
    if array is None or array.dtype != np.uint8 or not (array.ndim == 3 or (array.ndim == 4 and array.shape[3] == 3)):
        raise Refused("the images are no array of the usual kind")
    if not min(array.shape):
        raise Refused("the images are empty")
    places = np.array(indices, np.int64)
    if places.min() < -len(array) or places.max() >= len(array):
        raise Refused("an index is out of range, or a sample is unusual")
    return ArrayBatch(array, places, _targets(own[storage.targets], indices, places, whole=storage.whole))


def _targets(targets: Any, indices: Sequence[int], places: Any, *, whole: bool) -> list[Any]:
    if type(targets) is list:
        own = [targets[each] for each in indices]
        return [int(each) for each in own] if whole else own
    if whole and type(targets) is torch.Tensor and targets.is_cpu and not targets.requires_grad:
        targets = targets.numpy()
    if whole and type(targets) is np.ndarray and targets.ndim == 1 and targets.dtype.kind in "iu":
        return targets[places].tolist()  # type: ignore[no-any-return]
    raise Refused("the targets are of no usual kind")


def _copied(array: Pixels, places: npt.NDArray[np.int64]) -> Pixels:
    if array.ndim == 4 and array.transpose(0, 3, 1, 2).flags.c_contiguous:  # planar, as in CIFAR's files
        return arrow.of_planes(array.transpose(0, 3, 1, 2), places % len(array))
    return np.ascontiguousarray(array[places])
