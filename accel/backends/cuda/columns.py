"""Lowering a plan of rows to a schedule: the descriptors of all images at once, column by column.

``lowering`` does the same for plans of single recipes. In a batch of crops that are resized, images differ only in
numbers; it takes two launches.
"""

from __future__ import annotations

from functools import partial
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from accel.backends.cuda.descriptors import COEFFICIENT_JOB, PASS, TILE_COLUMNS, TILE_ROWS
from accel.backends.cuda.regions import ALIGNED
from accel.backends.cuda.schedule import Schedule
from accel.backends.shared.identity_cache import IdentityCache
from accel.ops.resample import SUPPORT
from accel.planning.columns import ColumnPlan
from accel.planning.plan import Plan, bits
from accel.recipes.rows import Numbers
from accel.system.native import units

_OWN = ("lower_columns.py", "regions.py", "declarations.py", "pass.h", "tile.h")
UNIT = units.Unit("lowered", *(f"backends/cuda/{name}" for name in _OWN), "planning/column_fields.py", seconds=1.5)
"""Compiled code that lowers plans, and makes programs of descriptors."""
_MODULE = "backends.cuda.lower_columns"
_LOWER = "i8[2] i8[3] u1[1] u8[1] i8[1]w float i8[2]w i8[2]w i4[1]w i4[2]w i4[2]w"
_lower = UNIT.function(_MODULE, "lower", _LOWER)
_device_bytes = UNIT.function(_MODULE, "device_bytes", "i8[2] i8[3] int int int float i8[1]w")
write_items = UNIT.function(_MODULE, "write_items", "u1[1] int i8[2] i8[1] i8[1] int int u8[1]w i4[1]w int")

_NARROW = 1 << 16  # longer than any side of a file
_ON_HOST = frozenset(map(int, (Resampling.LANCZOS, Resampling.HAMMING)))


def accepts(plan: Plan) -> TypeGuard[ColumnPlan]:
    """Whether a plan can be lowered here: of rows, coefficients are computed on the device, sizes below ``_NARROW``."""
    if not isinstance(plan, ColumnPlan):
        return False
    columns = plan.columns
    return columns.resample & 7 not in _ON_HOST and columns.longest < _NARROW and max(plan.shape[2:]) < _NARROW


def schedule_of(plan: ColumnPlan, sources: npt.NDArray[np.uint64]) -> Schedule:
    """``lowering.schedule_of`` for a plan that it ``accepts``."""
    schedule, columns = Schedule(), plan.columns
    count, channels, height, width = plan.shape
    places = sources.copy()
    for number in (sources == 0).nonzero()[0].tolist():
        places[number] = schedule.upload.take(int(columns.boxes[number, 2:].prod()) * channels)
    schedule.pixels = places.tolist()
    table, colour = _bits(columns.table), columns.fill
    values, fills = schedule.send("table", table.nbytes, lambda: [table]), 0
    windows = [np.empty((count, 0), np.int32)] * 2
    listed = [0, 0]
    if colour is not None:
        fills = schedule.send("fills", channels, lambda: [np.array(colour, np.uint8)])
        windows = [np.empty((count, -(-shown // _ENTRIES) * _ENTRIES), np.int32) for shown in (height, width)]
        listed = [schedule.send(n, each.nbytes, partial(list, (each,))) for n, each in enumerate(windows)]
    about = (
        plan.dtype.itemsize,
        not plan.interleaved,
        values,
        fills,
        *listed,
        columns.resample,
        schedule.scratch.take(0),
    )
    numbers = np.array([channels, height, width, *about], np.int64)
    passes = np.zeros((count, PASS.itemsize // 8), np.int64)
    jobs = np.zeros((2 * count, COEFFICIENT_JOB.itemsize // 8), np.int64)
    known = np.zeros(1 << (2 * count).bit_length(), np.int32)
    made = _lower(
        *(columns.boxes, columns.axes, columns.rows_first.view(np.uint8), places, numbers, _support(columns.resample)),
        *(passes, jobs, known, *windows),
    )
    schedule.scratch.take(int(numbers[-1]) - schedule.scratch.take(0))
    if made:
        schedule.launch(0, "coefficients", COEFFICIENT_JOB).add_all(jobs[:made])
    blocks = -(-height // TILE_ROWS) * -(-width // TILE_COLUMNS)
    schedule.launch(1, f"pass{channels}", PASS).add_all(passes, blocks)
    return schedule


_ENTRIES = ALIGNED // 4
_bits = IdentityCache(bits, 256)


def _support(code: int) -> float:
    return float(SUPPORT.get(code & 7, 0))


def device_bytes(plan: ColumnPlan) -> Numbers:
    """``lowering.device_bytes`` for every image."""
    columns, (count, channels, height, width) = plan.columns, plan.shape
    total = np.empty(count, np.int64)
    _device_bytes(columns.boxes, columns.axes, height, width, channels, _support(columns.resample), total)
    return total
