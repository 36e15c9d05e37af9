"""Batches drawn in one loop of compiled code, where all that a program has is known to it.

The first image is drawn as always: what it became tells what all others have in common with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from accel.hooks.compiled import drawing_codes as of
from accel.hooks.compiled.draws import Crop, Flip, Op, ResizedCrop, Run, Size
from accel.hooks.compiled.fixed import Fixed
from accel.hooks.compiled.tape import UNIT, Kind
from accel.native import units
from accel.rows import Numbers

COMPILED = units.Unit(
    "drawing",
    "hooks/compiled/drawing_kernels.py",
    "hooks/compiled/drawing_codes.py",
    "native/intrinsics.py",
    seconds=0.3,
)
_draw = COMPILED.function("hooks.compiled.drawing_kernels", "draw", "i8[2] f8[2] f4[2] i8[1] i8[2] int int i8[2]w")


def knows(ops: Sequence[Op]) -> bool:
    """Whether compiled code knows all parts of a program that draws."""
    return all(type(op) in _KINDS for op in ops) and any(op.most for op in ops)


def numbers_of(ops: Sequence[Op], sizes: Sequence[Size], run: Run) -> tuple[Numbers, Size] | None:
    """Draw for images of these sizes; None, with nothing used of the tape, where they are to be drawn one by one.

    Args:
        run: the first image's, as it is before the first part of the program.

    Returns:
        The numbers of all, and the size that each has then.

    Raises:
        IndexError: the tape is too short.
        Refused: the first image is left to torchvision.
    """
    limit, tape = Image.MAX_IMAGE_PIXELS, run.tape
    if type(limit) is not int and limit is not None:
        return None
    first = next(place for place, op in enumerate(ops) if op.most)
    if sizes.count(sizes[0]) < len(sizes):
        begun_with = _begun(ops[:first], sizes, run) if type(ops[first]) is ResizedCrop else None
        if begun_with is None:  # what they become differs
            return None
        ops, sizes = ops[first:], begun_with
    begun, tables, codes, reals = tape.at, list[Kind](), [], []
    size = sizes[0]
    for op in ops:
        before, filled = size, len(run.row)
        size = op.draw(run, *size)
        rest, real = _coded(op, before, tables)
        codes.append((_KINDS[type(op)], len(run.row) - filled, *size, *rest))
        reals.append(real)
    codes.append((of.ALIKE, 0, *size, *size, 0))
    reals.append((0.0, 0.0))
    numbers = np.empty((len(sizes), len(run.row)), np.int64)
    numbers[:] = run.row
    most = _MOST if limit is None else min(limit, _MOST)
    at = _draw(
        np.array(codes, np.int64),
        np.array(reals),
        tape.tables(tuple(tables)),
        tape.outputs(),
        np.array(sizes, np.int64),
        most,
        tape.at,
        numbers,
    )
    if at == of.SHORT:
        raise IndexError("the tape is too short")
    tape.at = begun if at == of.OTHERWISE else at
    return None if at == of.OTHERWISE else (numbers, size)


def _begun(ops: Sequence[Op], sizes: Sequence[Size], run: Run) -> Sequence[Size] | None:
    """Do what draws nothing with the run, of the first of these sizes; the sizes that all images have then.

    None, with the run as it was, where images differ in more than that.
    """
    if not ops:
        return sizes
    made: dict[Size, Size] = {}
    first: Run | None = None
    for size in dict.fromkeys(sizes):
        one, after = run.alike(list(run.row)), size
        for op in ops:
            after = op.draw(one, *after)
        first = first or one
        if one.pieces != first.pieces or one.row != first.row:
            return None
        made[size] = after
    assert first is not None
    run.pieces, run.row = first.pieces, first.row
    return [made[size] for size in sizes]


def _coded(op: Op, before: Size, tables: list[Kind]) -> tuple[tuple[int, int, int], tuple[float, float]]:
    """The last codes of a part, and its numbers that are no integers; its tables are added."""
    if isinstance(op, ResizedCrop):
        tables += [(False, op.scale), (True, op.logs)]
        return (len(tables) - 2, len(tables) - 1, op.of_tensor), (float(min(op.ratio)), float(max(op.ratio)))
    if isinstance(op, Crop):
        return (op.both, 0, 0), (0.0, 0.0)
    if isinstance(op, Flip):
        tables.append((False, UNIT))
        return (len(tables) - 1, 0, 0), (op.probability, 0.0)
    return (*before, 0), (0.0, 0.0)


_KINDS: dict[type, int] = {ResizedCrop: of.RESIZED, Crop: of.CROP, Flip: of.FLIP, Fixed: of.ALIKE}
_MOST = 1 << 62
