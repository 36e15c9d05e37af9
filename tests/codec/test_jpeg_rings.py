"""Planes of two rows of MCUs, taken in turns: regions of tall pictures, of all samplings."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from accel.codec import jpeg


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_tall_regions(subsampling: str) -> None:
    file = BytesIO()
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (30, 9, 3), np.uint8)
    Image.fromarray(pixels).resize((70, 240), Image.Resampling.BICUBIC).save(file, "JPEG", subsampling=subsampling)
    expected = np.asarray(Image.open(file))
    for top in range(0, 40, 3):
        for height in (16, 33, 64, 129, 200):
            box = top, 5 + top // 3, height, 41
            found = jpeg.decode(file.getvalue(), box, channels=3)
            assert np.array_equal(found, expected[top : top + height, box[1] : box[1] + 41])
