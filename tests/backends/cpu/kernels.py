"""Resampling by the kernels of the cpu backend."""

import numpy as np
from PIL import Image

from accel.backends.cpu.passes import Axis
from tests.support.kernels import (
    Array,
    axis,
    emitted,
    no_fills,
    picture,
    random_table,
    walled,
    windowed,
)

LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = FILTERS = (1, 2, 3, 4, 5)
SUPPORT = {LANCZOS: 3.0, BILINEAR: 1.0, BICUBIC: 2.0, BOX: 0.5, HAMMING: 1.0}


def pillow(image: Array, height: int, width: int, resample: int) -> Array:
    """Pillow's own resize, channel by channel where it would treat the fourth as alpha."""
    if image.shape[2] == 3:
        return np.asarray(Image.fromarray(image).resize((width, height), resample))
    planes = (Image.fromarray(np.ascontiguousarray(image[..., c])) for c in range(image.shape[2]))
    return np.stack([np.asarray(plane.resize((width, height), resample)) for plane in planes], axis=2)


def expected(canvas: Array, rows: Axis, cols: Axis, resample: int, fills: Array, table: Array) -> Array:
    """The values ``run`` is to write, interleaved, by Pillow and NumPy, from an image that holds the whole view."""
    y, x = (a.start + a.step * np.arange(a.length) for a in (rows, cols))
    resized = pillow(np.ascontiguousarray(canvas[y[:, None], x]), rows.size, cols.size, resample)
    pixels = windowed(resized, rows.window, cols.window, fills)
    return table[np.arange(table.shape[0]), pixels]


def needed(axis: Axis, resample: int) -> tuple[int, int]:
    """The half-open range of source positions that the window depends on."""
    shown = axis.window[axis.window >= 0]
    if not len(shown):
        return 0, 1
    first, stop = int(shown.min()), int(shown.max()) + 1
    if axis.size != axis.length:
        scale = axis.length / axis.size
        support = SUPPORT[resample] * max(scale, 1.0)
        first = max(int((first + 0.5) * scale - support + 0.5), 0)
        stop = min(int((stop - 0.5) * scale + support + 0.5), axis.length)
    ends = axis.start + axis.step * first, axis.start + axis.step * (stop - 1)
    return min(ends), max(ends) + 1


def check(
    canvas: Array,
    rows: Axis,
    cols: Axis,
    resample: int,
    fills: Array | None = None,
    dtype: str = "uint8",
    planar: bool = False,
) -> None:
    """``run`` equals Pillow, and reads nothing but the smallest region of the canvas that can do."""
    fills = no_fills(canvas.shape[2]) if fills is None else fills
    table = random_table(canvas.shape[2], dtype)
    want = expected(canvas, rows, cols, resample, fills, table)
    (top, bottom), (left, right) = needed(rows, resample), needed(cols, resample)
    region = np.ascontiguousarray(canvas[top:bottom, left:right])
    moved = rows._replace(start=rows.start - top), cols._replace(start=cols.start - left)
    for at_end in (False, True):
        got = emitted(walled(region, at_end=at_end), *moved, resample, fills, table, planar)
        np.testing.assert_array_equal(got, want)


def resized() -> list[Array]:
    found = []
    for channels, resample, before, after in ((3, BILINEAR, 301, 224), (1, BICUBIC, 200, 90), (4, LANCZOS, 80, 131)):
        image, table = picture(40, before, channels), random_table(channels, "uint8")
        found.append(emitted(image, axis(40, 33), axis(before, after), resample, no_fills(channels), table, False))
    return found
