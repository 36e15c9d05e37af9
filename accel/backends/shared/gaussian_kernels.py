"""Gaussian blur on pixels [height, width, channels], equal to torch's sums rounded by torchvision.

torch sums the products of a whole window in float32, which is rounded to uint8 in the end. Here two passes make a sum
that lies within a bound of torch's (``find_bounds``). If no half lies within the bound, both round to the same; for the
few values that are left the window is summed as torch does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.np.unsafe.ndarray import to_fixed_tuple

from accel.backends.shared.numba_memory import flattened
from accel.backends.shared.simd_floats import BLOCK, LANES, fma, round16, sum_row, sum_two_rows

_F32, _F64, _I32 = np.float32, np.float64, np.int32

# -- the bound ------------------------------------------------------------------------------------------------

_TAIL = 2.0**-21
_DARK = 127.0


@njit(inline="always")
def _error(weights: Any, highest: Any, cap: Any, twice: Any) -> Any:
    """The largest error of a float32 sum of weights times values up to ``highest``, and the largest sum.

    ``cap``: an upper bound of partial sums. ``twice``: whether products may be rounded before they are added.
    """
    error, reached, top = _F64(0), _F64(0), 2.0**-125
    for k in range(weights.shape[0]):
        product = highest * _F64(weights[k])
        if product > 0:
            reached += product
            if twice:
                error += product * 2.0**-24 + 2.0**-150
            while top <= min(reached + error, cap):  # half an ulp of what is below a power of two is 2**-25 of it
                top *= 2.0
            error += min(top * 2.0**-25, product * (1 + 2.0**-23))
    return error, reached


@njit(inline="always")
def _total(window: Any) -> Any:
    """The sum of a window's weights; NaN if one of them is negative or no number."""
    total = _F64(0)
    for i in range(window.shape[0]):
        for j in range(window.shape[1]):
            if not window[i, j] >= 0:
                return _F64(np.nan)
            total += _F64(window[i, j])
    return total


@njit(inline="always")
def _sum_side(window: Any, total: Any, weights: Any) -> None:
    """The sums of a window's columns, divided by ``total``, without negligible weights at the ends."""
    count = weights.shape[0]
    for k in range(count):
        weight = _F64(0)
        for other in range(window.shape[0]):
            weight += _F64(window[other, k])
        weights[k] = _F32(weight / total)
    left = _F64(0)
    for k in range(count // 2):
        left += _F64(weights[k]) + _F64(weights[count - 1 - k])
        if left > _TAIL:
            break
        weights[k] = weights[count - 1 - k] = _F32(0)


@njit(error_model="numpy")
def find_bounds(window: Any, across: Any, down: Any, bounds: Any) -> None:
    """Compute ``across`` and ``down``, whose outer product is nearly the window, and the bounds of their sums' error.

    ``bounds``: gets the largest distance between torch's float32 sum over a window of values 0..255 and that of
    ``blur``'s two passes: for sums below 127, and for all. It is at least 1/2, so that the passes are not used, if the
    window's weights are not finite, not negative, and of sum about 1.

    Rounding to nearest has an error of at most half an ulp of the result, and adding to a float one of at most the
    number added (as the float itself is that near). All terms are >= 0, so that partial sums only grow: the i-th is at
    most 255 times the sum of the first i weights, plus the errors so far; nor is it above the last.
    """
    high, wide = window.shape
    across[:], down[:], bounds[:] = _F32(0), _F32(0), 1.0
    total = _total(window)
    if not abs(total - 1) < 1e-3:
        return
    _sum_side(window, total, across)
    _sum_side(window.T, _F64(1), down)
    apart, sum_across = _F64(0), _F64(0)
    for j in range(wide):
        sum_across += _F64(across[j])
        for i in range(high):
            apart += abs(_F64(window[i, j]) - _F64(down[i]) * _F64(across[j]))
    first, reached = _error(down, 255.0, 512.0, False)
    second, _ = _error(across, reached + first, 512.0, False)
    ours = 255 * apart + first * sum_across + second
    flat = flattened(window)
    # float64 rounds as well, and so does 1/2 minus the bound in float32
    dark = (_error(flat, 255.0, _DARK + 0.5, True)[0] + ours) * (1 + 1e-6) + 2.0**-24
    bright = (_error(flat, 255.0, 512.0, True)[0] + ours) * (1 + 1e-6) + 2.0**-24
    bounds[0], bounds[1] = (dark if bright < 0.5 else bright), bright


# -- the blur -------------------------------------------------------------------------------------------------

_BATCH = 8
_NOTHING = (_F32(0),) * _BATCH


@njit(inline="always")
def _padded(src: Any, x_half: Any, y_half: Any) -> Any:
    """The image with its borders reflected, as a flat array, with room for a row and a block behind it."""
    height, width, channels = src.shape
    pitch, wider = width * channels, (width + 2 * x_half) * channels
    flat, result = flattened(src), np.empty((height + 2 * y_half + 1) * wider + BLOCK, np.uint8)
    for y in range(height + 2 * y_half):
        at = abs(y - y_half)
        at = at if at < height else 2 * (height - 1) - at
        line, row = flat[at * pitch :][:pitch], result[y * wider :][:wider]
        middle = row[x_half * channels :]
        for i in range(pitch):
            middle[i] = line[i]
        for c in range(channels):
            for x in range(1, x_half + 1):
                row[(x_half - x) * channels + c] = line[x * channels + c]
                row[(x_half + width - 1 + x) * channels + c] = line[(width - 1 - x) * channels + c]
    return result


@njit(inline="always")
def _taps(window: Any, pitch: Any, channels: Any) -> Any:
    """The offsets in the padded image and the weights of a window's taps that are not 0, row by row."""
    high, wide = window.shape
    places, weights = np.empty(high * wide, np.uint64), np.empty(high * wide, np.float32)
    count = 0
    for i in range(high):
        for j in range(wide):
            if window[i, j] > 0:
                places[count], weights[count] = np.uint64(i * pitch + j * channels), window[i, j]
                count += 1
    return places[:count], weights[:count]


@njit(inline="always")
def _as_torch(padded: Any, at: Any, places: Any, weights: Any, fused: Any, sums: Any) -> Any:
    """Sum several windows side by side, tap after tap, so that their additions are independent of each other."""
    begins, totals = to_fixed_tuple(at, _BATCH), _NOTHING
    for k in range(places.shape[0]):
        for n in range(_BATCH):
            value = _F32(padded[begins[n] + places[k]])
            total = fma(value, weights[k], totals[n]) if fused else totals[n] + value * weights[k]
            totals = tuple_setitem(totals, n, total)
    for n in range(_BATCH):
        sums[n] = totals[n]


@njit(inline="always")
def _trimmed(weights: Any, zeros: Any) -> Any:
    """The position of the first weight that is not 0, and the weights from there to the last, padded with zeros."""
    first, last = 0, weights.shape[0]
    while first < last - 1 and weights[first] == 0:
        first += 1
    while last > first + 1 and weights[last - 1] == 0:
        last -= 1
    result = np.zeros(last - first + 2 * zeros, np.float32)
    for k in range(last - first):
        result[zeros + k] = weights[first + k]
    return first, result


@njit(inline="always")
def _settle(queue: Any, counts: Any) -> None:
    """Sum the windows that wait as torch does, and round them; ``counts``: how many wait, and were summed before."""
    padded, pending, into, taps, fused, result = queue
    exact = np.empty(_BATCH, np.float32)
    _as_torch(padded, pending, taps[0], taps[1], fused, exact)
    for n in range(counts[0]):
        result[into[n]] = np.uint8(_I32(np.rint(exact[n])))
    counts[0], counts[1] = 0, counts[1] + counts[0]


@njit(inline="always")
def _put(far: Any, count: Any, begin: Any, to: Any, queue: Any, counts: Any) -> None:
    """Have the windows wait whose bit is set, of the first ``count``; a full queue is summed."""
    _, pending, into, _, _, _ = queue
    place = 0
    while far:
        if far & np.uint64(1) and place < count:
            pending[counts[0]], into[counts[0]] = np.uint64(begin + place), to + place
            counts[0] += 1
        if counts[0] == _BATCH:
            _settle(queue, counts)
        far >>= np.uint64(1)
        place += 1


@njit(inline="always")
def _round(sums: Any, i: Any, limits: Any, result: Any, begin: Any) -> Any:
    """Round ``LANES`` sums into the result; a bit for each that lies too near to a half."""
    if begin + LANES <= result.shape[0]:  # values beyond the row are overwritten later
        return round16(sums, i, limits[0], limits[1], result, begin)
    levels = np.empty(LANES, np.uint8)
    far = round16(sums, i, limits[0], limits[1], levels, 0)
    for n in range(result.shape[0] - begin):
        result[begin + n] = levels[n]
    return far


@njit(error_model="numpy")
def blur(src: Any, window: Any, across: Any, down: Any, dark: Any, bright: Any, fused: Any, out: Any) -> Any:
    """Convolve with a window of odd sides, with reflected borders, and round half to even.

    Args:
        src, out: the pixels, and the result, of the same shape.
        window: the weights, float32 [rows, columns].
        across, down, dark, bright: from ``find_bounds``.
        fused: whether torch adds products with one rounding, rather than two.

    Returns:
        The number of values that were summed as torch does.
    """
    height, width, channels = src.shape
    pitch, wider = width * channels, (width + across.shape[0] - 1) * channels
    result = flattened(out)
    padded = _padded(src, across.shape[0] // 2, down.shape[0] // 2)
    taps = _taps(window, wider, channels)
    x_first, across = _trimmed(across, 0)
    y_first, down = _trimmed(down, 1)
    length = pitch + (across.shape[0] - 1) * channels
    columns = length + 2 * BLOCK
    rows = np.empty(2 * columns, np.float32)
    sums = np.empty(pitch + BLOCK, np.float32)
    queue = padded, np.zeros(_BATCH, np.uint64), np.zeros(_BATCH, np.int64), taps, fused, result
    counts = np.zeros(2, np.int64)
    limits = _F32(0.5) - dark, _F32(0.5) - bright
    for y in range(height):
        if y % 2 == 0:
            start = (y + y_first) * wider + x_first * channels
            for i in range(0, length, BLOCK // 2):
                sum_two_rows(padded, start + i, wider, down, rows, i, columns)
        for i in range(0, pitch, BLOCK):
            sum_row(rows, y % 2 * columns + i, channels, across, sums, i, 0)
        for i in range(0, pitch, LANES):
            far = _round(sums, i, limits, result, y * pitch + i)
            if far:
                _put(far, pitch - i, y * wider + i, y * pitch + i, queue, counts)
    if counts[0]:
        _settle(queue, counts)
    return counts[1]


@njit(error_model="numpy")
def sum_windows(src: Any, window: Any, fused: Any, step: Any, out: Any) -> None:
    """The sums of every ``step``-th window, in the order that ``blur`` assumes of torch, to check that."""
    width, channels = src.shape[1:]
    high, wide = window.shape
    wider = (width + wide - 1) * channels
    padded = _padded(src, wide // 2, high // 2)
    places, weights = _taps(window, wider, channels)
    at, sums = np.zeros(_BATCH, np.uint64), np.empty(_BATCH, np.float32)
    for i in range(0, out.shape[0], _BATCH):
        count = min(_BATCH, out.shape[0] - i)
        for n in range(count):
            y, x = divmod((i + n) * step, width * channels)
            at[n] = np.uint64(y * wider + x)
        _as_torch(padded, at, places, weights, fused, sums)
        for n in range(count):
            out[i + n] = sums[n]
