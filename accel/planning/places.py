"""Places of an image's values in a tensor of any shape: patches, tiles, a padded image, a part of a concatenation.

The index of each value in memory is a sum of what its channel, its row and its column add to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

CHANNEL, ROW, COLUMN, REPEATED = range(4)


class Digit(NamedTuple):
    """A loop over a part of an axis of an image [channels, height, width].

    Attributes:
        axis: ``CHANNEL``, ``ROW`` or ``COLUMN``; ``REPEATED``: the same values once more.
        size: how often. step: how far it goes in the image each time. stride: how far in the tensor's memory, in items.
    """

    axis: int
    size: int
    step: int
    stride: int


class Place(NamedTuple):
    """Where values of one image are put.

    Attributes:
        origin: the channel, row and column that the loops begin at. offset: the item that this one becomes.
        digits: the loops, none in another's stead: together they reach every value once.
    """

    origin: tuple[int, int, int]
    offset: int
    digits: tuple[Digit, ...]

    def axis(self, axis: int) -> npt.NDArray[np.int64]:
        """The positions on an axis that are put, and what each adds to the offset: int64 [positions, 2]."""
        found = np.array([[0 if axis == REPEATED else self.origin[axis], 0]], np.int64)
        for _, size, step, stride in [digit for digit in self.digits if digit.axis == axis]:
            steps = np.arange(size, dtype=np.int64)[:, None] * (step, stride)
            found = (found[:, None] + steps).reshape(-1, 2)
        return found

    def put(self, image: torch.Tensor, out: torch.Tensor) -> None:
        """Put an image [channels, height, width] in its place in ``out``, on the device of both."""
        sizes = [digit.size for digit in self.digits]
        steps = [0 if axis == REPEATED else step * image.stride(axis) for axis, _, step, _ in self.digits]
        begin = sum(place * stride for place, stride in zip(self.origin, image.stride(), strict=True))
        shown = image.as_strided(sizes, steps, image.storage_offset() + begin)
        out.as_strided(sizes, [digit.stride for digit in self.digits], out.storage_offset() + self.offset).copy_(shown)


def extent(tensor: torch.Tensor) -> int:
    """The items of memory from a tensor's first value to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def looked_up(pixels: npt.NDArray[np.uint8], table: torch.Tensor) -> torch.Tensor:
    """The values [channels, height, width] of pixels [height, width, channels], by a table [channels, 256]."""
    levels = torch.from_numpy(pixels.astype(np.int64)).permute(2, 0, 1)
    return torch.stack([values[own] for values, own in zip(table, levels, strict=True)])
