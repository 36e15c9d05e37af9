"""Batches drawn in one loop of compiled code, if that knows all parts of a program.

One image is drawn in Python first: its result shows what all images have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from accel.hooks.compiled.random_numbers.tape import UNIT, Distribution, Tape
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import drawing_codes as of
from accel.hooks.compiled.transforms.draws import Crop, Flip, Instruction, Piece, ResizedCrop, Run, Size
from accel.hooks.compiled.transforms.fixed import Fixed
from accel.recipes.rows import Numbers
from accel.system.native import units

_COMPILED = units.Unit(
    "drawing",
    "hooks/compiled/transforms/drawing_*.py",
    "system/native/intrinsics.py",
    seconds=0.3,
)
_draw = _COMPILED.function(
    "hooks.compiled.transforms.drawing_kernels", "draw", "i8[2] f8[2] f4[2] i8[1] i8[2] i8[1] int i8[1]w i8[2]w"
)


def knows(ops: Sequence[Instruction]) -> bool:
    """Whether a program draws at all, and compiled code knows all its parts."""
    return all(map(_knows, ops)) and any(op.most for op in ops)


def _knows(op: Instruction) -> bool:
    if isinstance(op, ResizedCrop):  # of other bounds, Python raises errors that compiled code does not see
        return all(0 <= part < 1e6 for part in op.scale) and all(abs(log) < 30 for log in op.logs)
    return type(op) in _KINDS


class Alike(NamedTuple):
    """The common part of all images, whatever is drawn: their pieces, a row of numbers in which the drawn ones are to
    be filled in, the resulting size, and the tables for compiled code (``drawing_codes``)."""

    pieces: list[Piece]
    row: npt.NDArray[np.int64]
    size: Size
    codes: npt.NDArray[np.int64]
    reals: npt.NDArray[np.float64]
    tables: tuple[Distribution, ...]


Known = dict["Size | None", Alike]
"""By the images' size; None: for any size."""


def numbers_of(ops: Sequence[Instruction], sizes: Numbers, run: Run, known: Known) -> tuple[Numbers, Size] | None:
    """Draw for images of these sizes; None, with nothing of the tape used, if they must be drawn one by one.

    Args:
        sizes: int64 [images, n]; the last two columns are heights and widths.
        run: what the images have in common before the program; updated to what they have in common after it.
        known: results of earlier calls for this program.

    Returns:
        The images' numbers, int64 [images, columns], and the size that all have after the program.

    Raises:
        IndexError: the tape is too short.
    """
    limit, tape = Image.MAX_IMAGE_PIXELS, run.tape
    if type(limit) is not int and limit is not None:
        return None
    alike = known.get(None)
    if alike is None:
        height, width = sizes[0, -2:].tolist()
        size = None if _takes_any_size(ops) else (height, width)
        if size is not None and (sizes[:, -2:] != sizes[0, -2:]).any():  # the results differ in size
            return None
        alike = known.get(size)
        if alike is None:
            try:
                alike = _alike(ops, (height, width))
            except Refused:  # perhaps only because of what this image drew
                return None
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[size] = alike
    row = np.array([*run.row, *alike.row], np.int64) if run.row else alike.row
    numbers = np.empty((len(sizes), len(row)), np.int64)
    most = _MOST if limit is None else min(limit, _MOST)
    used = np.array([tape.at])
    tables = tape.tables(alike.tables), tape.outputs()
    result = _draw(alike.codes, alike.reals, *tables, sizes, row, most, used, numbers)
    if result == of.SHORT:
        raise IndexError("the tape is too short")
    if result == of.OTHERWISE:
        return None
    tape.at = int(used[0])
    run.pieces += alike.pieces
    run.row[:] = numbers[0].tolist()
    return numbers, alike.size


def _alike(ops: Sequence[Instruction], size: Size) -> Alike:
    """Find what images of a size have in common, by one image with draws from a separate generator."""
    run = Run(Tape(torch.Generator().get_state(), sum(op.most for op in ops)))
    tables, codes, reals = list[Distribution](), [], []
    for op in ops:
        before, filled = size, len(run.row)
        size = op.draw(run, *size)
        rest, real = _coded(op, before, tables)
        codes.append((_KINDS[type(op)], len(run.row) - filled, *size, *rest))
        reals.append(real)
    codes.append((of.ALIKE, 0, *size, *size, 0))
    reals.append((0.0, 0.0))
    arrays = np.array(codes, np.int64), np.array(reals), tuple(tables)
    return Alike(run.pieces, np.array(run.row, np.int64), size, *arrays)


def _takes_any_size(ops: Sequence[Instruction]) -> bool:
    """Whether the result does not depend on the images' size: the first part that changes it resizes to a fixed one."""
    first = next(op for op in ops if not _keeps_size(op))
    return type(first) is ResizedCrop


def _keeps_size(op: Instruction) -> bool:
    return isinstance(op, Fixed) and op.keeps_size


def _coded(
    op: Instruction, before: Size, tables: list[Distribution]
) -> tuple[tuple[int, int, int], tuple[float, float]]:
    """The last three codes of a part, and its two floats; its tables are appended to ``tables``."""
    if isinstance(op, ResizedCrop):
        tables += [(False, op.scale), (True, op.logs)]
        return (len(tables) - 2, len(tables) - 1, op.of_tensor), op.ratio
    if isinstance(op, Crop):
        return (op.both, 0, 0), (0.0, 0.0)
    if isinstance(op, Flip):
        tables.append((False, UNIT))
        return (len(tables) - 1, 0, 0), (op.probability, 0.0)
    return (-1, -1, 0) if _keeps_size(op) else (*before, 0), (0.0, 0.0)


_KINDS: dict[type, int] = {ResizedCrop: of.RESIZED, Crop: of.CROP, Flip: of.FLIP, Fixed: of.ALIKE}
_MOST = 1 << 62
_MOST_KNOWN = 1 << 10
