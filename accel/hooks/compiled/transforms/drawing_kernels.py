"""The draws of a batch in one loop, by numba: the classes of ``draws`` do the same image by image."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import overload, overload_method, register_jitable

from accel.hooks.compiled.transforms import drawing_codes as of
from accel.hooks.compiled.transforms import drawing_formulas as formulas
from accel.system.native.intrinsics import emitted

# -- where the numbers come from: (the tables, the generator's outputs, an array with how many of them are used) -----


@overload_method(types.Tuple, "uniform")
@overload_method(types.Tuple, "exp")
def _of_table(draws: Any, bounds: Any) -> Any:
    def read(draws: Any, bounds: Any) -> Any:
        tables, outputs, used = draws
        used[0] += 1
        return float(tables[bounds, min(used[0], len(outputs)) - 1])

    return read


@overload_method(types.Tuple, "below")
def _remainder(draws: Any, limit: Any) -> Any:
    def read(draws: Any, limit: Any) -> Any:
        _, outputs, used = draws
        used[0] += 1
        return outputs[min(used[0], len(outputs)) - 1] % limit

    return read


@overload(formulas.root)
def _root(number: Any) -> Any:
    def compute(number: Any) -> Any:
        return _square_root(number)

    return compute


@emitted(types.float64, types.float64)
def _square_root(builder: ir.IRBuilder, number: Any) -> Any:
    """``math.sqrt`` of a non-negative number, as an instruction: in some versions of numba it is a call."""
    return builder.call(builder.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()]), [number])


for _formula in (formulas.happens, formulas.sides, formulas.resized_crop, formulas.crop):
    register_jitable(_formula)


@njit
def draw(
    codes: Any, reals: Any, floats: Any, outputs: Any, sizes: Any, common: Any, limit: int, used: Any, numbers: Any
) -> Any:
    """Draw for all images.

    Args:
        codes: int64 [parts, CODES]. reals: float64 [parts, 2], the least and largest ratio, or the probability first.
        floats: float32 [tables, outputs], each table's value at each output. outputs: int64 [outputs], the generator's.
        sizes: int64 [images, n]; the last two columns are heights and widths.
        common: int64 [columns], a row with the numbers that all images have in common; the columns that no part fills
            come first.
        limit: the most pixels of a crop. used: int64 [1], how many outputs are used, before and after.
        numbers: int64 [images, columns], to be filled.

    Returns:
        0, or ``SHORT`` or ``OTHERWISE``.
    """
    draws = floats, outputs, used
    begin, size = numbers.shape[1], sizes.shape[1] - 2
    for part in range(len(codes)):
        begin -= codes[part, of.COLUMNS]
    for i in range(len(sizes)):
        for j in range(len(common)):
            numbers[i, j] = common[j]
        result = _draw_image(draws, codes, reals, sizes[i, size], sizes[i, size + 1], limit, numbers[i, begin:])
        if result != 0:
            return result
    return 0


@register_jitable
def _draw_image(draws: Any, codes: Any, reals: Any, height: int, width: int, limit: int, numbers: Any) -> Any:
    """Draw the numbers of all parts for an image of this size; returns what ``draw`` does."""
    _, outputs, used = draws
    column = 0
    for part in range(len(codes)):
        code, row = codes[part], numbers[column : column + codes[part, of.COLUMNS]]
        fits = _draw_part(draws, code, reals[part], height, width, row)
        if used[0] > len(outputs):
            return of.SHORT
        crops = code[of.KIND] in (of.RESIZED, of.CROP) and len(row) > 0
        if not fits or (crops and row[2] * row[3] > limit):
            return of.OTHERWISE
        if code[of.KIND] != of.FLIP and (code[of.KIND] != of.ALIKE or code[of.FIRST] >= 0):
            height, width = code[of.ROWS], code[of.WIDE]
        column += len(row)
    return 0


@register_jitable
def _draw_part(draws: Any, code: Any, real: Any, height: int, width: int, row: Any) -> Any:
    """Draw the numbers of a part for an image of this size; False if that must be done in Python."""
    kind, rows, columns = code[of.KIND], code[of.ROWS], code[of.WIDE]
    if kind == of.RESIZED:
        box = formulas.resized_crop(draws, height, width, code[of.FIRST], code[of.SECOND], real[0], real[1])
        row[0], row[1], row[2], row[3] = box
        row[4] = code[of.THIRD] != 0 or row[2] != height or row[3] != width
        row[5] = row[2] != rows or row[3] != columns
    elif kind == of.CROP:
        if height < rows or width < columns or (height == rows and width == columns) != (len(row) == 0):
            return False
        if len(row):
            row[0], row[1] = formulas.crop(draws, height, width, rows, columns, code[of.FIRST] != 0)
            row[2], row[3] = rows, columns
    elif kind == of.FLIP:
        row[0] = formulas.happens(draws, code[of.FIRST], real[0])
    else:
        return code[of.FIRST] < 0 or (height == code[of.FIRST] and width == code[of.SECOND])
    return True
