"""The draws of a batch in one loop, by numba: the same as the classes of ``draws`` do image by image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.hooks.compiled.drawing_codes import (
    ALIKE,
    COLUMNS,
    CROP,
    FIRST,
    FLIP,
    KIND,
    OTHERWISE,
    RESIZED,
    ROWS,
    SECOND,
    SHORT,
    THIRD,
    WIDE,
)
from accel.native.intrinsics import emitted

_RETRIES = 10
_LONGEST = float(1 << 31)
_OF_FLOAT = (1 << 24) - 1  # the bits of an output that make a float32 between 0 and 1


@emitted(types.float64, types.float64)
def _root(builder: ir.IRBuilder, number: Any) -> Any:
    """``math.sqrt`` of a non-negative number, as an instruction: in some versions of numba it is a call."""
    return builder.call(builder.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()]), [number])


@njit
def draw(
    codes: Any, reals: Any, floats: Any, outputs: Any, sizes: Any, common: Any, limit: int, at: int, numbers: Any
) -> Any:  # fmt: skip
    """Draw for all images.

    Args:
        codes: int64 [parts, CODES]. reals: float64 [parts, 2], the least and largest ratio, or the probability first.
        floats: float32 [tables, outputs], each table's value at each output. outputs: int64 [outputs], the generator's.
        sizes: int64 [images, n]; the last two columns are heights and widths.
        common: int64 [columns], a row with the numbers that all images have in common; the columns that no part fills
            come first.
        limit: the most pixels of a crop. at: the outputs already used. numbers: int64 [images, columns], to be filled.

    Returns:
        The number of outputs used in the end, or ``SHORT`` or ``OTHERWISE``.
    """
    begin, size = numbers.shape[1], sizes.shape[1] - 2
    for part in range(len(codes)):
        begin -= codes[part, COLUMNS]
    for i in range(len(sizes)):
        height, width, column = sizes[i, size], sizes[i, size + 1], begin
        for j in range(len(common)):
            numbers[i, j] = common[j]
        for part in range(len(codes)):
            code, row = codes[part], numbers[i, column : column + codes[part, COLUMNS]]
            kind = code[KIND]
            if kind == RESIZED:
                at = _resized_crop(code, reals[part], floats, outputs, height, width, at, row)
                if at >= 0 and row[2] * row[3] > limit:
                    return OTHERWISE
            elif kind == CROP:
                if code[ROWS] * code[WIDE] > limit:
                    return OTHERWISE
                at = _crop(code, outputs, height, width, at, row)
            elif kind == FLIP:
                if at >= len(outputs):
                    return SHORT
                row[0] = float(outputs[at] & _OF_FLOAT) / (_OF_FLOAT + 1) < reals[part, 0]
                at += 1
            elif code[FIRST] >= 0 and (height != code[FIRST] or width != code[SECOND]):
                return OTHERWISE
            if at < 0:
                return at
            if kind != FLIP and not (kind == ALIKE and code[FIRST] < 0):
                height, width = code[ROWS], code[WIDE]
            column += len(row)
    return at


@njit
def _resized_crop(code: Any, ratios: Any, floats: Any, outputs: Any, height: int, width: int, at: int, row: Any) -> Any:
    area = float(height * width)
    rows, columns, found = 0, 0, False
    for _ in range(_RETRIES):
        if at + 2 > len(outputs):
            return SHORT
        wanted, ratio = area * np.float64(floats[code[FIRST], at]), np.float64(floats[code[SECOND], at + 1])
        at += 2
        if not (wanted >= 0.0 and ratio > 0.0):
            return OTHERWISE
        wide, high = _root(wanted * ratio), _root(wanted / ratio)
        if not (wide < _LONGEST and high < _LONGEST):
            return OTHERWISE
        columns, rows = _rounded(wide), _rounded(high)
        if 0 < columns <= width and 0 < rows <= height:
            found = True
            break
    if found:
        if at + 2 > len(outputs):
            return SHORT
        row[0] = outputs[at] % (height - rows + 1)
        row[1] = outputs[at + 1] % (width - columns + 1)
        at += 2
    else:
        whole = float(width) / float(height)
        rows, columns = height, width
        if whole < ratios[0]:
            rows = _rounded(float(columns) / ratios[0])
        elif whole > ratios[1]:
            columns = _rounded(float(rows) * ratios[1])
        row[0], row[1] = (height - rows) // 2, (width - columns) // 2
    row[2], row[3] = rows, columns
    row[4] = code[THIRD] != 0 or rows != height or columns != width
    row[5] = rows != code[ROWS] or columns != code[WIDE]
    return at


@njit
def _crop(code: Any, outputs: Any, height: int, width: int, at: int, row: Any) -> Any:
    rows, columns, both = code[ROWS], code[WIDE], code[FIRST] != 0
    if height < rows or width < columns or (height == rows and width == columns) != (len(row) == 0):
        return OTHERWISE
    if len(row) == 0:
        return at
    if at + 2 > len(outputs):
        return SHORT
    row[0] = row[1] = 0
    row[2], row[3] = rows, columns
    if both or height > rows:
        row[0] = outputs[at] % (height - rows + 1)
        at += 1
    if both or width > columns:
        row[1] = outputs[at] % (width - columns + 1)
        at += 1
    return at


@njit
def _rounded(number: float) -> Any:
    """The nearest integer, the even one of two equally near, as Python rounds."""
    whole = math.floor(number)
    rest = number - whole
    found = int(whole)
    if rest > 0.5 or (rest == 0.5 and found % 2 == 1):
        found += 1
    return found
