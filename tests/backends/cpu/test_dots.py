"""Columns resampled by products of bytes: at every limit of theirs, and the same without such instructions."""

from pathlib import Path

import numpy as np
import pytest

from accel.backends.cpu.passes import Axis
from tests.backends.cpu.kernels import BICUBIC, BOX, FILTERS, LANCZOS, check, resized
from tests.support.helpers import python
from tests.support.kernels import axis, picture, whole

WIDE, ROWS = 97, (16, 23, 37)


def widths(channels: int, resample: int) -> list[tuple[int, int]]:
    """(before, after): rows about as long as what is fetched at once, and any number of taps."""
    around = [64 // channels + more for more in (-1, 0, 1, 2)]
    found = [(before, after) for before in around for after in (3, before - 1, before + 1, 3 * before)]
    for taps in range(3, 20):
        scale = (taps - 1) / {LANCZOS: 6, BICUBIC: 4, BOX: 1}.get(resample, 2)
        if scale <= 6:
            found += [(int(scale * WIDE), WIDE), (int(scale * WIDE) + 1, WIDE)]
    return [(before, after) for before, after in found if before > 0 and before != after]


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("resample", FILTERS)
def test_any_number_of_taps(resample: int, channels: int) -> None:
    for number, (before, after) in enumerate(widths(channels, resample)):
        rows = ROWS[number % len(ROWS)]
        for start, step in ((0, 1), (before - 1, -1)):
            cols = Axis(start, step, before, 0.0, float(before), after, whole(after))
            check(picture(rows, before, channels), axis(rows, rows), cols, resample)


@pytest.mark.parametrize("resample", FILTERS)
def test_extreme_pictures(resample: int) -> None:
    """Where filters overshoot, and sums are largest."""
    stripes = np.zeros((20, 211, 3), np.uint8)
    stripes[:, ::3], stripes[:, 1::7] = 255, 255
    for image in (stripes, 255 - stripes, np.full_like(stripes, 255), stripes[:, :, ::-1].copy()):
        for after in (100, 140, 210, 212, 500):
            check(image, axis(20, 20), axis(211, after), resample)


CODE = """
import sys
import numpy as np
from tests.backends.cpu.kernels import resized
np.savez(sys.argv[1], *resized())
"""


def test_a_processor_without_such_instructions(tmp_path: Path) -> None:
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "ACCEL_CACHE_DIR": str(tmp_path / "cache")}
    python(CODE, str(tmp_path / "found.npz"), environment=plain)
    with np.load(tmp_path / "found.npz") as found:
        for without, here in zip(found.values(), resized(), strict=True):
            np.testing.assert_array_equal(without, here)
