"""The axes of many images of one structure after crops, flips, paddings and a resize, by numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.planning import column_fields as of


@njit
def plan_axes(
    forms: Any,
    numbers: Any,
    table: Any,
    converted: int,
    support: float,
    order: int,
    work: Any,
    boxes: Any,
    axes: Any,
    parts: Any,
    rows_first: Any,
    found: Any,
) -> Any:
    """Fill the boxes, axes and parts of ``Columns``; return 0, or ``OTHERWISE`` if columns cannot express some image.

    Args:
        forms: int64 [forms, FORM], see ``column_fields``. numbers: int64 [images, columns].
        table: int64 [images, n], the sources' ``Sources.table``.
        converted: the column that says which images are converted to RGB if they are grey; -1: all, ``NEVER``: none.
        support: the filter's support, in input positions at scale 1; 0: nothing is resampled.
        order: the rule for the order of the axes (``columns.order_of``).
        work: int64 [WORK, 4], working memory. found: int64 [FOUND], to be filled.
    """
    view, window, changed = work[0:2], work[2:4], work[5]
    channels = _channels(numbers, table, converted)
    if channels == 0:
        return of.OTHERWISE
    size = table.shape[1] - 2
    end, found[of.CHANNELS], found[of.HEIGHT], found[of.WIDTH], found[of.ALIKE] = 0, channels, 0, 0, 1
    found[of.LONGEST] = 0
    for image in range(len(boxes)):
        for axis in range(2):
            _begin(view, axis, table[image, size + axis])
            _begin(window, axis, table[image, size + axis])
        changed[:] = 0
        for form in forms:
            if not _apply(form, numbers[image], work):
                return of.OTHERWISE
        for axis in range(2):
            parts[image, of.SHOWN + axis] = window[axis, of.LENGTH]
            found[of.HEIGHT + axis] = max(found[of.HEIGHT + axis], window[axis, of.LENGTH])
            if window[axis, of.LENGTH] != parts[0, of.SHOWN + axis]:
                found[of.ALIKE] = 0
            if not changed[of.RESIZED]:
                _begin(view, axis, window[axis, of.SIZE])
            first, last = _needed(view[axis], window[axis], support if changed[of.RESIZED] else 0.0)
            boxes[image, axis], boxes[image, axis + 2] = first, last - first
            out = axes[axis, image]
            out[of.START], out[of.STEP] = view[axis, of.START] - first, view[axis, of.STEP]
            out[of.LENGTH], out[of.SIZE] = view[axis, of.LENGTH], window[axis, of.SIZE]
            out[of.WINDOW], out[of.WINDOW_STEP] = window[axis, of.START], window[axis, of.STEP]
            for number in out:
                found[of.LONGEST] = max(found[of.LONGEST], number)
        rows_first[image] = _rows_first(order, axes[0, image], axes[1, image])
        parts[image, of.BEGIN] = end
        end += channels * parts[image, of.SHOWN] * parts[image, of.SHOWN + 1]
    return 0


@njit
def _apply(form: Any, row: Any, work: Any) -> Any:
    """Apply a form to the axes of the image with this row of numbers; whether columns can express the result."""
    view, window, params, changed = work[0:2], work[2:4], work[4], work[5]
    kind, drawn = form[of.KIND], form[of.DRAWN] < 0 or row[form[of.DRAWN]] != 0
    for i in range(4):
        column = form[of.PARAMS + 2 * i]
        params[i] = form[of.PARAMS + 2 * i + of.CONSTANT] if column < 0 else row[column]
    if kind == of.RESIZE:
        return _resize(view, window, params, drawn, changed)
    if kind == of.CROP:
        changed[:2] = 1
        return not drawn or (_crop(window[0], params[0], params[2]) and _crop(window[1], params[1], params[3]))
    if kind == of.PAD:
        return _pad(window, params, changed)
    axis = 1 if kind == of.HFLIP else 0
    changed[axis] = 1
    if drawn:
        window[axis, of.START] += window[axis, of.STEP] * (window[axis, of.LENGTH] - 1)
        window[axis, of.STEP] = -window[axis, of.STEP]
    return True


@njit
def _resize(view: Any, window: Any, params: Any, drawn: bool, changed: Any) -> bool:
    for axis in range(2):
        length = params[axis] if drawn else window[axis, of.LENGTH]
        if length < 1:
            return False
        for i in range(4):  # one by one: numba copies an array through another one
            view[axis, i] = window[axis, i]
        _begin(window, axis, length)
    changed[0], changed[1], changed[of.RESIZED] = 0, 0, 1
    return True


@njit
def _pad(window: Any, params: Any, changed: Any) -> bool:
    """``params``: left, top, right, bottom."""
    if changed[0] or changed[1]:
        return False
    for axis in range(2):
        before, after = params[1 - axis], params[3 - axis]
        window[axis, of.START] = -before
        window[axis, of.LENGTH] += before + after
    changed[:2] = 1
    return True


@njit
def _channels(numbers: Any, table: Any, converted: int) -> Any:
    """The channels that all images have; 0 if they differ."""
    channels = 0
    for image in range(len(table)):
        coloured = table[image, table.shape[1] - 3] == of.COLOURED or converted == -1
        if converted >= 0 and numbers[image, converted] != 0:
            coloured = True
        own = of.COLOURED if coloured else 1
        if channels not in (0, own):
            return 0
        channels = own
    return channels


@njit
def _rows_first(order: int, row: Any, column: Any) -> Any:
    """``resample.rows_first``, for the axes of one image."""
    lost = row[of.LENGTH] - row[of.SIZE]
    if order == of.BY_SHAPE:
        return row[of.LENGTH] > 100 * column[of.LENGTH] and lost > 0
    return order == of.BY_LOSS and lost > 0 and lost > 2 * (column[of.LENGTH] - column[of.SIZE])


@njit
def _begin(axes: Any, axis: int, size: int) -> None:
    """Set an axis to show all of ``size`` positions."""
    axes[axis, of.START], axes[axis, of.STEP], axes[axis, of.LENGTH], axes[axis, of.SIZE] = 0, 1, size, size


@njit
def _crop(window: Any, offset: int, length: int) -> bool:
    if offset < 0 or length < 1 or offset + length > window[of.LENGTH]:
        return False
    window[of.START] += window[of.STEP] * offset
    window[of.LENGTH] = length
    return True


@njit
def _needed(view: Any, window: Any, support: float) -> Any:
    """The half-open range of source positions that an axis depends on; at least one."""
    first, last = _span(window, 0, window[of.LENGTH])
    first, last = max(first, 0), min(last, window[of.SIZE])
    if first >= last:
        return 0, 1
    if support > 0.0 and view[of.LENGTH] != window[of.SIZE]:
        first, last = _taps(support, view[of.LENGTH], window[of.SIZE], first, last)
    return _span(view, first, last)


@njit
def _span(axis: Any, first: int, last: int) -> Any:
    """The half-open range of positions that an axis shows at its positions ``first <= p < last``."""
    one, other = axis[of.START] + axis[of.STEP] * first, axis[of.START] + axis[of.STEP] * (last - 1)
    return min(one, other), max(one, other) + 1


@njit
def _taps(support: float, size_in: int, size_out: int, first: int, last: int) -> Any:
    """``resample.taps`` for an axis that is resampled as a whole, by the same float64 arithmetic."""
    scale = np.float64(size_in) / np.float64(size_out)
    reach = support * max(scale, 1.0)
    low = int((first + 0.5) * scale - reach + 0.5)  # towards zero
    high = int((last - 0.5) * scale + reach + 0.5)
    return max(low, 0), min(high, size_in)
