"""Regions of large pictures are decoded to memory of the thread's own, which is another one while somebody looks."""

import io

import numpy as np
import pytest
from PIL import Image

from accel.codec.header import claim
from accel.planning.plan import Decode
from accel.processes.switch import current
from accel.recipes.options import Options
from accel.recipes.recipe import Source
from accel.runtime import read
from tests.support import helpers

BOXES = ((0, 0, 1000, 1100), (30, 11, 900, 800), (5, 0, 1000, 1100))


def region(data: bytes, box: tuple[int, int, int, int]) -> np.ndarray:
    source = Source(data, claim(data), "a file", current())
    return read.pixels(Decode(source, 3, box, ()), 1, Options())


def expected(data: bytes, box: tuple[int, int, int, int]) -> np.ndarray:
    top, left, height, width = box
    return np.asarray(Image.open(io.BytesIO(data)))[top : top + height, left : left + width]


@pytest.mark.parametrize("progressive", [False, True])
def test_regions_that_are_looked_at_stay(progressive: bool) -> None:
    files = [helpers.jpeg(1100, 1010, seed=seed, progressive=progressive) for seed in range(3)]
    held = [region(data, box) for data, box in zip(files, BOXES, strict=True)]
    for pixels, data, box in zip(held, files, BOXES, strict=True):
        assert pixels.nbytes > read._LARGE
        assert np.array_equal(pixels, expected(data, box))


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    data = helpers.jpeg(1100, 1010)
    first = region(data, BOXES[0]).ctypes.data
    assert region(data, BOXES[2]).ctypes.data == first
