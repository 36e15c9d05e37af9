"""Compiled code of ``layout``: descriptors of a batch's files, and the places of their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cuda.declarations import constant, structure
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES, PIECES, PLANES
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import layout_fields as lo
from accel.codec.jpeg.points import point_up_to

_PICTURE, _COMPONENT = structure("jpeg/picture.h", "Picture"), structure("jpeg/picture.h", "Component")
_POINT_SIZE, _SEGMENT_SIZE, _STATE_SIZE, _TILE_SIZE, _SPAN_SIZE = (
    structure("jpeg/picture.h", name).itemsize for name in ("Point", "Segment", "State", "Tile", "Span")
)
_TABLES_SIZE = structure("jpeg/symbols.h", "Tables").itemsize
_THREADS = constant("shim.h", "THREADS")
_COMPONENTS, _BLOCK, _GROUP, _PIXELS, _SUBSEQUENCE, _SPAN = (
    constant("jpeg/picture.h", name) for name in ("COMPONENTS", "BLOCK", "GROUP", "PIXELS", "SUBSEQUENCE", "SPAN")
)
_UPLOAD, _SCRATCH, _FILES = 1, 2, 4  # descriptors.Region
_SHIFT = 56
_ALIGNED = 64
_AHEAD = 64  # bytes behind a stream for padding and reads beyond its end


def _at(name: str) -> int:
    """The position of a picture's field, in 32-bit words."""
    return _offset(_PICTURE, name)


def _in(name: str) -> int:
    """The position of a component's field, in 32-bit words."""
    return _offset(_COMPONENT, name)


def _offset(dtype: np.dtype[Any], name: str) -> int:
    fields: Any = dtype.fields
    return int(fields[name][1]) // 4


_OF_COMPONENT, _PLANE = _COMPONENT.itemsize // 4, _in("plane")
_H, _V, _SLOT, _STRIDE, _QUANT, _FIRST_GROUP = map(_in, ("h", "v", "slot", "stride", "quant", "first_group"))
_REGION = tuple(
    (_in(name), column)
    for name, column in (
        *(("upsampling", lo.KIND), ("h_ratio", lo.H_RATIO), ("v_ratio", lo.V_RATIO)),
        *(("columns", lo.COLUMNS), ("rows", lo.ROWS), ("left", lo.BLOCK_LEFT), ("right", lo.BLOCK_RIGHT)),
        *(("top", lo.BLOCK_TOP), ("bottom", lo.BLOCK_BOTTOM)),
    )
)
_PLACING = tuple(map(_at, ("line", "points_in_line", "step", "growth")))
_BOX = tuple(map(_at, ("top", "left", "height", "width")))
_TABLE_FIELDS = ((hd.DC_TABLE, _at("dc_tables")), (hd.AC_TABLE, _at("ac_tables")))
(
    _FILE, _SIZE, _CHANNELS, _BAND, _FIRST_PART, _SCAN, _COLOUR, _SLOTS, _MCU_COLUMNS, _MCUS, _RESTART, _INTERVALS,
    _HUFFMAN, _PERIOD, _MCU_LEFT, _MCU_TOP, _MCU_RIGHT, _MCU_BOTTOM, _SEGMENT_COUNT, _SEGMENTS, _POINT_COUNT, _WALKED,
    _TILE_COUNT, _COMPONENT_AT,
) = map(
    _at,
    (
        "file", "size", "channels", "band", "first_part", "scan", "colour", "slots", "mcu_columns", "mcus", "restart",
        "intervals", "huffman", "period", "mcu_left", "mcu_top", "mcu_right", "mcu_bottom", "segment_count", "segments",
        "point_count", "walked", "tile_count", "components",
    ),
)  # fmt: skip

_COUNTED = tuple(
    (LAUNCHES.index(f"jpeg_{kernel}"), _at(f"first_{field}"))
    for kernel, field in (
        *(("count", "tile"), ("synchronise", "span"), ("points", "point"), ("segments", "segment")),
        *(("transform", "group"), ("pixels", "pixel")),
        ("unpack", "row"),
    )
)
"""Kernels (positions in ``LAUNCHES``) whose number of blocks differs between pictures, and the field of a picture's
first block."""
_OWN = tuple(_at(name) for name in PIECES if name not in PLANES)
_STATE, _POINTS = PIECES.index("state"), PIECES.index("points")


@njit
def _ceil(value: Any, divisor: Any) -> Any:
    return -(-value // divisor)


@njit
def _put(words: Any, at: Any, value: Any) -> None:
    """Write a place of 64 bits to two words."""
    words[at], words[at + 1] = np.int32(value & 0xFFFFFFFF), np.int32(value >> 32)


@njit
def _scan(header: Any, words: Any, in_mcu: Any) -> None:
    """Describe the stream (T.81 A.2) and its tables; fills ``in_mcu`` with each component's blocks in an MCU."""
    words[_SCAN], words[_COLOUR] = header[hd.SCAN], header[hd.COLOUR]
    slots, is_shared = 0, True
    for c in range(_COMPONENTS):
        fields, own = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], words[_COMPONENT_AT + _OF_COMPONENT * c :]
        own[_H], own[_V] = fields[hd.H_SAMP], fields[hd.V_SAMP]
        in_mcu[c] = fields[hd.H_SAMP] * fields[hd.V_SAMP]  # 0 for components that a grey picture lacks
        own[_SLOT], own[_QUANT] = slots, header[hd.QUANT_AT + fields[hd.QUANT]]
        slots += in_mcu[c]
    columns = _ceil(header[hd.WIDTH], 8 * header[hd.H_MAX])
    mcus = columns * _ceil(header[hd.HEIGHT], 8 * header[hd.V_MAX])
    restart = header[hd.RESTART] if header[hd.RESTART] > 0 else mcus
    words[_SLOTS], words[_MCU_COLUMNS], words[_MCUS] = slots, columns, mcus
    words[_RESTART], words[_INTERVALS] = restart, _ceil(mcus, restart)
    for kind in range(len(_TABLE_FIELDS)):
        field, packed = _TABLE_FIELDS[kind]
        numbers = (np.int64(0), np.int64(0), np.int64(0))
        for c in range(_COMPONENTS):
            table = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + field]
            first = c  # components with the same table share the first one's
            for before in range(c - 1, -1, -1):
                if header[hd.COMPONENT + hd.COMPONENT_FIELDS * before + field] == table:
                    first = before
            number = np.int64(_COMPONENTS * kind + first)
            numbers = (
                number if c == 0 else numbers[0],
                number if c == 1 else numbers[1],
                number if c == 2 else numbers[2],
            )
            if in_mcu[c] > 0:
                words[_HUFFMAN + number] = header[hd.HUFFMAN_AT + table]
                is_shared &= first == 0
        value, one, two = np.int64(0), in_mcu[0], in_mcu[0] + in_mcu[1]
        for slot in range(hd.MAX_BLOCKS_IN_MCU):
            owner = numbers[0] if slot < one else (numbers[1] if slot < two else numbers[2])
            value |= owner << 3 * slot
        words[packed] = np.int32(value)
    words[_PERIOD] = 1 if is_shared else slots


@njit
def _region(region: Any, words: Any, in_mcu: Any, needed: Any) -> tuple[Any, Any]:
    """Describe the needed part of each component, and of the MCUs; fills ``needed`` with each component's blocks.

    Returns the number of groups of blocks, and of rows of blocks.
    """
    groups, rows = np.int64(0), np.int64(0)
    left, top, right, bottom = np.int64(1) << 31, np.int64(1) << 31, np.int64(0), np.int64(0)
    for c in range(_COMPONENTS):
        needed[c] = 0
        own = words[_COMPONENT_AT + _OF_COMPONENT * c :]
        own[_FIRST_GROUP] = groups
        if in_mcu[c] == 0:
            continue
        line = region[c]
        for field, column in _REGION:
            own[field] = line[column]
        across, down = line[lo.BLOCK_RIGHT] - line[lo.BLOCK_LEFT], line[lo.BLOCK_BOTTOM] - line[lo.BLOCK_TOP]
        own[_STRIDE] = 8 * across
        needed[c] = across * down
        groups += _ceil(needed[c], _GROUP)
        rows += down
        h, v = np.int64(own[_H]), np.int64(own[_V])
        left, top = min(left, line[lo.BLOCK_LEFT] // h), min(top, line[lo.BLOCK_TOP] // v)
        right, bottom = max(right, _ceil(line[lo.BLOCK_RIGHT], h)), max(bottom, _ceil(line[lo.BLOCK_BOTTOM], v))
    words[_MCU_LEFT], words[_MCU_TOP], words[_MCU_RIGHT], words[_MCU_BOTTOM] = left, top, right, bottom
    return groups, rows


@njit
def lay_out_files(
    headers: Any, regions: Any, files: Any, boxes: Any, known: Any, pictures: Any, blocks: Any, offsets: Any,
    sizes: Any, ends: Any, scratch: Any,
) -> int:  # fmt: skip
    """Compute ``layout.lay_out``; return the bytes of scratch memory.

    Args:
        files: int64 [n, 5]: start, size, channels, MCU rows of a part, first part. known: int64 [n, 3]: the first
            segment, the number of segments, whether an index is to be made. scratch: int64 [6], working memory.
        pictures: int32 [n, words], zero. blocks: int64 [LAUNCHES, n]. offsets, sizes: int64 [PIECES, n]. ends: int64
            [PIECES], where each kind begins.
    """
    in_mcu, needed = scratch[:3], scratch[3:]
    for n in range(len(headers)):
        header, words = headers[n], pictures[n]
        size, is_file = files[n, 1], files[n, 3] == 0
        _put(words, _FILE, np.int64(_FILES) << _SHIFT | files[n, 0])
        words[_SIZE], words[_CHANNELS], words[_BAND], words[_FIRST_PART] = size, files[n, 2], files[n, 3], files[n, 4]
        for k in range(4):
            words[_BOX[k]] = boxes[n, k]
        _scan(header, words, in_mcu)
        groups, rows = _region(regions[n], words, in_mcu, needed)

        mcus, slots = np.int64(words[_MCUS]), np.int64(words[_SLOTS])
        wanted, counts = known[n, 2] != 0, known[n, 1]
        words[_SEGMENT_COUNT] = counts
        if counts > 0:
            _put(words, _SEGMENTS, np.int64(_UPLOAD) << _SHIFT | known[n, 0] * _SEGMENT_SIZE)
        points = point_up_to(header, mcus - 1) + 1 if wanted else 0
        words[_POINT_COUNT] = points
        for k in range(len(_PLACING)):
            words[_PLACING[k]] = header[hd.LINE + k] if wanted else 0
        words[_WALKED] = mcus if wanted else min(np.int64(words[_MCU_BOTTOM]) * words[_MCU_COLUMNS], mcus)

        unknown = is_file and counts == 0  # without an index it is decoded from its beginning
        stream = size - header[hd.SCAN]  # an upper bound
        tiles = _ceil(size - header[hd.SCAN] // _SPAN * _SPAN, _SPAN * _THREADS) if unknown else 0
        spans = _ceil(8 * stream, _SUBSEQUENCE * _THREADS) if unknown else 0
        words[_TILE_COUNT] = tiles
        area = boxes[n, 2] * boxes[n, 3]
        taken = (
            tiles, np.int64(unknown), tiles, np.int64(is_file), spans, np.int64(unknown), spans,
            _COMPONENTS * np.int64(unknown), _ceil(points + np.int64(points > 0), _THREADS), _ceil(counts, _THREADS),
            groups if is_file else 0, 0 if is_file else rows, _ceil(area, _PIXELS * _THREADS),
        )  # fmt: skip
        for k in range(len(LAUNCHES)):
            blocks[k, n] = taken[k]

        mcus_needed = (words[_MCU_RIGHT] - words[_MCU_LEFT]) * np.int64(words[_MCU_BOTTOM] - words[_MCU_TOP])
        room = (
            stream + _AHEAD if unknown else 0, _TILE_SIZE * tiles, 4 * np.int64(words[_INTERVALS]) if unknown else 0,
            _SPAN_SIZE * _THREADS * spans, _TABLES_SIZE if is_file else 0,
            2 * _THREADS * tiles if points > 0 else 0, 4 * mcus * slots if unknown else 0,
            2 * _BLOCK * mcus_needed * slots if is_file else 0, _STATE_SIZE,
            _POINT_SIZE * (points + 1) if points > 0 else 0, _ceil(area, _PIXELS) * _PIXELS * files[n, 2],
            _BLOCK * needed[0], _BLOCK * needed[1], _BLOCK * needed[2],
        )  # fmt: skip
        for k in range(len(PIECES)):
            sizes[k, n] = room[k]

    for k in range(len(_COUNTED)):
        kernel, field = _COUNTED[k]
        first = np.int64(0)
        for n in range(len(headers)):
            pictures[n, field] = first
            first += blocks[kernel, n]

    end = np.int64(0)
    for k in range(len(PIECES)):  # kind by kind, with a gap behind each; states and points without gaps
        ends[k] = end
        for n in range(len(headers)):
            offsets[k, n] = end
            size = sizes[k, n]
            if size > 0:
                at = _OWN[k] if k < len(_OWN) else _COMPONENT_AT + _OF_COMPONENT * (k - len(_OWN)) + _PLANE
                _put(pictures[n], at, np.int64(_SCRATCH) << _SHIFT | end)
            end += size if k in (_STATE, _POINTS) else (size // _ALIGNED + 2) * _ALIGNED
        end = _ceil(end, _ALIGNED) * _ALIGNED
    return int(end)
