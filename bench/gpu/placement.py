"""``python -m bench.gpu.placement``: what it would bring to place a stream index's points by bits instead of by MCUs.

Needs no GPU. For training crops of photos it makes the segments that ``jpeg_segments`` would decode: each from a point
to the next one, or to the last MCU needed before it. The kernel takes as long as its longest segment, so its time is
predicted from the symbols of that. Every placement has the bytes that an index has now; a point placed by bits takes
``MORE`` bits more, which say how many MCUs it is behind the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from accel.cli.arguments import command
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from accel.codec.jpeg import header as parsing
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from bench.gpu.setting import Photo, photos
from bench.machine import parser, write

MORE = 6
WARP = 32

Places = npt.NDArray[np.int64]


class Stream(NamedTuple):
    """A photo's scan: by MCU, and behind the last one, the bits and the symbols before it; and its header."""

    bits: Places
    symbols: Places
    header: npt.NDArray[np.int64]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of MCUs."""
        height, width = int(self.header[hd.HEIGHT]), int(self.header[hd.WIDTH])
        return -(-height // (8 * int(self.header[hd.V_MAX]))), -(-width // (8 * int(self.header[hd.H_MAX])))


def stream(data: bytes) -> Stream | None:
    """Walk a file's scan; None for one that has no index, or restart intervals."""
    header, file = np.zeros(hd.HEADER_SIZE, np.int64), np.frombuffer(data, np.uint8)
    if not parsing.parse(file, header) or not header[hd.INDEX_BYTES] or header[hd.RESTART]:
        return None
    found = Stream(np.zeros(0, np.int64), np.zeros(0, np.int64), header)
    tables, blocks = [], []
    for c in range(header[hd.COMPONENTS]):
        own = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :][: hd.COMPONENT_FIELDS]
        blocks += [c] * int(own[hd.H_SAMP] * own[hd.V_SAMP])
        tables += [_codes(data, int(header[hd.HUFFMAN_AT + own[kind]])) for kind in (hd.DC_TABLE, hd.AC_TABLE)]
    rows, columns = found.size
    walked = np.zeros((2, rows * columns + 1), np.int64)
    _walk(file, int(header[hd.SCAN]), np.stack(tables), np.array(blocks), walked)
    return found._replace(bits=walked[0], symbols=walked[1])


def _codes(data: bytes, at: int) -> npt.NDArray[np.uint16]:
    """By the next 16 bits: 256 times the symbol, plus the length of its code."""
    found, counts, first, symbol = np.zeros(1 << 16, np.uint16), data[at : at + 16], 0, at + 16
    for length, count in enumerate(counts, 1):
        for _ in range(count):
            last = first + (1 << (16 - length))
            found[first:last] = data[symbol] << 8 | length
            first, symbol = last, symbol + 1
    return found


@njit  # type: ignore[untyped-decorator]
def _walk(data: Any, at: Any, tables: Any, blocks: Any, walked: Any) -> None:
    window, valid, used, symbols = 0, 0, 0, 0
    for mcu in range(walked.shape[1]):
        walked[0, mcu], walked[1, mcu] = used, symbols
        if mcu == walked.shape[1] - 1:
            return
        for component in blocks:
            k = 0
            while k < 64:
                while valid <= 32:  # a code and its value take at most 27 bits
                    byte = data[at] if at < len(data) else 0
                    window, valid, at = (window << 8 | byte) & 0xFFFFFFFFFFFF, valid + 8, at + 1
                    if byte == 0xFF and at < len(data) and data[at] == 0:
                        at += 1
                code = tables[2 * component + (k > 0), window >> (valid - 16) & 0xFFFF]
                length, run, size = code & 255, code >> 12, code >> 8 & 15
                k = 1 if k == 0 else k + run + 1 if size or run == 15 else 64
                valid, used, symbols = valid - length - size, used + length + size, symbols + 1


def by_mcus(scan: Stream) -> Places:
    """The MCUs that points are before, as they are now."""
    header, (rows, columns) = scan.header, scan.size
    line, k = header[hd.LINE], np.arange(header[hd.POINTS_IN_LINE])
    starts = np.arange(0, rows * columns, line)
    found: Places = (starts[:, None] + (k * (header[hd.STEP] + k * header[hd.GROWTH]) >> 8)).reshape(-1)
    return found[found < rows * columns]


def by_bits(scan: Stream) -> Places:
    """As many points as the same bytes have room for, with about equally many bits between them."""
    group = 3 + scan.header[hd.COMPONENTS] + (((ix.GROUP - 1) * (scan.header[hd.POINT_BITS] + MORE) + 15) >> 4)
    room = scan.header[hd.INDEX_BYTES] // 2 - ix.POINTS - ix.SLACK
    marks = np.linspace(0, scan.bits[-1], int(room * ix.GROUP / group), endpoint=False)
    return np.unique(np.searchsorted(scan.bits, marks, side="right") - 1)


PLACEMENTS: dict[str, Callable[[Stream], Places]] = {"by MCUs, as now": by_mcus, "by bits": by_bits}


def segments(scan: Stream, points: Places, box: tuple[int, int, int, int]) -> tuple[Places, Places]:
    """The bits and the symbols of the segments for a crop, with the pixel around it that chroma needs."""
    rows, columns = scan.size
    top, left, height, width = box
    tall, wide = 8 * int(scan.header[hd.V_MAX]), 8 * int(scan.header[hd.H_MAX])
    ends, found = np.append(points[1:], rows * columns), dict[int, int]()
    for row in range(max(top - 1, 0) // tall, min((top + height) // tall, rows - 1) + 1):
        first, last = (row * columns + min(max(x, 0) // wide, columns - 1) for x in (left - 1, left + width))
        number = int(np.searchsorted(points, first, side="right")) - 1
        while number < len(points) and points[number] <= last:
            found[number] = max(found.get(number, 0), min(int(ends[number]), last + 1))
            number += 1
    begin, end = points[list(found)], np.array(list(found.values()))
    return scan.bits[end] - scan.bits[begin], scan.symbols[end] - scan.symbols[begin]


def measured(batch: Sequence[Photo]) -> dict[str, Any]:
    """Figures of every placement, over a batch; and the longest segment's symbols by bits, of those by MCUs."""
    known = {photo.name: stream(photo.data) for photo in batch}
    found: dict[str, Any] = {}
    for name, place in PLACEMENTS.items():
        bits, symbols, steps = list[Places](), list[Places](), 0
        for photo in batch:
            scan = known[photo.name]
            if scan is not None and photo.draw.box is not None:
                some = segments(scan, place(scan), photo.draw.box)
                bits, symbols = [*bits, some[0]], [*symbols, some[1]]
                steps += int(np.sort(some[1])[::-1][::WARP].sum())  # a warp takes as long as its longest segment
        each, longest = np.concatenate(bits), [int(some.max()) for some in symbols]
        found[name] = {
            "segments": len(each),
            "bits, longest": int(each.max()),
            "bits, mean": float(each.mean()),
            "symbols, longest": max(longest),
            "symbols, longest of a photo, median": float(np.median(longest)),
            "symbols, all": int(sum(some.sum() for some in symbols)),
            "warps' steps": steps,
        }
    now, then = (each["symbols, longest"] for each in found.values())
    return {"batch": len(batch), "indexed": len(bits), "placements": found, "longest by now's": then / now}


@command("gpu.placement")
def main(argv: Sequence[str] | None = None) -> int:
    options = parser("bench.gpu.placement", str(__doc__).partition("\n")[0], out="placement.json", rounds=1, images=512)
    args = options.parse_args(argv)
    with folder(args.data) as (root, name):
        found = measured(photos(open_folder(root).files, args.images))
    rows = [(place, *(f"{value:.0f}" for value in each.values())) for place, each in found["placements"].items()]
    show(Table("", ("points", *next(iter(found["placements"].values()))), rows))
    write(args.out, {"data": name, **found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
