"""A batch of files as finished work: the part that a DataLoader's worker computes, without a device.

The device gets one upload: files and a *program* of descriptors, their owners and tables, in which addresses are places
(``descriptors``) in four regions. ``Section`` lists what is sent (``processes.sent_files``): the program and which of
its words are places, where the files that the decoder takes lie, the launches in order, and what the host wants to know
afterwards. ``ready`` runs it. Nothing in it depends on the device, so a slot's parts can be used where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda import columns
from accel.backends.cuda.compile import KERNELS
from accel.backends.cuda.descriptors import COEFFICIENT_JOB, PASS, Region, offset_of, place
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES
from accel.backends.cuda.jpeg.described import ALIGNED, Described, describe, places
from accel.backends.cuda.jpeg.layout import PICTURE
from accel.backends.cuda.jpeg.requests import device_bytes_of, indexes_of, plain
from accel.backends.cuda.schedule import filled, placed
from accel.codec.jpeg import SOURCES
from accel.codec.jpeg import header_fields as hd
from accel.planning.columns import ColumnPlan
from accel.recipes.options import Options
from accel.recipes.sources import Files, Numbers
from accel.system.memory import Scratch
from accel.system.native import units

_NUMBERS = {kernel: number for number, kernel in enumerate(KERNELS)}

UNIT = units.Unit("upload", "backends/cuda/fill_upload.py", *SOURCES, seconds=1)
_MODULE = "backends.cuda.fill_upload"
_FILL = "u1[1] int int int int int u1[1]w int u8[2]w"
fill_upload = UNIT.function(_MODULE, "fill_upload", _FILL)
_bind = UNIT.function(_MODULE, "bind_words", "u8[1]w i4[1] int int u8[1] int")

Arrays = list[npt.NDArray[Any]]


class Section(IntEnum):
    """The arrays sent for a batch of n images, of which the device's decoder takes k (in its own order)."""

    SUMMARY = 0  # int64: see ``Summary``
    LAUNCHES = 1  # int64 [launches, 4]: kernel, blocks, offsets of items and owners in the program
    PIECES = 2  # int64 [k, 2]: offset (also on the device) and bytes of each file that the decoder takes
    PROGRAM = 3  # uint8
    FIXUPS = 4  # int32: which 64-bit words of the program are places
    BYTES = 5  # int64 [n]: the memory that each image takes on the device
    HOLES = 6  # int64 [n - k, 6]: images that the host decodes: number, offset in the program, box (4)
    ACCEPTED = 7  # int64 [k]: the images that the decoder takes
    POINTS = 8  # int64 [2, k]: offsets of the points of indexes in the report, and their bytes
    KNOWN = 9  # int64 [4, k]: counts of index segments, misfits, wanted indexes, digests (``index.Known``)
    HEADERS = 10  # int64 [k, HEADER_SIZE], if any indexes are to be made


class Summary(NamedTuple):
    """Numbers of a batch. The device's memory has the files, then the program, then working memory."""

    files: int  # bytes of files
    behind: int  # where the program begins
    sent: int  # bytes of both
    working: int  # where the working memory begins
    memory: int  # bytes of all that
    cleared: int  # where in the working memory the part begins that must be zero
    cleared_end: int
    report: int  # where in the working memory the part begins that the host reads
    report_size: int
    in_place: int  # 1 if the decoder takes at least half of the files' bytes, so that all are sent from here
    launches: int
    decoded: int  # images that the decoder takes
    holes: int  # images that the host decodes
    indexed: int  # files that are decoded by their index
    misfits: int  # files whose index was another file's
    wanted: int  # files whose index is to be made
    taken: int  # all memory that the batch takes on the device, with results


def room(plan: ColumnPlan) -> int:
    """An estimate of the bytes of ``parts``, seldom exceeded."""
    sizes = _files(plan).places[:, 1]
    found, (count, _, height, width) = plan.columns, plan.shape
    heights, widths, _ = plan.rows.sizes()
    box = found.boxes[:, 2] * found.boxes[:, 3]
    blocks = sizes // 1024 + (box + 64 * (found.boxes[:, 2] + found.boxes[:, 3] + 32)) // 256 + heights * widths // 4096
    tiles = (height // 8 + 1) * (width // 8 + 1)
    each = PICTURE.itemsize + PASS.itemsize + 2 * COEFFICIENT_JOB.itemsize + 8 * hd.HEADER_SIZE + 1024
    each += 4 * tiles + 4 * (height + width)
    return int(
        count * each + 4 * blocks.sum() + sizes.sum() // 6 + found.channels * (box * ~plain(plan.rows)).sum()
    ) + (1 << 15)


def parts(plan: ColumnPlan, options: Options) -> Arrays:
    """The arrays for a plan of ``Files`` that ``columns`` accepts (see ``Section``); none if it decodes no file."""
    sources = _files(plan)
    chosen = np.flatnonzero(sources.plain())
    if not len(chosen):
        return []
    starts, sizes = np.ascontiguousarray(sources.places[chosen].T)
    boxes, channels = plan.columns.boxes[chosen], np.full(len(chosen), plan.columns.channels)
    indexes = indexes_of(sources, chosen, options)
    found = describe(sources.content, starts, sizes, boxes, channels, indexes)
    if found.batch is None:
        return []
    taking = columns.device_bytes(plan) + device_bytes_of(plan.rows, plan.columns.boxes, plan.columns.channels)
    batch, numbers = found.batch, chosen[found.accepted]
    addresses = np.zeros(len(sources), np.uint64)
    addresses[numbers] = place(Region.DECODED, 0) + batch.pieces["pixels"][0]
    schedule = columns.schedule_of(plan, addresses)
    launches = placed(schedule)

    decoder = batch.sent()
    offsets, behind = places(np.array([array.nbytes for array in decoder], np.int64))
    program = _program.take(-(-(behind + schedule.upload.size) // 8) * 8)
    upload = program[behind:]
    for each in schedule.sent:
        filled(upload, each)
    for array, start in zip(decoder, offsets.tolist(), strict=True):
        program[start : start + array.nbytes] = array.view(np.uint8)
    segments, *owners, pictures = offsets.tolist()
    pieces, size = np.stack([starts, sizes], 1)[np.sort(found.accepted)], int((starts + sizes).max())
    listed = [
        (_NUMBERS[kernel], int(batch.blocks[kernel].sum()), pictures, owner)
        for kernel, owner in zip(LAUNCHES, owners, strict=True)
        if batch.blocks[kernel].any()
    ]
    fixups = [_fixups(PICTURE, pictures, len(batch.pictures))]
    scratch = -(-batch.scratch // ALIGNED) * ALIGNED
    words = program.view(np.uint64)
    _bind(words, fixups[0], 0, len(fixups[0]), _bases(UPLOAD=segments, SCRATCH=0, FILES=0), 0)
    regions = _bases(UPLOAD=behind, SCRATCH=scratch, RESULT=0)
    regions[Region.DECODED] = place(Region.SCRATCH, 0)
    for launch, items, owner in launches:
        for start, array in ((items, launch.items()), (owner, launch.owners())):
            upload[start : start + array.nbytes] = array.view(np.uint8)
        fixups.append(_fixups(launch.dtype, behind + items, launch.count))
        _bind(words, fixups[-1], 0, len(fixups[-1]), regions, 0)
        listed.append((_NUMBERS[launch.kernel], launch.total, behind + items, behind + owner))
    (report, report_size), points = batch.report()
    known, headers = _known(found)
    on_host = np.flatnonzero(addresses == 0).tolist()
    holes = [(number, behind + offset_of(schedule.pixels[number])) for number in on_host]
    begin = -(-size // ALIGNED) * ALIGNED
    working = -(-(begin + len(program)) // _APART) * _APART
    cleared, cleared_end = batch.cleared
    summary = Summary(
        files=size,
        behind=begin,
        sent=begin + len(program),
        working=working,
        memory=working + scratch + schedule.scratch.size,
        cleared=cleared,
        cleared_end=cleared_end,
        report=report,
        report_size=report_size,
        in_place=int(2 * int(pieces[:, 1].sum()) >= size),
        launches=len(listed),
        decoded=len(numbers),
        holes=len(holes),
        indexed=int(np.count_nonzero(known[0])),
        misfits=int(np.count_nonzero(known[1])),
        wanted=int(np.count_nonzero(known[2])),
        taken=int(taking.sum()),
    )
    return [
        np.array(summary, np.int64),
        np.array(listed, np.int64),
        pieces,
        program,
        np.concatenate(fixups),
        taking,
        np.column_stack([np.array(holes, np.int64).reshape(-1, 2), plan.columns.boxes[on_host]]),
        numbers,
        np.stack(points),
        known,
        headers,
    ]


def _files(plan: ColumnPlan) -> Files:
    sources = plan.rows.sources
    assert isinstance(sources, Files)
    return sources


_program = Scratch()
_APART = 512  # bytes that the parts of the device's memory are aligned to


def _bases(**offsets: int) -> npt.NDArray[np.uint64]:
    """Bases for ``bind_words`` that move places by these offsets in their regions."""
    bases = np.zeros(len(Region), np.uint64)
    for name, offset in offsets.items():
        bases[Region[name]] = place(Region[name], offset)
    return bases


def _known(found: Described) -> tuple[Numbers, Numbers]:
    known = found.known
    headers = found.headers if known.wanted.any() else found.headers[:0]
    return np.stack([known.counts, known.misfits, known.wanted, known.digests]).astype(np.int64), headers


def _fixups(dtype: np.dtype[Any], start: int, count: int) -> npt.NDArray[np.int32]:
    """The words that are places, in ``count`` structures from the offset ``start`` on."""
    first = start // 8 + np.arange(count) * (dtype.itemsize // 8)
    return (first[:, None] + _words(dtype)).reshape(-1).astype(np.int32)


@cache
def _words(dtype: np.dtype[Any]) -> npt.NDArray[np.int64]:
    assert dtype.itemsize % 8 == 0, dtype

    def offsets(of: np.dtype[Any], at: int) -> list[int]:
        if of.subdtype is not None:
            item, shape = of.subdtype
            return [each for n in range(int(np.prod(shape))) for each in offsets(item, at + n * item.itemsize)]
        if of.names is None:
            return [at // 8] if of == np.uint64 else []
        fields: Mapping[str, Any] = of.fields or {}
        return [each for name in of.names for each in offsets(fields[name][0], at + fields[name][1])]

    return np.array(offsets(dtype, 0), np.int64)
