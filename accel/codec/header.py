"""Headers of JPEG files, read in a few microseconds, whether accel claims a file, and the headers of raw pixels.

Source: ITU T.81 annex B (markers and segments), annex G (progressive files).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

SOI = b"\xff\xd8\xff"
_EOI = b"\xff\xd9"
_SOS, _DQT, _APP0, _APP2, _APP13, _APP14 = 0xDA, 0xDB, 0xE0, 0xE2, 0xED, 0xEE
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
# DHT, DRI, COM and most APPn: Pillow never fails on their content.
_PLAIN = frozenset({0xC4, 0xDD, 0xFE, *range(0xE0, 0xF0)} - {_APP0, _APP2, _APP13, _APP14})
LARGEST_SIDE = 65500
"""The most rows or columns that libjpeg takes (JPEG_MAX_DIMENSION); a file may say up to 65535."""

MPF, _ICC, _PHOTOSHOP, _RESOURCE = map(tuple, (b"MPF\x00", b"ICC_PROFILE\x00", b"Photoshop 3.0\x00", b"8BIM"))


def channels_of(mode: str) -> int:
    """The number of channels of a picture of Pillow's mode "RGB" (3) or "L" (1)."""
    return 3 if mode == "RGB" else 1


class Header(NamedTuple):
    """The header of a file that accel may claim: its size in pixels and Pillow's mode ("L" or "RGB").

    ``complete``: it has its end marker. ``ordinary``: it is complete and no part of the picture is missing, so that all
    decoders agree. ``scan``: the offset of the first scan's marker. ``reference``: the reference engine, whose pixels
    are wanted, and which decides about files that other engines decline. ``pictures``: the file may have several.
    """

    width: int
    height: int
    mode: str
    progressive: bool = False
    complete: bool = True
    ordinary: bool = True
    scan: int = 0
    reference: Literal["pillow", "torchvision"] = "pillow"
    pictures: bool = False

    @property
    def plain(self) -> bool:
        """Whether a decoder for baseline files only may take it."""
        return self.ordinary and not self.progressive

    @property
    def channels(self) -> int:
        return channels_of(self.mode)


class Raw(NamedTuple):
    """The header of raw pixels: uint8, row by row, channels interleaved; ``mode``: "L" or "RGB".

    ``decoder``: the decoder that made them of a file (``accel.codec.foreign.DECODERS``); "": they come from no file.
    """

    width: int
    height: int
    mode: str
    decoder: str = ""

    @property
    def channels(self) -> int:
        return channels_of(self.mode)


def claim(data: bytes | bytearray, size: int | None = None) -> Header | None:
    """The header of an 8-bit Huffman JPEG with one or three components; None for all other files.

    The file is the first ``size`` bytes of ``data``, by default all. None leaves it to Pillow, which opens it,
    or says what is wrong with it.
    """
    if data[:3] != SOI:
        return None
    size = len(data) if size is None else size
    components = height = width = 0
    progressive, pictures, ids = False, False, data[:0]
    for marker, position, length in _segments(data, size):
        if marker == _SOS:
            if not components or data[position] > components:
                return None
            scan, mode = position - 4, "L" if components == 1 else "RGB"
            complete = data.endswith(_EOI, 0, size) or data.rfind(_EOI, 0, size) > position + length
            state = survey(data, scan, size, ids) if progressive else (complete, complete)
            return Header(width, height, mode, progressive, *state, scan, pictures=pictures)
        if marker in (_BASELINE, _EXTENDED, _PROGRESSIVE) and not components:
            components, height, width = frame(data, position, length)
            if not components:
                return None
            progressive, ids = marker == _PROGRESSIVE, data[position + 6 : position + length : 3]
        elif marker == _APP2 and begins(data, position, position + length, MPF):
            pictures = True
        elif marker not in _PLAIN and not harmless(data, marker, position, length):
            return None
    return None


def _segments(data: bytes | bytearray, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield each segment's marker, the offset of its content and the bytes of that, up to the scan's or a wrong one."""
    position, end = 2, size - 1
    while position + 3 < end and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        length = (data[position + 2] << 8) | data[position + 3]
        if marker < 0xC0 or 0xD0 <= marker <= 0xD9 or length < 2 or position + 2 + length > end:
            return
        yield marker, position + 4, length - 2
        position += 2 + length


# -- segments: in numba's subset of Python, as compiled code (``files.kernels``) reads them in the same way -----------


def begins(data: Any, at: int, end: int, text: tuple[int, ...]) -> bool:
    """Whether data[at:end] begins with these bytes."""
    same = end - at >= len(text)
    for i in range(len(text)):
        same = same and data[at + i] == text[i]
    return same


def frame(data: Any, at: int, length: int) -> tuple[int, int, int]:
    """The components, the height and the width that a frame header says, data[at : at + length]; zeros: it is unusual.

    Products and sums, and no shifts, make bytes signed numbers for numba.
    """
    if length < 6 or data[at] != 8:
        return 0, 0, 0
    components, height, width = 0 + data[at + 5], 256 * data[at + 1] + data[at + 2], 256 * data[at + 3] + data[at + 4]
    sized = min(height, width) > 0 and max(height, width) <= LARGEST_SIDE
    fits = sized and components in (1, 3) and length == 6 + 3 * components
    return (components, height, width) if fits else (0, 0, 0)


def harmless(data: Any, marker: int, at: int, length: int) -> bool:
    """Whether Pillow, and so any other decoder, reads a segment before the scan, data[at : at + length], without
    failing."""
    if marker == _DQT:  # whole tables of 64 values of one or two bytes
        while length > 0:
            size = 65 if data[at] < 16 else 129
            at += size
            length -= size
        return length == 0
    if marker in (_APP0, _APP14):  # Pillow reads a version from JFIF's and Adobe's
        return length >= 7
    if marker == _APP2:  # the number of a part of a colour profile
        return length >= 14 or not begins(data, at, at + length, _ICC)
    if marker == _APP13:
        return photoshop_parses(data, at, length)
    return marker in (0xC4, 0xDD, 0xFE) or 0xE0 <= marker <= 0xEF  # as ``_PLAIN``


def photoshop_parses(data: Any, at: int, length: int) -> bool:
    """Whether Pillow's walk over Photoshop's resources stays inside the segment (else it refuses the file)."""
    position = len(_PHOTOSHOP) if begins(data, at, at + length, _PHOTOSHOP) else length
    while begins(data, at + position, at + length, _RESOURCE):
        position += 6  # the resource's code
        if position >= length:
            return position > length
        position += 1 + data[at + position]  # its name
        position += position & 1
        if position + 4 > length:
            return True
        place = at + position
        upper, lower = 256 * data[place] + data[place + 1], 256 * data[place + 2] + data[place + 3]
        position += 4 + 65536 * upper + lower
        position += position & 1
    return True


# -- progressive files (T.81 annex G) -------------------------------------------------------------------------
#
# A file may end early with some scans missing; libjpeg then shows the picture so far, smoothed, and other decoders
# smooth differently.

_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # no stuffed byte, no restart; any byte may follow in a scan


def survey(data: bytes | bytearray, position: int, size: int, components: bytes | bytearray) -> tuple[bool, bool]:
    """Follow the scans from the SOS marker at ``position`` on, segment by segment.

    Tables stand between the scans, and their bytes may look like an end.

    Args:
        data: the file, in the first ``size`` bytes. components: their ids, as the frame header lists them.

    Returns:
        Whether there is an EOI marker, and whether every coefficient of every component is complete to its last bit.
    """
    missing = {component: [True] * 64 for component in components}
    if len(missing) < len(components):  # libjpeg gives an equal id another number: a scan of one is not of the other
        missing[-1] = [True] * 64
    while position + 1 < size:
        marker = data[position + 1]
        if marker == _EOI[1]:
            return True, not any(map(any, missing.values()))
        if marker == 0xFF:
            position += 1
        elif marker == 0 or 0xD0 <= marker <= 0xD7:  # a stuffed byte, a restart marker
            position += 2
        elif position + 4 > size:
            break
        else:
            length = (data[position + 2] << 8) | data[position + 3]
            if marker == _SOS:
                _note(data[position + 4 : position + 2 + length], missing)
            position += 2 + length
        found = _MARKER.search(data, position, size)
        if found is None:
            break
        position = found.start()
    return False, False


def _note(scan: bytes | bytearray, missing: dict[int, list[bool]]) -> None:
    """Note which coefficients a scan leaves without their last bit; the last scan that has them decides."""
    count = scan[0] if scan else 0
    if len(scan) != 4 + 2 * count:
        return
    first, last, approximation = scan[-3:]
    for component in scan[1 : 1 + 2 * count : 2]:
        if component in missing and first <= last <= 63:
            missing[component][first : last + 1] = [approximation & 15 > 0] * (last + 1 - first)
