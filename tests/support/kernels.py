"""Helpers of the compiled kernel's tests: images, axes, windows, and walls around memory."""

from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import passes
from accel.backends.cpu.passes import Axis
from bench.fuzz.decoder import guarded_copy

Array = npt.NDArray[Any]

POISON = 0xA5


def picture(height: int, width: int, channels: int, seed: int = 0) -> Array:
    """Noise with saturated patches, so that overshooting filters reach both clamps."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    image[: height // 2, : width // 2] = rng.choice([0, 255], (height // 2, width // 2, channels))
    return image


def codes(*values: int) -> Array:
    return np.array(values, np.int32)


def whole(size: int) -> Array:
    return np.arange(size, dtype=np.int32)


def axis(
    length: int,
    size: int | None = None,
    window: Array | None = None,
    start: int = 0,
    step: int = 1,
    extent: tuple[float, float] | None = None,
) -> Axis:
    """By default the whole source axis, not resampled, all of it shown."""
    size = length if size is None else size
    begin, span = extent or (0.0, float(length))
    return Axis(start, step, length, begin, span, size, whole(size) if window is None else window)


def windowed(image: Array, rows: Array, cols: Array, fills: Array) -> Array:
    """``image[rows, cols]``, where the lower of two negative codes names a colour."""
    lower = np.minimum(rows[:, None], cols[None, :])
    result = image[np.maximum(rows, 0)[:, None], np.maximum(cols, 0)[None, :]].copy()
    for i, colour in enumerate(fills):
        result[lower == -1 - i] = colour
    return result


def random_table(channels: int, dtype: str = "uint8", seed: int = 1) -> Array:
    """Random bit patterns: nothing but a look-up reproduces them."""
    top = np.iinfo(dtype).max
    return np.random.default_rng(seed).integers(0, top, (channels, 256), dtype=dtype, endpoint=True)


def no_fills(channels: int) -> Array:
    return np.zeros((0, channels), np.uint8)


def walled(image: Array, *, at_end: bool) -> Array:
    """A copy of ``image`` whose last (or first) byte touches a page that may not be read."""
    return guarded_copy(image, "behind" if at_end else "before")


def emitted(
    src: Array, rows: Axis, cols: Axis, resample: int, fills: Array, table: Array, planar: bool = False
) -> Array:
    """Run ``run`` into poisoned memory between guards; the result interleaved."""
    shape = (len(rows.window), len(cols.window), table.shape[0])
    count, guard = int(np.prod(shape)), 64
    memory = np.full((count + 2 * guard) * table.itemsize, POISON, np.uint8).view(table.dtype)
    out = memory[guard : guard + count].reshape((shape[2], *shape[:2]) if planar else shape)
    passes.run(src, rows, cols, resample, fills, table, out, planar)
    edges = np.concatenate([memory[:guard], memory[guard + count :]]).view(np.uint8)
    assert (edges == POISON).all(), "wrote outside the output"
    return out.transpose(1, 2, 0) if planar else out
