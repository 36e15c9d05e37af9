"""A batch as finished work: everything that needs no device, computed by a DataLoader's worker or in this process.

The device gets one memory: files, behind them a *program* of descriptors, their owners, tables, and pixels that the
host decodes, and behind that working memory. Addresses in the program are places (``descriptors``) in four regions.
``Section`` lists what finished work consists of: the program and which of its words are places, where the files that
the decoder takes lie, the launches in order, and what the host wants to know afterwards. ``execution`` runs it. Nothing
in it depends on the device, so a worker sends it as it is (``processes.sent_files``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda import columns
from accel.backends.cuda.compile import KERNELS
from accel.backends.cuda.descriptors import COEFFICIENT_JOB, PASS, offset_of, place
from accel.backends.cuda.jpeg import requests
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES
from accel.backends.cuda.jpeg.described import describe
from accel.backends.cuda.jpeg.layout import PICTURE, PIXELS, PictureBatch
from accel.backends.cuda.jpeg.requests import Chosen
from accel.backends.cuda.lowering import schedule_of, sent_bytes
from accel.backends.cuda.regions import ALIGNED, Region
from accel.backends.cuda.schedule import Bytes, Schedule, filled, placed
from accel.codec.engines import Box
from accel.codec.jpeg import SOURCES
from accel.codec.jpeg import header_fields as hd
from accel.planning.plan import Plan
from accel.recipes.arrived import Ahead
from accel.recipes.options import Options
from accel.recipes.sources import Files, Numbers
from accel.system.memory import Scratch
from accel.system.native import units

_NUMBERS = {kernel: number for number, kernel in enumerate(KERNELS)}

UNIT = units.Unit("upload", "backends/cuda/fill_upload.py", "backends/cuda/regions.py", *SOURCES, seconds=1)
_MODULE = "backends.cuda.fill_upload"
_FILL = "u1[1] i8[1] i8[2] i8[2] u1[1] i4[1] i8[1] u1[1]w u8[2]w"
fill_upload = UNIT.function(_MODULE, "fill_upload", _FILL)

Arrays = list[npt.NDArray[Any]]


class Section(IntEnum):
    """The arrays of a batch of n images, of which the device's decoder takes k (in its own order)."""

    SUMMARY = 0  # int64: see ``Summary``
    LAUNCHES = 1  # int64 [launches, 4]: kernel, blocks, offsets of items and owners in the program
    PIECES = 2  # int64 [k, 2]: offset (also on the device) and bytes of each file that the decoder takes
    PROGRAM = 3  # uint8
    FIXUPS = 4  # int32: which 64-bit words of the program are places
    HOLES = 5  # int64 [n - k, 2]: images that the host decodes: number, offset in the program
    ACCEPTED = 6  # int64 [k]: the images that the decoder takes
    POINTS = 7  # int64 [2, k]: offsets of the points of indexes in the report, and their bytes
    KNOWN = 8  # int64 [k, 5]: see ``index.Known.table``
    HEADERS = 9  # int64 [k, HEADER_SIZE], if any indexes are to be made
    BYTES = 10  # of a worker: int64 [n], the memory that each image takes on the device
    BOXES = 11  # of a worker: int64 [n - k, 5], the regions of images that the host decodes, and their channels


_COLUMNS = {Section.LAUNCHES: 4, Section.PIECES: 2, Section.HOLES: 2, Section.HEADERS: hd.HEADER_SIZE, Section.BOXES: 5}


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
    launches: int
    decoded: int  # images that the decoder takes
    holes: int  # images that the host decodes
    indexed: int  # files that are decoded by their index
    misfits: int  # files whose index was another file's
    wanted: int  # files whose index is to be made
    taken: int = 0  # of a worker: all memory that the batch takes on the device, with results


class Finished:
    """Finished work, as the sections' memory, and the memory in which its files lie.

    Attributes:
        batch, schedule: what it was made of; None if a worker has made it.
    """

    def __init__(
        self,
        part: Callable[[int], npt.NDArray[Any]],
        files: Bytes,
        batch: PictureBatch | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self._part, self.files, self.batch, self.schedule = part, files, batch, schedule
        self.summary = Summary(*self[Section.SUMMARY].tolist())

    @classmethod
    def of(cls, ahead: Ahead) -> Finished:
        """The work that a worker has sent."""
        return cls(ahead.part, ahead.slot[ahead.files :])

    def holes(self) -> dict[int, tuple[int, Box]]:
        """Of a worker: the channels and the boxes of images that the host decodes, by their numbers."""
        numbers, boxes = self[Section.HOLES][:, 0].tolist(), self[Section.BOXES].tolist()
        return {number: (channels, (a, b, c, d)) for number, (a, b, c, d, channels) in zip(numbers, boxes, strict=True)}

    def __getitem__(self, section: Section) -> npt.NDArray[Any]:
        part = self._part(section)
        if section == Section.PROGRAM:
            return part
        found = part.view(np.int32 if section == Section.FIXUPS else np.int64)
        return found.reshape(-1, _COLUMNS[section]) if section in _COLUMNS else found


def room(plan: Plan, files: Files) -> int:
    """An estimate of the bytes of ``parts``, seldom exceeded."""
    (heights, widths, _), (_, _, height, width) = files.sizes(), plan.shape
    tiles = (height // 8 + 1) * (width // 8 + 1)
    each = PICTURE.itemsize + PASS.itemsize + 2 * COEFFICIENT_JOB.itemsize + 8 * hd.HEADER_SIZE + 1024
    size = len(files) * (each + 4 * tiles + 4 * (height + width)) + (1 << 15)
    boxes, channels = wanted_of(plan)
    if not columns.accepts(plan):
        size += sum(map(sent_bytes, plan.decodes))
    box, bytes_of = boxes[:, 2] * boxes[:, 3], files.places[:, 1]
    blocks = bytes_of // 1024 + (box + 64 * (boxes[:, 2] + boxes[:, 3] + 32)) // 256 + heights * widths // 4096
    return int(size + 4 * blocks.sum() + bytes_of.sum() // 6 + (channels * box * ~files.plain()).sum())


def wanted_of(plan: Plan) -> tuple[Numbers, Numbers]:
    """The boxes that a plan decodes, and their channels: int64 [n, 4] and [n]."""
    if columns.accepts(plan):
        return plan.columns.boxes, np.full(len(plan.columns.boxes), plan.columns.channels)
    boxes = np.array([each.box for each in plan.decodes], np.int64).reshape(-1, 4)
    return boxes, np.array([each.channels for each in plan.decodes], np.int64)


def parts(plan: Plan, files: Files, options: Options, sizes: Numbers) -> Arrays:
    """The arrays for a plan of files (see ``Section``); none if it decodes no file. ``sizes``: ``Section.BYTES``."""
    lower: Any = columns.schedule_of if columns.accepts(plan) else schedule_of
    boxes, channels = wanted_of(plan)
    made = finish(
        len(files),
        requests.together(files, boxes, channels, options, _none_apart),
        partial(lower, plan),
        lambda report, size: _program.take(size),
    )
    if not made.summary.decoded:
        return []
    summary = made.summary._replace(taken=int(sizes.sum()))
    boxes = np.column_stack([boxes, channels])[made[Section.HOLES][:, 0]]
    return [np.array(summary, np.int64), *map(made._part, range(1, Section.BYTES)), sizes, boxes]


def finish(
    count: int,
    chosen: Chosen | None,
    lower: Callable[[npt.NDArray[np.uint64]], Schedule],
    take: Callable[[int, int], Bytes],
    fill: Callable[[Sequence[Callable[[], None]]], object] | None = None,
) -> Finished:
    """Finish the work for a plan of ``count`` sources.

    Args:
        chosen: the files for the device's decoder.
        lower: makes the schedule, from the places of the sources' pixels; 0 for one whose pixels the host sends.
        take: returns the memory for a program, given the bytes of the report and its own.
        fill: calls functions that fill in what is sent, in any order; None: one after another.
    """
    found = None if chosen is None or not len(chosen.numbers) else describe(*chosen[1:])
    batch, numbers, known, headers = None, _NO_NUMBERS, _NO_KNOWN, _NO_HEADERS
    indexed = wanted = misfits = 0
    sources = np.zeros(count, np.uint64)
    if chosen is not None and found is not None and found.batch is not None:
        batch, numbers, known = found.batch, chosen.numbers[found.accepted], found.known.table[found.accepted]
        _, indexed, wanted, misfits, _ = (known != 0).sum(0).tolist()  # in the order of ``index``
        headers = found.headers[found.accepted] if wanted else headers
        sources[numbers] = place(Region.DECODED, 0) + batch.memory[0, PIXELS]
    schedule = lower(sources)
    launches = placed(schedule)

    bytes_of, totals, scratch, size = [0], [0] * len(LAUNCHES), 0, 0
    (report, report_size), cleared, pieces, points = (0, 0), (0, 0), _NO_PIECES, _NO_PIECES.T
    if chosen is not None and found is not None and batch is not None:
        totals, scratch, cleared = batch.totals, -(-batch.scratch // ALIGNED) * ALIGNED, batch.cleared
        bytes_of = [batch.segments.nbytes, *[4 * total for total in totals], batch.pictures.nbytes]
        report, report_size = batch.report()
        points = batch.points() if wanted else points
        pieces = found.files[found.good, :2]
        size = int((chosen.starts + chosen.sizes).max())
    *offsets, behind = accumulate([-(-each // ALIGNED) * ALIGNED for each in bytes_of], initial=0)
    program = take(report_size, -(-(behind + schedule.upload.size) // 8) * 8)
    upload, words = program[behind:], program.view(np.uint64)
    if fill is not None:
        fill([partial(filled, upload, each) for each in schedule.sent])
    else:
        for sent in schedule.sent:
            filled(upload, sent)
    listed: list[tuple[int, int, int, int]] = []
    counts = [(launch.count, launch.dtype) for launch, *_ in launches] + [(len(numbers), PICTURE)]
    fixups, fixed = np.empty(sum([count * len(_words(dtype)) for count, dtype in counts]), np.int32), 0
    if batch is not None:
        segments, *owners, pictures = offsets
        program[segments : segments + batch.segments.nbytes] = batch.segments.view(np.uint8)
        given = np.array(owners, np.int64), _words(PICTURE), segments, 0, words, fixups, 0
        fixed = columns.write_items(batch.pictures.view(np.uint8), pictures, batch.each, *given)
        rows = zip(LAUNCHES, totals, owners, strict=True)
        listed = [(_NUMBERS[kernel], total, pictures, owner) for kernel, total, owner in rows if total]
    for launch, items, owner in launches:
        blocks, to = np.array([launch.blocks], np.int64), np.array([behind + owner], np.int64)
        given = to, _words(launch.dtype), behind, scratch, words, fixups, fixed
        fixed = columns.write_items(launch.items(), behind + items, blocks, *given)
        listed.append((_NUMBERS[launch.kernel], launch.total, behind + items, behind + owner))
    on_host = (sources == 0).nonzero()[0].tolist() if schedule.pixels else []
    holes = [(number, behind + offset_of(schedule.pixels[number])) for number in on_host]
    begin = -(-size // ALIGNED) * ALIGNED
    working = -(-(begin + len(program)) // _APART) * _APART
    summary = Summary(
        files=size,
        behind=begin,
        sent=begin + len(program),
        working=working,
        memory=working + scratch + schedule.scratch.size,
        cleared=cleared[0],
        cleared_end=cleared[1],
        report=report,
        report_size=report_size,
        launches=len(listed),
        decoded=len(numbers),
        holes=len(holes),
        indexed=indexed,
        misfits=misfits,
        wanted=wanted,
    )
    arrays: Arrays = [
        np.array(summary, np.int64),
        np.array(listed, np.int64).reshape(-1, 4),
        pieces,
        program,
        fixups,
        np.array(holes, np.int64).reshape(-1, 2),
        *(numbers, points, known, headers),
    ]
    files = np.zeros(0, np.uint8) if chosen is None else chosen.content
    return Finished(lambda number: arrays[number], files, batch, schedule)


_NO_NUMBERS, _NO_PIECES, _NO_KNOWN, _NO_HEADERS = (
    np.zeros(shape, np.int64) for shape in ((0,), (0, 2), (0, 5), (0, hd.HEADER_SIZE))
)


def _none_apart(contents: Sequence[Any]) -> Any:
    raise AssertionError("a worker's files lie in one memory")


_program = Scratch()
_APART = 512  # bytes that the parts of the device's memory are aligned to


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
