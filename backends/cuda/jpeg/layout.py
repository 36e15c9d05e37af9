"""Descriptors of a batch and the places of its memory, computed for all of its files at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.declarations import constant, structure
from accel.backends.cuda.descriptors import THREADS, Region, place
from accel.backends.cuda.jpeg.headers import Integers
from accel.backends.cuda.jpeg.index import POINT, SEGMENT, Known
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import layout_fields as lo

PICTURE, STATE = structure("jpeg/picture.h", "Picture"), structure("jpeg/picture.h", "State")
TILE_SIZE, SPAN_SIZE = (structure("jpeg/picture.h", name).itemsize for name in ("Tile", "Span"))
TABLES_SIZE = structure("jpeg/symbols.h", "Tables").itemsize

COMPONENTS, TABLES, BLOCK, GROUP, PIXELS, SUBSEQUENCE, SPAN = (
    constant("jpeg/picture.h", name)
    for name in ("COMPONENTS", "TABLES", "BLOCK", "GROUP", "PIXELS", "SUBSEQUENCE", "SPAN")
)

KERNELS = (
    *("jpeg_count", "jpeg_offsets", "jpeg_unstuff", "jpeg_tables"),
    *("jpeg_synchronise", "jpeg_join", "jpeg_coefficients", "jpeg_dc", "jpeg_points", "jpeg_segments"),
    *("jpeg_transform", "jpeg_pixels"),
)
"""For files, in the order of their launches."""

UNPACK = "jpeg_unpack"
LAUNCHES = (*KERNELS[:-1], UNPACK, KERNELS[-1])
"""For files, and for planes that are kept of some."""

_ALIGNED = 64
_AHEAD = 64  # bytes behind a stream that are padding, or that are looked at in vain

Pieces = dict[str, tuple[Integers, Integers]]
"""Offsets and sizes of every picture's memory of a kind."""


class Batch(NamedTuple):
    """Pictures for the kernels.

    Attributes:
        pictures: PICTURE[n], addresses as places (``..descriptors``).
        blocks: for every kernel how many blocks of threads each picture takes, int64[n].
        scratch: bytes of working memory; ``pieces`` of it by name. States lie side by side, and points behind them.
        segments: SEGMENT[...], of all pictures that have an index; in ``pictures``, its place is in ``Region.UPLOAD``.
        cleared: the part of it that must be zero, a half-open range.
    """

    pictures: npt.NDArray[Any]
    blocks: dict[str, Integers]
    scratch: int
    pieces: Pieces
    segments: npt.NDArray[Any]
    cleared: tuple[int, int]

    def owners(self, kernel: str) -> npt.NDArray[np.int32]:
        """The picture of every block of a kernel."""
        return np.repeat(np.arange(len(self.pictures), dtype=np.int32), self.blocks[kernel])

    def told(self) -> tuple[tuple[int, int], tuple[Integers, Integers]]:
        """Where in the scratch memory the kernels tell the host of the pictures, and how many bytes; in these, offsets
        and sizes of each one's points. States are in front of all points."""
        first, (points, sizes) = int(self.pieces["state"][0][0]), self.pieces["points"]
        return (first, int(points[-1] + sizes[-1]) - first), (points - first, sizes)


def lay_out(
    headers: Integers,
    regions: Integers,
    starts: Integers,
    sizes: Integers,
    boxes: Integers,
    channels: Integers,
    known: Known,
    bands: Integers,
    first_parts: Integers,
) -> Batch:
    """Describe the files, which all are ones that the kernels take.

    Args:
        headers, regions: as ``headers.read`` has them.
        starts, sizes: int64[n], bytes in ``Region.FILES``.
        boxes, channels: int64[n, 4] and int64[n], what is wanted of them.
        known: what indexes say of them.
        bands, first_parts: int64[n], of those that are the parts of planes: MCU rows of a part, the first one's number.
    """
    pictures = np.zeros(len(starts), PICTURE)
    pictures["file"] = place(Region.FILES, 0) + starts
    pictures["size"], pictures["channels"] = sizes, channels
    pictures["band"], pictures["first_part"] = bands, first_parts
    for number, name in enumerate(("top", "left", "height", "width")):
        pictures[name] = boxes[:, number]
    _describe_scan(pictures, headers)
    _describe_region(pictures, regions)
    _describe_points(pictures, headers, known)
    blocks = _blocks(pictures)
    for kernel, field in _COUNTED:
        pictures[f"first_{field}"] = _before(blocks[f"jpeg_{kernel}"])
    pieces, cleared, scratch = _arrange(_sizes(pictures, blocks))
    for name, (offsets, sizes) in pieces.items():
        target = pictures["components"]["plane"][:, int(name[-1])] if name[:-1] == "plane" else pictures[name]
        target[...] = np.where(sizes > 0, place(Region.SCRATCH, 0) + offsets, 0)
    return Batch(pictures, blocks, scratch, pieces, known.segments, cleared)


_COUNTED = (
    *(("count", "tile"), ("synchronise", "span"), ("points", "point"), ("segments", "segment")),
    *(("transform", "group"), ("pixels", "pixel")),
    ("unpack", "row"),
)
"""Kernels whose blocks are those of things that pictures have different numbers of."""


def _describe_scan(pictures: npt.NDArray[Any], headers: Integers) -> None:
    """Describe the stream (T.81 A.2) and its tables."""
    components, every = pictures["components"], np.arange(len(pictures))
    fields = headers[:, hd.COMPONENT : hd.QUANT_AT].reshape(-1, COMPONENTS, hd.COMPONENT_FIELDS)
    pictures["scan"], pictures["colour"] = headers[:, hd.SCAN], headers[:, hd.COLOUR]
    components["h"], components["v"] = fields[..., hd.H_SAMP], fields[..., hd.V_SAMP]
    in_mcu = components["h"] * components["v"]  # 0 for those that a grey picture does not have
    components["slot"] = np.cumsum(in_mcu, 1) - in_mcu
    pictures["slots"] = in_mcu.sum(1)
    pictures["mcu_columns"] = _ceil(headers[:, hd.WIDTH], 8 * headers[:, hd.H_MAX])
    pictures["mcus"] = pictures["mcu_columns"] * _ceil(headers[:, hd.HEIGHT], 8 * headers[:, hd.V_MAX])
    pictures["restart"] = np.where(headers[:, hd.RESTART] > 0, headers[:, hd.RESTART], pictures["mcus"])
    pictures["intervals"] = _ceil(pictures["mcus"], pictures["restart"])
    components["quant"] = headers[every[:, None], hd.QUANT_AT + fields[..., hd.QUANT]]
    for kind, (field, packed) in enumerate(((hd.DC_TABLE, "dc_tables"), (hd.AC_TABLE, "ac_tables"))):
        wanted = fields[..., field]
        same = wanted[:, :, None] == wanted[:, None, :]
        numbers = COMPONENTS * kind + same.argmax(2)  # components share what the first of them has
        for c in range(COMPONENTS):
            used = every[in_mcu[:, c] > 0]
            pictures["huffman"][used, numbers[used, c]] = headers[used, hd.HUFFMAN_AT + wanted[used, c]]
        for slot in range(hd.MAX_BLOCKS_IN_MCU):
            owner = (components["slot"][:, 1:] <= slot).sum(1)
            pictures[packed] |= (numbers[every, owner] << 3 * slot).astype(np.uint32)
    shared = _shared(fields[..., hd.DC_TABLE], in_mcu) & _shared(fields[..., hd.AC_TABLE], in_mcu)
    pictures["period"] = np.where(shared, 1, pictures["slots"])


def _shared(tables: Integers, in_mcu: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether all components of a picture have the same table."""
    same: npt.NDArray[np.bool_] = ((tables == tables[:, :1]) | (in_mcu == 0)).all(1)
    return same


def _describe_region(pictures: npt.NDArray[Any], regions: Integers) -> None:
    """Describe what is needed of each component, and of the MCUs."""
    components = pictures["components"]
    used = components["h"] > 0
    for name, column in (
        *(("upsampling", lo.KIND), ("h_ratio", lo.H_RATIO), ("v_ratio", lo.V_RATIO)),
        *(("columns", lo.COLUMNS), ("rows", lo.ROWS), ("left", lo.BLOCK_LEFT), ("right", lo.BLOCK_RIGHT)),
        *(("top", lo.BLOCK_TOP), ("bottom", lo.BLOCK_BOTTOM)),
    ):
        components[name] = np.where(used, regions[..., column], 0)
    components["stride"] = 8 * (components["right"] - components["left"])
    h, v = np.maximum(components["h"], 1), np.maximum(components["v"], 1)
    most = np.iinfo(np.int32).max
    pictures["mcu_left"] = np.where(used, components["left"] // h, most).min(1)
    pictures["mcu_top"] = np.where(used, components["top"] // v, most).min(1)
    pictures["mcu_right"] = _ceil(components["right"], h).max(1)
    pictures["mcu_bottom"] = _ceil(components["bottom"], v).max(1)
    groups = _ceil(_needed_blocks(components), GROUP)
    components["first_group"] = np.cumsum(groups, 1) - groups


def _describe_points(pictures: npt.NDArray[Any], headers: Integers, known: Known) -> None:
    """Describe what is known of the stream already, and what is to be found out."""
    pictures["segment_count"] = known.counts
    segments = place(Region.UPLOAD, 0) + known.first * SEGMENT.itemsize
    pictures["segments"] = np.where(known.counts > 0, segments, 0)
    pictures["spacing"] = np.where(known.wanted, headers[:, hd.SPACING], 0)
    pictures["point_count"] = np.where(known.wanted, _ceil(pictures["mcus"], np.maximum(pictures["spacing"], 1)), 0)
    seen = np.minimum(pictures["mcu_bottom"] * pictures["mcu_columns"], pictures["mcus"])
    pictures["walked"] = np.where(known.wanted, pictures["mcus"], seen)


def _blocks(pictures: npt.NDArray[Any]) -> dict[str, Integers]:
    """The blocks of threads that each picture takes; sets ``tile_count`` as well."""
    one, (is_file, unknown), components = np.ones(len(pictures), np.int64), _kinds(pictures), pictures["components"]
    behind = pictures["size"] - pictures["scan"] // SPAN * SPAN
    pictures["tile_count"] = tiles = unknown * _ceil(behind, SPAN * THREADS)
    spans = unknown * _ceil(8 * _scan_bytes(pictures), SUBSEQUENCE * THREADS)
    points = _ceil(pictures["point_count"] + (pictures["spacing"] > 0), THREADS)  # and the end
    segments = _ceil(pictures["segment_count"], THREADS)
    groups = is_file * _ceil(_needed_blocks(components), GROUP).sum(1)
    rows = ~is_file * (components["bottom"] - components["top"]).astype(np.int64).sum(1)
    pixels = _ceil(pictures["height"].astype(np.int64) * pictures["width"], PIXELS * THREADS)
    first = tiles, unknown * one, tiles, is_file * one, spans, unknown * one, spans, unknown * COMPONENTS * one
    taken = *first, points, segments, groups, rows, pixels
    return dict(zip(LAUNCHES, taken, strict=True))


def _kinds(pictures: npt.NDArray[Any]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which ones are files, and of these, which ones are decoded from their beginning."""
    is_file = pictures["band"] == 0
    return is_file, is_file & (pictures["segment_count"] == 0)


def _sizes(pictures: npt.NDArray[Any], blocks: dict[str, Integers]) -> dict[str, Integers]:
    """Bytes of every piece of memory of every picture."""
    components, one = pictures["components"], np.ones(len(pictures), np.int64)
    (is_file, unknown), wanted = _kinds(pictures), pictures["spacing"] > 0
    needed = (pictures["mcu_right"] - pictures["mcu_left"]) * (pictures["mcu_bottom"] - pictures["mcu_top"])
    pixels = _ceil(pictures["height"].astype(np.int64) * pictures["width"], PIXELS) * PIXELS
    sizes = {
        "stream": unknown * (_scan_bytes(pictures) + _AHEAD),
        "tiles": TILE_SIZE * blocks["jpeg_count"],
        "edges": unknown * 4 * pictures["intervals"],
        "spans": SPAN_SIZE * THREADS * blocks["jpeg_synchronise"],
        "tables": is_file * TABLES_SIZE * one,
        "kept": wanted * 2 * THREADS * blocks["jpeg_count"],
        "dc": unknown * 4 * one * pictures["mcus"] * pictures["slots"],
        "coefficients": is_file * 2 * BLOCK * one * needed * pictures["slots"],
        "state": STATE.itemsize * one,
        "points": wanted * POINT.itemsize * (pictures["point_count"] + 1),
        "pixels": pixels * pictures["channels"],
    }
    for c in range(COMPONENTS):
        sizes[f"plane{c}"] = BLOCK * _needed_blocks(components[:, c])
    return {name: size.astype(np.int64) for name, size in sizes.items()}


def _arrange(sizes: dict[str, Integers]) -> tuple[Pieces, tuple[int, int], int]:
    """Places of the pieces: kind by kind, with a gap behind each; states and points without gaps."""
    pieces, end = {}, 0
    for name, size in sizes.items():
        taken = size if name in ("state", "points") else (size // _ALIGNED + 2) * _ALIGNED
        pieces[name] = end + _before(taken), size
        end += int(_ceil(taken.sum(), _ALIGNED)) * _ALIGNED
    cleared = int(pieces["coefficients"][0][0]), int(pieces["points"][0][0])
    return pieces, cleared, end


def _scan_bytes(pictures: npt.NDArray[Any]) -> Integers:
    """An upper bound for the bytes of the stream."""
    size: Integers = (pictures["size"] - pictures["scan"]).astype(np.int64)
    return size


def _needed_blocks(components: npt.NDArray[Any]) -> Integers:
    across: Integers = (components["right"] - components["left"]).astype(np.int64)
    needed: Integers = across * (components["bottom"] - components["top"])
    return needed


def _before(values: Integers) -> Integers:
    """The sums of the values before each."""
    sums: Integers = np.cumsum(values) - values
    return sums


def _ceil(values: Any, divisor: Any) -> Any:
    return -(-values // divisor)
