"""torchvision's v2 ``adjust_hue`` of uint8 tensors, in one pass, by numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_F32, _I32 = np.float32, np.int32
_BLOCK = 256
_ONE = _F32(1)


@njit(inline="always")
def _turned(red: Any, green: Any, blue: Any, hue: Any) -> Any:
    """``_rgb_to_hsv``, the hue added modulo 1, and ``_hsv_to_rgb``, in float32, operation for operation.

    Every ``fmod`` there is of a value in (-1, 2), and so a subtraction.
    """
    high, low = max(red, max(green, blue)), min(red, min(green, blue))
    span = high - low
    saturation = span / (_ONE if span == 0 else high)
    divisor = _ONE if span == 0 else span
    r, g, b = (high - red) / divisor, (high - green) / divisor, (high - blue) / divisor
    sixths = b - g if high == red else (r + _F32(2) - b if high == green else g + _F32(4) - r)
    turn = sixths * _F32(1 / 6) + _ONE
    turn = (turn - _ONE if turn >= _ONE else turn) + hue
    turn = turn - _ONE if turn >= _ONE else turn
    turn = turn + _ONE if turn < 0 else turn
    turn *= _F32(6)
    sector = _I32(turn)
    share = saturation * (turn - _F32(sector))
    grey = _ONE - saturation
    p, q, t = grey * high, (_ONE - share) * high, (share + grey) * high
    p, q, t = (min(max(p, _F32(0)), _ONE), min(max(q, _F32(0)), _ONE), min(max(t, _F32(0)), _ONE))
    sector = _I32(0) if sector == 6 else sector
    red = high if sector in (0, 5) else (q if sector == 1 else (t if sector == 4 else p))
    green = high if sector in (1, 2) else (t if sector == 0 else (q if sector == 3 else p))
    blue = high if sector in (3, 4) else (t if sector == 2 else (q if sector == 5 else p))
    return red, green, blue


@njit(error_model="numpy")
def shift_hue(flat: Any, step: Any, plane: Any, count: Any, hue: Any, out: Any) -> None:
    """Add ``hue`` turns to ``count`` pixels, whose channels lie ``plane`` apart, each ``step`` from pixel to pixel.

    ``out``: uint8 [3 * count], planar.
    """
    planes = np.empty((3, _BLOCK), np.float32)
    scale, levels = _F32(1 / 255), _F32(255 + 1.0 - 1e-3)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        for c in range(3):
            first = c * plane + start * step
            for i in range(size):
                planes[c, i] = _F32(flat[first + i * step]) * scale
        for i in range(size):
            planes[0, i], planes[1, i], planes[2, i] = _turned(planes[0, i], planes[1, i], planes[2, i], hue)
        for c in range(3):
            for i in range(size):
                out[c * count + start + i] = np.uint8(_I32(planes[c, i] * levels))
