"""Compiled code of ``layout``: descriptors of a batch's files, and the places of their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cuda.declarations import constant, positions, structure
from accel.backends.cuda.jpeg.batch_fields import FEW, LAUNCHES, PIECES, PLANES
from accel.backends.cuda.regions import ALIGNED, SHIFT, Region
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import layout_fields as lo
from accel.codec.jpeg.layout import needed_mcus
from accel.codec.jpeg.points import mcus, point_up_to

_PICTURE, _COMPONENT, *_SIZED = (
    structure("jpeg/picture.h", name) for name in ("Picture", "Component", "Point", "Segment", "State", "Tile", "Span")
)
_POINT_SIZE, _SEGMENT_SIZE, _STATE_SIZE, _TILE_SIZE, _SPAN_SIZE = (dtype.itemsize for dtype in _SIZED)
_TABLES_SIZE = structure("jpeg/symbols.h", "Tables").itemsize
_THREADS = constant("shim.h", "THREADS")
_COMPONENTS, _BLOCK, _GROUP, _PIXELS, _OF_THREAD, _PIECE, _SHORT_PIECE, _SPAN = (
    constant("jpeg/picture.h", name)
    for name in ("COMPONENTS", "BLOCK", "GROUP", "PIXELS", "PIECES", "PIECE", "SHORT_PIECE", "SPAN")
)
_UPLOAD, _SCRATCH, _FILES = int(Region.UPLOAD), int(Region.SCRATCH), int(Region.FILES)
_AHEAD = 64  # bytes behind a stream for padding and reads beyond its end


_P, _C = positions(_PICTURE), positions(_COMPONENT)
_OF_COMPONENT = _COMPONENT.itemsize // 4
_REGION = (
    (_C.upsampling, lo.KIND),
    (_C.h_ratio, lo.H_RATIO),
    (_C.v_ratio, lo.V_RATIO),
    (_C.columns, lo.COLUMNS),
    (_C.rows, lo.ROWS),
    (_C.left, lo.BLOCK_LEFT),
    (_C.right, lo.BLOCK_RIGHT),
    (_C.top, lo.BLOCK_TOP),
    (_C.bottom, lo.BLOCK_BOTTOM),
)
_PLACING = (_P.line, _P.points_in_line, _P.step, _P.growth)
_BOX = (_P.top, _P.left, _P.height, _P.width)
_TABLE_FIELDS = ((hd.DC_TABLE, _P.dc_tables), (hd.AC_TABLE, _P.ac_tables))
_FIRST_BLOCKS = {
    "jpeg_count": _P.first_tile,
    "jpeg_synchronise": _P.first_span,
    "jpeg_points": _P.first_point,
    "jpeg_segments": _P.first_segment,
    "jpeg_transform": _P.first_group,
    "jpeg_pixels": _P.first_pixel,
}
"""The field with a picture's first block, for kernels whose number of blocks differs between pictures."""
_COUNTED = tuple((LAUNCHES.index(kernel), field) for kernel, field in _FIRST_BLOCKS.items())
_OWN = tuple(getattr(_P, name) for name in PIECES if name not in PLANES)
_STATE, _POINTS = PIECES.index("state"), PIECES.index("points")


@njit
def _ceil(value: Any, divisor: Any) -> Any:
    return -(-value // divisor)


@njit
def _put(words: Any, at: Any, value: Any) -> None:
    """Write a place of 64 bits to two words."""
    words[at], words[at + 1] = np.int32(value & 0xFFFFFFFF), np.int32(value >> 32)


@njit
def _first_alike(header: Any, field: int, c: Any) -> Any:
    """The first component with the same table as component c."""
    own = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + field]
    for before in range(c):
        if header[hd.COMPONENT + hd.COMPONENT_FIELDS * before + field] == own:
            return np.int64(before)
    return np.int64(c)


@njit
def _tables(header: Any, words: Any, in_mcu: Any) -> Any:
    """Describe the scan's Huffman tables; returns whether all components share theirs."""
    is_shared = True
    for kind in range(len(_TABLE_FIELDS)):
        field, packed = _TABLE_FIELDS[kind]
        for c in range(_COMPONENTS):
            if in_mcu[c] > 0:
                first = _first_alike(header, field, c)
                table = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + field]
                words[_P.huffman + _COMPONENTS * kind + first] = header[hd.HUFFMAN_AT + table]
                is_shared &= first == 0
        value = np.int64(0)
        for slot in range(hd.MAX_BLOCKS_IN_MCU):
            owner = np.int64(slot >= in_mcu[0]) + np.int64(slot >= in_mcu[0] + in_mcu[1])
            value |= (_COMPONENTS * kind + _first_alike(header, field, owner)) << 3 * slot
        words[packed] = np.int32(value)
    return is_shared


@njit
def _scan(header: Any, words: Any, in_mcu: Any) -> None:
    """Describe the stream (T.81 A.2) and its tables; fills ``in_mcu`` with each component's blocks in an MCU."""
    words[_P.scan], words[_P.colour] = header[hd.SCAN], header[hd.COLOUR]
    slots = 0
    for c in range(_COMPONENTS):
        fields, own = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], words[_P.components + _OF_COMPONENT * c :]
        own[_C.h], own[_C.v] = fields[hd.H_SAMP], fields[hd.V_SAMP]
        in_mcu[c] = fields[hd.H_SAMP] * fields[hd.V_SAMP]  # 0 for components that a grey picture lacks
        own[_C.slot], own[_C.quant] = slots, header[hd.QUANT_AT + fields[hd.QUANT]]
        slots += in_mcu[c]
    columns, rows = mcus(header)
    restart = header[hd.RESTART] if header[hd.RESTART] > 0 else columns * rows
    words[_P.slots], words[_P.mcu_columns], words[_P.mcus] = slots, columns, columns * rows
    words[_P.restart], words[_P.intervals] = restart, _ceil(columns * rows, restart)
    words[_P.period] = 1 if _tables(header, words, in_mcu) else slots


@njit
def _region(header: Any, region: Any, words: Any, in_mcu: Any, needed: Any) -> Any:
    """Describe the needed part of each component, and of the MCUs; fills ``needed`` with each component's blocks.

    Returns the number of groups of blocks.
    """
    groups = np.int64(0)
    for c in range(_COMPONENTS):
        needed[c] = 0
        own, line = words[_P.components + _OF_COMPONENT * c :], region[c]
        own[_C.first_group] = groups
        if in_mcu[c] == 0:
            continue
        for field, column in _REGION:
            own[field] = line[column]
        across, down = line[lo.BLOCK_RIGHT] - line[lo.BLOCK_LEFT], line[lo.BLOCK_BOTTOM] - line[lo.BLOCK_TOP]
        own[_C.stride] = 8 * across
        needed[c] = across * down
        groups += _ceil(needed[c], _GROUP)
    words[_P.mcu_left], words[_P.mcu_right], words[_P.mcu_top], last_row, _ = needed_mcus(header, region)
    words[_P.mcu_bottom] = last_row + 1
    return groups


@njit
def _points(header: Any, words: Any, known: Any) -> Any:
    """Describe a picture's segments, or the points that its index will have; returns the number of these."""
    count, wanted = np.int64(words[_P.mcus]), known[2] != 0
    words[_P.segment_count] = known[1]
    if known[1] > 0:
        _put(words, _P.segments, np.int64(_UPLOAD) << SHIFT | known[0] * _SEGMENT_SIZE)
    points = point_up_to(header, count - 1) + 1 if wanted else np.int64(0)
    words[_P.point_count] = points
    for k in range(len(_PLACING)):
        words[_PLACING[k]] = header[hd.LINE + k] if wanted else 0
    walked = np.int64(words[_P.mcu_bottom]) * words[_P.mcu_columns]
    words[_P.walked] = count if wanted else min(walked, count)
    return points


@njit
def _lay_out_file(
    header: Any, region: Any, file: Any, box: Any, known: Any, words: Any, scratch: Any
) -> tuple[Any, Any]:
    """Describe a picture; returns its number of blocks for each of LAUNCHES, and its bytes of each of PIECES."""
    in_mcu, needed = scratch[:3], scratch[3:]
    size, counts = file[1], known[1]
    _put(words, _P.file, np.int64(_FILES) << SHIFT | file[0])
    words[_P.size], words[_P.channels] = size, file[2]
    for k in range(4):
        words[_BOX[k]] = box[k]
    _scan(header, words, in_mcu)
    groups = _region(header, region, words, in_mcu, needed)
    points = _points(header, words, known)

    count, slots, unknown = np.int64(words[_P.mcus]), np.int64(words[_P.slots]), np.int64(counts == 0)
    stream = size - header[hd.SCAN]  # an upper bound; without an index it is decoded from its beginning
    tiles = unknown * _ceil(size - header[hd.SCAN] // _SPAN * _SPAN, _SPAN * _THREADS)
    spans = unknown * _ceil(8 * stream, _OF_THREAD * np.int64(words[_P.piece]) * _THREADS)
    words[_P.tile_count] = tiles
    area, has_points = box[2] * box[3], np.int64(points > 0)
    blocks = (
        tiles,
        unknown,
        tiles,
        np.int64(1),
        spans,
        unknown,
        spans,
        _COMPONENTS * unknown,
        _ceil(points + has_points, _THREADS),
        _ceil(counts, _THREADS),
        groups,
        _ceil(area, _PIXELS * _THREADS),
    )
    mcus_needed = (words[_P.mcu_right] - words[_P.mcu_left]) * np.int64(words[_P.mcu_bottom] - words[_P.mcu_top])
    room = (
        (stream + _AHEAD) * unknown,
        _TILE_SIZE * tiles,
        4 * np.int64(words[_P.intervals]) * unknown,
        _SPAN_SIZE * _THREADS * spans,
        np.int64(_TABLES_SIZE),
        2 * _THREADS * tiles * has_points,
        4 * count * slots * unknown,
        2 * _BLOCK * mcus_needed * slots,
        np.int64(_STATE_SIZE),
        _POINT_SIZE * (points + 1) * has_points,
        _ceil(area, _PIXELS) * _PIXELS * file[2],
        _BLOCK * needed[0],
        _BLOCK * needed[1],
        _BLOCK * needed[2],
    )
    return blocks, room


@njit
def _place(pictures: Any, memory: Any, ends: Any) -> Any:
    """Place the memory kind by kind, with a gap behind each piece, but states and points without; returns the end."""
    offsets, sizes, end = memory[0], memory[1], np.int64(0)
    for k in range(len(PIECES)):
        ends[k] = end
        at = _OWN[k] if k < len(_OWN) else _P.components + _OF_COMPONENT * (k - len(_OWN)) + _C.plane
        for n in range(len(pictures)):
            offsets[k, n] = end
            size = sizes[k, n]
            if size > 0:
                _put(pictures[n], at, np.int64(_SCRATCH) << SHIFT | end)
            end += size if k in (_STATE, _POINTS) else (size // ALIGNED + 2) * ALIGNED
        end = _ceil(end, ALIGNED) * ALIGNED
    return end


@njit
def lay_out_files(
    headers: Any,
    regions: Any,
    files: Any,
    boxes: Any,
    known: Any,
    accepted: Any,
    pictures: Any,
    blocks: Any,
    memory: Any,
    numbers: Any,
) -> int:
    """Compute ``layout.lay_out``; return the bytes of scratch memory.

    Args:
        files: int64 [..., 3]: start, size, channels. known: ``index.Known.table``.
        accepted: int64 [n], the numbers of the files.
        pictures: int32 [n, words], zero. blocks: int64 [LAUNCHES, n]. memory: int64 [2, PIECES, n], offsets and sizes.
        numbers: int64 [PIECES + LAUNCHES + 6]: where each kind begins, the blocks of each launch, and working memory.
    """
    totals = numbers[len(PIECES) :]
    totals[:] = 0
    for n in range(len(accepted)):
        i = accepted[n]
        pictures[n, _P.piece] = _SHORT_PIECE if len(accepted) <= FEW else _PIECE
        launched, room = _lay_out_file(headers[i], regions[i], files[i], boxes[i], known[i], pictures[n], numbers[-6:])
        for k in range(len(LAUNCHES)):
            blocks[k, n] = launched[k]
            totals[k] += launched[k]
        for k in range(len(PIECES)):
            memory[1, k, n] = room[k]
    for k in range(len(_COUNTED)):
        kernel, field = _COUNTED[k]
        first = np.int64(0)
        for n in range(len(accepted)):
            pictures[n, field] = first
            first += blocks[kernel, n]
    return int(_place(pictures, memory, numbers))
