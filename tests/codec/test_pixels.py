"""Colour and upsampling by vectors against the same sums in NumPy, of all colours and of random samples."""

from __future__ import annotations

import numba
import numpy as np

from accel.codec.jpeg.pixels import upsample_h2v1, upsample_h2v2, ycc_to_rgb
from accel.codec.jpeg.scratch import CHUNK
from accel.system.native.memory import pointer_to, u64


def test_all_colours() -> None:
    @numba.njit
    def convert(plane: np.ndarray, count: int, out: np.ndarray) -> None:
        planes, pixels = pointer_to(plane), pointer_to(out)
        for x in range(0, count, CHUNK):
            ycc_to_rgb(planes, u64(x), u64(count + x), u64(2 * count + x), pixels, u64(3 * x))

    light, blue, red = (each.reshape(-1) for each in np.mgrid[0:256:51, 0:256, 0:256].astype(np.int32))
    out = np.empty((len(light), 3), np.uint8)
    convert(np.concatenate([light, blue, red]).astype(np.uint8), len(light), out.reshape(-1))
    cb, cr = blue - 128, red - 128
    more = (91881 * cr + 32768) >> 16, (-22554 * cb - 46802 * cr + 32768) >> 16, (116130 * cb + 32768) >> 16
    expected = np.stack([np.clip(light + each, 0, 255) for each in more], axis=1)
    assert np.array_equal(out, expected)


def test_samples_between_rows() -> None:
    @numba.njit
    def upsample(rows: np.ndarray, width: int, both: np.ndarray, one: np.ndarray) -> None:
        plane = pointer_to(rows)
        two, single = pointer_to(both), pointer_to(one)
        for x in range(1, width - 1, CHUNK):
            upsample_h2v2(plane, u64(x), u64(width + x), u64(2 * width))
            upsample_h2v1(plane, u64(x), u64(2 * width + 2 * CHUNK))
            for i in range(2 * CHUNK):
                two[2 * (x - 1) + i] = plane[2 * width + i]
                single[2 * (x - 1) + i] = plane[2 * width + 2 * CHUNK + i]

    random, width = np.random.default_rng(1), 64 * CHUNK + 2
    rows = random.integers(0, 256, (2, width), np.uint8)
    rows[:, : width // 2] = random.choice(np.array([0, 255], np.uint8), (2, width // 2))
    both, one = np.empty(2 * width - 4, np.uint8), np.empty(2 * width - 4, np.uint8)
    upsample(np.append(rows.reshape(-1), np.zeros(4 * CHUNK, np.uint8)), width, both, one)
    near, far = rows.astype(np.int32)
    for found, column, rounding, shift in ((both, 3 * near + far, (8, 7), 4), (one, near, (1, 2), 2)):
        here = 3 * column[1:-1]
        expected = np.stack([here + column[:-2] + rounding[0], here + column[2:] + rounding[1]], axis=1) >> shift
        assert np.array_equal(found, expected.reshape(-1))
