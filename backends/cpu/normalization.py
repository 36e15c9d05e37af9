"""Arithmetic that may replace a value table: that of ToTensor with Normalize, ``(v / 255 - mean) / std`` in float32.

Each division is computed as a multiplication by a reciprocal of twice the precision, or of single precision where
torchvision itself multiplies (v2's ToDtype). ``pass_blocks.stands_in`` compares the result with the table.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

NO_FACTORS = np.zeros((0, 4), np.float32)


def _reciprocal(divisor: np.float32) -> tuple[np.float32, np.float32]:
    """1 / divisor as the sum of two float32."""
    exact = 1.0 / float(divisor)
    high = np.float32(exact)
    return high, np.float32(exact - float(high))


_LEVELS = np.arange(256, dtype=np.float32)
_SCALINGS = (
    (_LEVELS / np.float32(255), *_reciprocal(np.float32(255))),
    (_LEVELS * np.float32(1 / 255), np.float32(1 / 255), np.float32(0)),
)


def _near(value: float) -> npt.NDArray[np.float32]:
    """Zero, and the five float32 around ``value``."""
    bits = np.float32(value).view(np.int32) + np.arange(-2, 3, dtype=np.int32)
    return np.append(bits.view(np.float32), np.float32(0))


@functools.lru_cache(maxsize=64)
def find_factors(table: bytes, channels: int) -> npt.NDArray[np.float32]:
    """Factors float32 [5, 4] that may reproduce a float32 table; [0, 4] if none are found.

    Rows: the two parts of 1 / 255, the mean, the two parts of 1 / std; one column per channel.
    """
    result = np.zeros((5, 4), np.float32)
    for c, values in enumerate(np.frombuffer(table, np.float32).reshape(channels, 256)):
        found = _fit(values)
        if found is None:
            return NO_FACTORS
        result[:, c] = found
    return result


def _fit(values: npt.NDArray[np.float32]) -> tuple[np.float32, ...] | None:
    """Find one channel's factors; None if there are none.

    A straight line through the table gives mean and std to within a few units in the last place.
    """
    if not np.isfinite(values).all() or values[0] == values[255] or not _is_straight(values):
        return None
    for scaled, scale, scale_rest in _SCALINGS:
        slope, intercept = np.polyfit(scaled.astype(np.float64), values.astype(np.float64), 1)
        with np.errstate(all="ignore"):
            means, stds = _near(-intercept / slope)[:, None, None], _near(1 / slope)[:, None]
            fits = np.argwhere((((scaled - means) / stds) == values).all(axis=-1))
        if len(fits):
            mean, std = means[fits[0, 0], 0, 0], stds[fits[0, 1], 0]
            return scale, scale_rest, mean, *_reciprocal(std)
    return None


def _is_straight(values: npt.NDArray[np.float32]) -> bool:
    """Whether a line is worth trying, judging by three points; a colour op's table, new for every image, is no line."""
    first, span = float(values[0]), float(values[255]) - float(values[0])
    return all(abs(first + span * n / 255 - float(values[n])) < 1e-5 * abs(span) for n in (67, 131, 202))
