"""Headers of JPEG files, read in a few microseconds, whether accel claims a file, and the headers of raw pixels.

Source: ITU T.81 annex B (markers and segments).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from accel.codec.progressive import survey

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
    position, end = 2, size - 1
    width = height = components = frame = 0
    pictures = False
    ids: bytes | bytearray = b""
    while position + 3 < end:
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker < 0xC0 or 0xD0 <= marker <= 0xD9:
            return None
        length = (data[position + 2] << 8) | data[position + 3]
        if length < 2 or position + 2 + length > end:
            return None
        if marker in _PLAIN:
            position += 2 + length
            continue
        if marker == _SOS:
            if not frame or data[position + 4] > components:
                return None
            mode = "L" if components == 1 else "RGB"
            if frame == _PROGRESSIVE:
                state = survey(data, position, size, ids)
                return Header(width, height, mode, True, *state, position, pictures=pictures)
            complete = data.endswith(_EOI, 0, size) or data.rfind(_EOI, 0, size) > position + 2 + length
            return Header(width, height, mode, False, complete, complete, position, pictures=pictures)
        if marker in (_BASELINE, _EXTENDED, _PROGRESSIVE):
            if frame or length < 8 or data[position + 4] != 8:
                return None
            frame, components = marker, data[position + 9]
            height = (data[position + 5] << 8) | data[position + 6]
            width = (data[position + 7] << 8) | data[position + 8]
            ids = data[position + 10 : position + 2 + length : 3]
            if components not in (1, 3) or length != 8 + 3 * components or not width or not height:
                return None
            if max(width, height) > LARGEST_SIDE:
                return None
        elif marker == _APP2 and data.startswith(_MPF, position + 4):
            pictures = True
        elif not _harmless(data, marker, position + 4, length - 2):
            return None
        position += 2 + length
    return None


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
