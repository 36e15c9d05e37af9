"""A JPEG file as a list of segments with their markers, and of the bytes between them (ITU T.81 annex B)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

SOI, EOI, SOS, DQT, DHT, DRI, DNL = 0xD8, 0xD9, 0xDA, 0xDB, 0xC4, 0xDD, 0xDC
FRAMES = (0xC0, 0xC1, 0xC2)
METADATA = (0xE0, 0xE1, 0xE2, 0xED, 0xEE, 0xFE)
_ALONE = (SOI, EOI, 0x01, *range(0xD0, 0xD8))
"""Markers without a segment."""
_LONGEST = 0xFFFF - 2
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")  # without those that are in scans


class Segment(NamedTuple):
    """A marker with its segment's payload; or, with ``marker`` 0, raw bytes: of a scan, or of no segment."""

    marker: int
    payload: bytes = b""

    def __bytes__(self) -> bytes:
        if not self.marker:
            return self.payload
        if self.marker in _ALONE:
            return bytes((0xFF, self.marker)) + self.payload
        return segment(self.marker, self.payload[:_LONGEST])


File = list[Segment]


def segment(marker: int, payload: bytes) -> bytes:
    return bytes((0xFF, marker)) + (len(payload) + 2).to_bytes(2, "big") + payload


def joined(file: Sequence[Segment]) -> bytes:
    return b"".join(map(bytes, file))


def segments(data: bytes) -> File:
    """Split any bytes; ``joined`` gives the same bytes again. Restart markers are part of their scan's bytes."""
    found, at = [], 0
    while at < len(data):
        marker = data[at + 1] if _MARKER.match(data, at) else 0
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in (SOI, EOI):
            end = at + 2
            found.append(Segment(marker))
        elif marker and length >= 2 and at + 2 + length <= len(data):
            end = at + 2 + length
            found.append(Segment(marker, data[at + 4 : end]))
        else:
            behind = _MARKER.search(data, at + 1)
            end = behind.start() if behind else len(data)
            found.append(Segment(0, data[at:end]))
        at = end
    return found


def scan_of(data: bytes) -> int:
    """Where the last scan's coded bytes begin; the end of a file without scans."""
    at = data.rfind(bytes((0xFF, SOS)))
    return min(at + 2 + int.from_bytes(data[at + 2 : at + 4], "big"), len(data)) if at >= 0 else len(data)


JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")


def adobe(transform: int) -> bytes:
    return segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))
