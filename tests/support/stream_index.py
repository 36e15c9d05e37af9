"""Stream indexes as ``accel.codec.jpeg.index_fields`` describes them, read and written in plain Python."""

import functools
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from accel.codec import jpeg
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from tests.support import inside
from tests.support.jpeg import shape

Words = Any
"""An index, uint16[n]."""

Data = bytes | memoryview
Point = tuple[int, ...]
"""The bit, and a DC coefficient for each component."""


def digest(data: Data) -> int:
    """The digest of all bytes of a file, a signed 64-bit number."""
    return int(jpeg.digests(data, [0], [1], np.array([len(data)], np.uint32))[0])


def index_size(data: Data) -> int:
    """The size in bytes of the file's index; 0: it has none."""
    header = inside.scratch().header
    found = jpeg.PREPARE(np.frombuffer(data, np.uint8), header, inside.scratch().layout, True, 0, 0, 0, 0)
    return int(header[hd.INDEX_BYTES]) if found else 0


class Placing(NamedTuple):
    """Which MCUs points are before: the MCUs and the points of a line, and how the points of a line go on."""

    line: int
    points: int
    step: int
    growth: int

    def mcu(self, number: int) -> int:
        """The MCU that a point is before."""
        line, k = divmod(number, self.points)
        return line * self.line + k * (self.step + k * self.growth) // 256


def placing(data: bytes) -> Placing:
    assert index_size(data)
    return Placing(*inside.scratch().header[hd.LINE : hd.GROWTH + 1].tolist())


class Packing(NamedTuple):
    """The bits that a packed point takes: in all, for its place, and for each component's DC coefficient."""

    bits: int
    place: int
    dc: tuple[int, ...]

    @property
    def group(self) -> int:
        """The words of a whole group."""
        return self.words(ix.GROUP)

    def words(self, count: int) -> int:
        """The words of a group of so many points."""
        return 2 + len(self.dc) + -(-(count - 1) * self.bits // 16)


def packing(data: bytes) -> Packing:
    assert index_size(data)
    header = inside.scratch().header.tolist()
    components = header[hd.COMPONENTS]
    found = Packing(header[hd.POINT_BITS], header[hd.PLACE_BITS], tuple(header[hd.DC_BITS : hd.DC_BITS + components]))
    assert found.bits == found.place + sum(found.dc)
    return found


def mcu_columns(data: bytes) -> int:
    """Of files of one component, or with 2 x 2 samples of the first one."""
    _, width, components = shape(data)
    return -(-width // (8 if components == 1 else 16))


def count_of(data: bytes, words: Words) -> int:
    """The number of known points."""
    known, place = int(words[ix.ROWS]) * mcu_columns(data), placing(data)
    return next(number for number in count() if place.mcu(number) >= known)


def _number(words: Words) -> int:
    return int.from_bytes(np.asarray(words, np.uint16).tobytes(), "little")


def unpacked(data: bytes, words: Words) -> list[Point | None]:
    """The known points; None for those that are left out."""
    form, found = packing(data), list[Point | None]()
    for number in range(count_of(data, words)):
        group = words[ix.POINTS + number // ix.GROUP * form.group :]
        if number % ix.GROUP == 0:
            whole = group[: 2 + len(form.dc)]
            before: Point = (_number(whole[:2]), *map(int, whole[2:].view(np.int16)))
            found.append(before)
            continue
        packed = _number(group[2 + len(form.dc) : form.group]) >> (number % ix.GROUP - 1) * form.bits
        packed &= (1 << form.bits) - 1
        if packed == (1 << form.bits) - 1:
            found.append(None)
            continue
        numbers = []
        for width in (form.place, *form.dc):
            numbers.append(packed & (1 << width) - 1)
            packed >>= width
        bit, *changes = numbers
        dc = [old + new - (1 << width - 1) for old, new, width in zip(before[1:], changes, form.dc, strict=True)]
        before = (before[0] + bit, *dc)
        found.append(before)
    return found


def with_points(data: bytes, words: Words, points: list[Point | None]) -> Words:
    """The index with other points; all that do not fit are left out, as those are that are None."""
    form, words = packing(data), words.copy()
    for first in range(0, len(points), ix.GROUP):
        whole, *others = points[first : first + ix.GROUP]
        assert whole is not None
        packed, at, before = 0, 0, whole
        for point in others:
            added = (1 << form.bits) - 1
            if point is not None:
                distance, *changes = (new - old for new, old in zip(point, before, strict=True))
                fits = 0 <= distance < (1 << form.place) - 1
                for each, width in zip(changes, form.dc, strict=True):
                    fits &= -(1 << width - 1) <= each < 1 << width - 1
                if fits:
                    added, shift, before = distance, form.place, point
                    for each, width in zip(changes, form.dc, strict=True):
                        added |= each + (1 << width - 1) << shift
                        shift += width
            packed |= added << at
            at += form.bits
        place = ix.POINTS + first // ix.GROUP * form.group
        head = whole[0].to_bytes(4, "little") + np.array(whole[1:], np.int16).tobytes()
        group = np.frombuffer(head + packed.to_bytes(2 * -(-at // 16), "little"), np.uint16)
        words[place : place + len(group)] = group
    return words


def _joined(total: int, number: int) -> int:
    total = (total ^ number) * 0x9E3779B185EBCA87 % 2**64
    return (total ^ total >> 32) * 0xC2B2AE3D27D4EB4F % 2**64


def sealed(data: bytes, words: Words) -> Words:
    """The index as if it were right for the file."""
    words, form = words.copy(), packing(data)
    words[ix.DIGEST : ix.DIGEST + 4] = np.array([digest(data)], np.int64).view(np.uint16)
    groups, rest = divmod(count_of(data, words), ix.GROUP)
    last = ix.POINTS + groups * form.group + (form.words(rest) if rest else 0)
    total = 0
    for part in (words[: ix.CHECKSUM], words[ix.POINTS : last]):
        whole, shared = len(part) // 4 * 4, len(part) // 16 * 4
        numbers = [int.from_bytes(four.tobytes(), "big") for four in part[:whole].reshape(-1, 4)]
        if shared:
            sums = [functools.reduce(_joined, numbers[lane:shared:4], total) for lane in range(4)]
            total = functools.reduce(_joined, sums, 0x9E3779B185EBCA87)
        total = functools.reduce(_joined, [*numbers[shared:], *map(int, part[whole:])], total)
    words[ix.CHECKSUM : ix.CHECKSUM + 4] = np.array([total], np.uint64).view(np.uint16)
    return words
