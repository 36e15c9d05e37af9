"""Headers of JPEG files, read in a few microseconds, whether accel claims a file, and the headers of raw pixels.

Source: ITU T.81 annex B (markers and segments), annex G (progressive files).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

SOI = b"\xff\xd8\xff"
_EOI = b"\xff\xd9"
_SOS, _DQT, _APP0, _APP2, _APP13, _APP14 = 0xDA, 0xDB, 0xE0, 0xE2, 0xED, 0xEE
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
# DHT, DRI, COM and most APPn: Pillow never fails on their content.
_PLAIN = frozenset({0xC4, 0xDD, 0xFE, *range(0xE0, 0xF0)} - {_APP0, _APP2, _APP13, _APP14})
LARGEST_SIDE = 65500
"""The most rows or columns that libjpeg takes (JPEG_MAX_DIMENSION); a file may say up to 65535."""

_MPF, _ICC, _PHOTOSHOP = b"MPF\x00", b"ICC_PROFILE\x00", b"Photoshop 3.0\x00"


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
    frame: _Frame | None = None
    pictures = False
    for marker, position, length in _segments(data, size):
        if marker == _SOS:
            return frame and _claimed(data, size, frame, position, length, pictures)
        if marker in (_BASELINE, _EXTENDED, _PROGRESSIVE) and frame is None:
            frame = _frame(data, marker, position, length)
            if frame is None:
                return None
        elif marker == _APP2 and data.startswith(_MPF, position):
            pictures = True
        elif marker not in _PLAIN and not _harmless(data, marker, position, length):
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


class _Frame(NamedTuple):
    """A frame header: its marker, the picture's size, and the components' ids."""

    marker: int
    width: int
    height: int
    ids: bytes | bytearray


def _frame(data: bytes | bytearray, marker: int, position: int, length: int) -> _Frame | None:
    if length < 6 or data[position] != 8:
        return None
    components = data[position + 5]
    height = (data[position + 1] << 8) | data[position + 2]
    width = (data[position + 3] << 8) | data[position + 4]
    if components not in (1, 3) or length != 6 + 3 * components or not width or not height:
        return None
    if max(width, height) > LARGEST_SIDE:
        return None
    return _Frame(marker, width, height, data[position + 6 : position + length : 3])


def _claimed(
    data: bytes | bytearray, size: int, frame: _Frame, position: int, length: int, pictures: bool
) -> Header | None:
    """The header of a file whose first scan's content is at a position."""
    components, scan = len(frame.ids), position - 4
    if data[position] > components:
        return None
    mode = "L" if components == 1 else "RGB"
    if frame.marker == _PROGRESSIVE:
        state = survey(data, scan, size, frame.ids)
        return Header(frame.width, frame.height, mode, True, *state, scan, pictures=pictures)
    complete = data.endswith(_EOI, 0, size) or data.rfind(_EOI, 0, size) > position + length
    return Header(frame.width, frame.height, mode, False, complete, complete, scan, pictures=pictures)


def _harmless(data: bytes | bytearray, marker: int, position: int, length: int) -> bool:
    """Whether Pillow, and so any other decoder, reads a segment before the scan without failing."""
    if marker == _DQT:  # whole tables of 64 values of one or two bytes
        while length > 0:
            size = 65 if data[position] < 16 else 129
            position += size
            length -= size
        return length == 0
    if marker in (_APP0, _APP14):  # Pillow reads a version from JFIF's and Adobe's
        return length >= 7
    if marker == _APP2:  # the number of a part of a colour profile
        return length >= 14 or not data.startswith(_ICC, position)
    if marker == _APP13:
        return _photoshop_parses(bytes(data[position : position + length]))
    return False


def _photoshop_parses(payload: bytes) -> bool:
    """Whether Pillow's walk over Photoshop's resources stays inside the segment (else it refuses the file)."""
    position = 14 if payload.startswith(_PHOTOSHOP) else len(payload)
    while payload[position : position + 4] == b"8BIM":
        position += 6  # the resource's code
        if position == len(payload):
            return False
        if position > len(payload):
            return True
        position += 1 + payload[position]  # its name
        position += position & 1
        size = payload[position : position + 4]
        if len(size) < 4:
            return True
        position += 4 + int.from_bytes(size, "big")
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
