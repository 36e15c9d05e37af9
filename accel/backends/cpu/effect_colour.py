"""Colour effects on pixels [height, width, channels]: statistics that end in a lookup table, and mixes of channels.

Each follows Pillow's own arithmetic (src/libImaging: Blend.c, Convert.c; ImageOps.py), operation for operation, so
that every value is the same; loops are kept to forms that LLVM turns into vector code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.shared.numba_memory import flattened

_F32, _F64, _I32, _U32 = np.float32, np.float64, np.int32, np.uint32
_BLOCK = 256


@njit(inline="always")
def _luma(red: Any, green: Any, blue: Any) -> Any:
    """ITU-R 601-2 luma in 16-bit fixed point: Convert.c's L24."""
    return (_U32(red) * _U32(19595) + _U32(green) * _U32(38470) + _U32(blue) * _U32(7471) + _U32(0x8000)) >> _U32(16)


@njit(inline="always")
def _blended(from_: Any, to: Any, factor: Any) -> Any:
    """Blend.c: ``from_ + factor * (to - from_)`` in float32, clipped to 0..255 and cut to an integer."""
    value = _F32(from_) + factor * _F32(_I32(to) - _I32(from_))
    return np.uint8(_I32(min(max(value, _F32(0)), _F32(255))))


# -- statistics ---------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def mean_luma(src: Any) -> Any:
    """The mean luma, rounded half up, as ImageEnhance.Contrast has it."""
    flat, channels = flattened(src), src.shape[2]
    count = src.shape[0] * src.shape[1]
    total = np.int64(0)
    if channels == 1:
        for i in range(count):
            total += flat[i]
    else:
        for i in range(count):
            total += _luma(flat[3 * i], flat[3 * i + 1], flat[3 * i + 2])
    return np.int64(total / count + 0.5)


@njit
def _histograms(src: Any) -> Any:
    """``counts[c, v]``: the number of pixels of channel c with value v. Two counters for each hide memory latency."""
    channels, flat = src.shape[2], flattened(src)
    counts = np.zeros((2, 3, 256), np.uint32)
    odd = flat.shape[0] // (2 * channels) * (2 * channels)
    if channels == 3:
        for i in range(0, odd, 6):
            counts[0, 0, flat[i]] += _U32(1)
            counts[0, 1, flat[i + 1]] += _U32(1)
            counts[0, 2, flat[i + 2]] += _U32(1)
            counts[1, 0, flat[i + 3]] += _U32(1)
            counts[1, 1, flat[i + 4]] += _U32(1)
            counts[1, 2, flat[i + 5]] += _U32(1)
    else:
        for i in range(0, odd, 2):
            counts[0, 0, flat[i]] += _U32(1)
            counts[1, 0, flat[i + 1]] += _U32(1)
    for i in range(odd, flat.shape[0]):
        counts[0, i - odd, flat[i]] += _U32(1)
    for c in range(3):
        for v in range(256):
            counts[0, c, v] += counts[1, c, v]
    return counts[0]


@njit(error_model="numpy")
def autocontrast_table(src: Any, table: Any) -> None:
    """ImageOps.autocontrast without a cutoff: each channel's range is stretched to 0..255."""
    counts = _histograms(src)
    for c in range(src.shape[2]):
        low, high = 0, 255
        while low < 255 and counts[c, low] == 0:
            low += 1
        while high > 0 and counts[c, high] == 0:
            high -= 1
        for v in range(256):
            table[c, v] = v
        if high > low:
            scale = 255.0 / (high - low)
            offset = -low * scale
            for v in range(256):
                table[c, v] = min(max(np.int64(v * scale + offset), 0), 255)


@njit(error_model="numpy")
def equalize_table(src: Any, table: Any) -> None:
    """ImageOps.equalize: each channel's cumulative histogram, in its integer arithmetic."""
    counts = _histograms(src)
    for c in range(src.shape[2]):
        kinds, total, last = 0, np.int64(0), np.int64(0)
        for v in range(256):
            if counts[c, v]:
                kinds, last = kinds + 1, np.int64(counts[c, v])
                total += last
        step = (total - last) // 255
        running = step // 2
        for v in range(256):
            table[c, v] = min(running // step, 255) if kinds > 1 and step else v
            running += counts[c, v]


@njit(error_model="numpy")
def look_up(src: Any, table: Any, out: Any) -> None:
    """``out[y, x, c] = table[c, src[y, x, c]]``."""
    flat, result = flattened(src), flattened(out)
    if src.shape[2] == 1:
        for i in range(flat.shape[0]):
            result[i] = table[0, flat[i]]
    else:
        red, green, blue = table[0], table[1], table[2]
        for i in range(0, flat.shape[0], 3):
            result[i], result[i + 1], result[i + 2] = red[flat[i]], green[flat[i + 1]], blue[flat[i + 2]]


# -- mixes of channels --------------------------------------------------------------------------------------


@njit(error_model="numpy")
def saturate(src: Any, factor: Any, out: Any) -> None:
    """ImageEnhance.Color: a blend with the luma."""
    flat, result = flattened(src), flattened(out)
    for i in range(src.shape[0] * src.shape[1]):
        red, green, blue = flat[3 * i], flat[3 * i + 1], flat[3 * i + 2]
        grey = _luma(red, green, blue)
        result[3 * i] = _blended(grey, red, factor)
        result[3 * i + 1] = _blended(grey, green, factor)
        result[3 * i + 2] = _blended(grey, blue, factor)


@njit(error_model="numpy")
def grey(src: Any, out: Any) -> None:
    """The luma, in all channels of ``out`` (1 or 3); grey pixels go through unchanged."""
    flat, result = flattened(src), flattened(out)
    count = src.shape[0] * src.shape[1]
    if src.shape[2] == 1:
        for i in range(count):
            result[3 * i] = result[3 * i + 1] = result[3 * i + 2] = flat[i]
    elif out.shape[2] == 1:
        for i in range(count):
            result[i] = np.uint8(_luma(flat[3 * i], flat[3 * i + 1], flat[3 * i + 2]))
    else:
        for i in range(count):
            value = np.uint8(_luma(flat[3 * i], flat[3 * i + 1], flat[3 * i + 2]))
            result[3 * i] = result[3 * i + 1] = result[3 * i + 2] = value


@njit(error_model="numpy")
def permute(src: Any, order: Any, out: Any) -> None:
    """``out[..., c] = src[..., order[c]]``, of three channels."""
    flat, result = flattened(src), flattened(out)
    first, second, third = order[0], order[1], order[2]
    for i in range(src.shape[0] * src.shape[1]):
        red, green, blue = flat[3 * i + first], flat[3 * i + second], flat[3 * i + third]
        result[3 * i], result[3 * i + 1], result[3 * i + 2] = red, green, blue


@njit(inline="always")
def _hsv(red: Any, green: Any, blue: Any) -> Any:
    """Convert.c's rgb2hsv: hue, saturation and value, int32 0..255; float where it has float, double where double."""
    high, low = max(red, max(green, blue)), min(red, min(green, blue))
    span = high - low
    range_ = _F32(max(span, _I32(1)))
    r, g, b = _F32(high - red) / range_, _F32(high - green) / range_, _F32(high - blue) / range_
    third = _F64(0) if red == high else (_F64(2) if green == high else _F64(4))
    plus = b if red == high else (r if green == high else g)
    minus = g if red == high else (b if green == high else r)
    turns = _F64(_F32(third + _F64(plus) - _F64(minus))) / 6.0 + 1.0
    hue = _I32(_F64(_F32(turns - 1.0 if turns >= 1.0 else turns)) * 255.0)
    saturation = _I32(_F64(range_ / _F32(max(high, _I32(1)))) * 255.0)
    return (hue if span > 0 else _I32(0)), (saturation if span > 0 else _I32(0)), high


@njit(inline="always")
def _rgb(hue: Any, saturation: Any, value: Any) -> Any:
    """Convert.c's hsv2rgb."""
    turns = _F64(hue) * 6.0 / 255.0
    sector = _I32(turns)
    rest, share = _F32(turns - _F64(sector)), _F32(_F64(saturation) / 255.0)
    top = _F64(value)
    p = _I32(top * (1.0 - _F64(share)) + 0.5)
    q = _I32(top * (1.0 - _F64(share * rest)) + 0.5)
    t = _I32(top * (1.0 - _F64(share) * (1.0 - _F64(rest))) + 0.5)
    sector = sector if sector < 6 else _I32(0)
    red = value if sector in (0, 5) else (q if sector == 1 else (t if sector == 4 else p))
    green = value if sector in (1, 2) else (t if sector == 0 else (q if sector == 3 else p))
    blue = value if sector in (3, 4) else (t if sector == 2 else (q if sector == 5 else p))
    return red, green, blue


@njit(error_model="numpy")
def shift_hue(src: Any, shift: Any, out: Any) -> None:
    """torchvision's adjust_hue: to HSV, ``shift`` added to the hue modulo 256, and back.

    In blocks of planes, which vectorise where interleaved pixels do not.
    """
    flat, result = flattened(src), flattened(out)
    planes = np.empty((3, _BLOCK), np.int32)
    count = src.shape[0] * src.shape[1]
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        block, target = flat[3 * start : 3 * (start + size)], result[3 * start : 3 * (start + size)]
        for i in range(size):
            planes[0, i], planes[1, i], planes[2, i] = block[3 * i], block[3 * i + 1], block[3 * i + 2]
        for i in range(size):
            hue, saturation, value = _hsv(planes[0, i], planes[1, i], planes[2, i])
            planes[0, i], planes[1, i], planes[2, i] = (hue + shift) & _I32(255), saturation, value
        for i in range(size):
            red, green, blue = _rgb(planes[0, i], planes[1, i], planes[2, i])
            planes[0, i], planes[1, i], planes[2, i] = red, green, blue
        for i in range(size):
            target[3 * i], target[3 * i + 1], target[3 * i + 2] = planes[0, i], planes[1, i], planes[2, i]
